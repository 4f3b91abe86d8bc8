"""A call that a model makes again: the same call while it waits or its end is unknown, a new one when it is a new wish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.gate.approvals import LIFE
from proctor.gate.repeats import REPLAY, Repeats
from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.tools import Call, CallResult
from proctor.store.tables import calls, leases
from tests.gate.world import World


def _repeats(world: World) -> Repeats:
    return Repeats(
        tools=world.registry, database=world.database, settings_for=world.settings, clock=world.clock
    )


async def _again(world: World, tool: str = "send", **more: Any) -> CallResult:
    """A call as MCP makes it: without a key, as whatever it repeats."""
    call: Call = world.call(tool, **more)
    found = _repeats(world).find(call)
    return await world.gate.run(call if found is None else found.again(call))


async def test_a_waiting_call_runs_once_when_answered_and_gives_the_same_result_again(world: World) -> None:
    """Also from another trace: a client that was started again repeats the same words."""
    first, second = await _again(world), await _again(world, trace_id="trace_new")
    assert first.waiting
    assert (second.approval_id, second.call_id) == (first.approval_id, first.call_id)
    world.answer(first.approval_id or "")
    third, fourth = await _again(world, trace_id="trace_new"), await _again(world)
    assert third.ok
    assert not third.replayed
    assert (fourth.replayed, fourth.output, fourth.call_id) == (True, third.output, first.call_id)
    assert world.ran.names == ["send"]
    assert len(world.calls) == 1


async def test_after_a_while_or_after_another_act_the_same_words_are_a_new_wish(world: World) -> None:
    """Push, commit, push again is two pushes: the second asks anew."""
    asked = await _again(world)
    world.answer(asked.approval_id or "")
    assert (await _again(world)).ok
    assert (await _again(world, "look")).ok
    assert (await _again(world)).replayed  # looking changes nothing
    assert (await _again(world, "act")).ok
    new = await _again(world)
    assert new.waiting
    assert new.approval_id != asked.approval_id
    world.answer(new.approval_id or "")
    assert (await _again(world)).ok
    world.clock.ahead = REPLAY + timedelta(seconds=1)
    assert (await _again(world)).waiting
    assert world.ran.names == ["send", "look", "act", "send"]


async def test_what_nobody_is_asked_about_runs_every_time(world: World) -> None:
    """Running the tests twice is two runs."""
    results = [await _again(world, name) for name in ("act", "act", "look", "look")]
    assert all(one.ok and not one.replayed for one in results)
    assert world.ran.names == ["act", "act", "look", "look"]


@pytest.mark.parametrize("name", ["act", "look"])
async def test_a_call_whose_end_nobody_knows_is_not_made_twice(world: World, name: str) -> None:
    """Its process hangs past its time: an act asks a person before it is made again; a look is simply done again."""
    began, go = world.hold()
    async with asyncio.TaskGroup() as group:
        group.create_task(_again(world, name))
        await began.wait()
        world.ran.act = None
        if name == "act":
            busy = await _again(world, name)
            assert busy.error is not None
            assert busy.error.code == "call_in_progress"
        world.clock.ahead = timedelta(hours=1)
        again = await _again(world, name)
        go.set()
    if name == "look":
        assert again.ok
        return
    assert "interrupted" in (again.error.message if again.error else "")
    assert world.ran.names == ["act"]
    world.answer(again.approval_id or "")
    late = await _again(world, name)  # it ended after all, so there is nothing to make again
    assert (late.ok, late.replayed) == (True, True)
    assert world.ran.names == ["act"]


async def test_other_inputs_agents_places_and_tasks_are_other_calls(world: World) -> None:
    """Nobody picks up an answer that was given for something or somebody else."""
    asked = await _again(world)
    world.answer(asked.approval_id or "")
    call = world.call("send")
    others = [
        world.call("send", inputs={"path": "other.txt"}),
        replace(call, actor=replace(call.actor, name="another")),
        replace(call, workspace=world.workspace.parent),
        replace(call, task_id="task-1", attempt=1),
        world.call("act"),
    ]
    assert [_repeats(world).find(one) for one in others] == [None] * len(others)
    assert _repeats(world).find(call) is not None


async def test_an_expired_question_is_asked_again_and_that_is_known(world: World) -> None:
    """Neither yes nor no: the caller hears which question nobody answered."""
    asked = await _again(world)
    world.clock.ahead = LIFE - timedelta(seconds=1)
    found = _repeats(world).find(world.call("send"))
    assert found is not None
    assert found.lapsed == ""
    with world.database.write() as connection:
        connection.execute(calls.update().values(requested_at=world.clock.now()))
    world.clock.ahead = LIFE + timedelta(seconds=1)
    late = _repeats(world).find(world.call("send"))
    assert late is not None
    assert late.lapsed == asked.approval_id
    again = await _again(world)
    assert again.waiting
    assert again.approval_id != asked.approval_id


async def test_a_rejected_call_stays_rejected_and_a_failed_one_may_be_tried_again(world: World) -> None:
    """A no is a no in the same run; a tool's failure was charged and is not given again as if it were an answer."""
    asked = await _again(world)
    world.answer(asked.approval_id or "", approved=False, reason="no")
    for _ in range(2):
        refused = await _again(world)
        assert refused.error is not None
        assert refused.error.code == "approval_rejected"
    world.ran.act = lambda _context, _inputs: (_ for _ in ()).throw(OSError("broken"))
    other = await _again(world, inputs={"path": "b"})
    world.answer(other.approval_id or "")
    assert (await _again(world, inputs={"path": "b"})).error is not None
    assert (await _again(world, inputs={"path": "b"})).waiting


def test_what_makes_no_sense_is_said_as_the_gate_says_it(world: World) -> None:
    """Unknown tools and wrong inputs."""
    with pytest.raises(NotFoundError):
        _repeats(world).find(world.call("nothing"))
    with pytest.raises(UsageError):
        _repeats(world).find(world.call("send", inputs={"other": 1}))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(["send", "send", "yes", "act", "look"]), max_size=12))
async def test_never_more_runs_than_answers(make_world: Callable[..., World], steps: list[str]) -> None:
    """Whatever is repeated in whatever order: what asks has run at most as often as a person said yes."""
    world = make_world()
    with world.database.write() as connection:
        for table in (calls, leases):
            connection.execute(table.delete())
        connection.exec_driver_sql("DELETE FROM approvals")
    answers = 0
    for step in steps:
        if step == "yes":
            for question in [one for one in world.questions if one["status"] == "pending"]:
                world.answer(question["approval_id"])
                answers += 1
        else:
            await _again(world, step)
        assert world.ran.names.count("send") <= answers
    if answers:
        await _again(world)
        assert world.ran.names.count("send") >= 1
    world.close()
