"""Asking: a call that waits, and the question about it, name the one row that the call is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests.gate.world import AGENT, World


async def test_repeated_call_that_waits_is_told_by_the_id_of_its_row(world: World) -> None:
    """Whoever looks the call up by the answer to its second request finds it."""
    first = await world.run("act", AGENT, idempotency_key="k", profile="careful")
    again = await world.run("act", AGENT, idempotency_key="k", profile="careful")
    assert first.waiting
    assert again.waiting
    assert [row["call_id"] for row in world.calls] == [first.call_id]
    assert again.call_id == first.call_id


async def test_question_about_an_interrupted_call_names_the_call_that_was(world: World) -> None:
    """What may have happened already is that row, not a new one that nobody can find."""
    began, go = world.hold()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.run("act", AGENT, idempotency_key="k"))
        await began.wait()
        world.clock.ahead = timedelta(days=1)
        world.ran.act = None
        again = await world.run("act", AGENT, idempotency_key="k")
        go.set()
    (row,) = world.calls
    assert again.waiting
    assert (again.call_id, world.questions[0]["call_id"]) == (row["call_id"], row["call_id"])
