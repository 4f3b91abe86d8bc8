"""Every attempt has a token of its own: valid while it runs, void when it ends or is taken over, kept only as a hash."""

from __future__ import annotations

import json
from pathlib import Path

import sqlalchemy as sa

from proctor.agents.driver import AttemptEnd, AttemptRequest, Outcome
from proctor.engine.tasks import NewTask
from proctor.gate.task_tokens import VARIABLE, Holder, find_holder
from proctor.protocol.states import TaskState
from proctor.store.database import Database
from proctor.store.tables import attempts, events
from proctor.testing.instant import InstantDriver, InstantRun
from tests.engine.conftest import House
from tests.engine.test_attempts import Opened
from tests.support.rows import rows_of


def _holder(database: Database, token: str) -> Holder | None:
    with database.read() as connection:
        return find_holder(connection, token)


async def test_an_agent_gets_a_token_that_is_its_attempt_and_void_afterwards(house: House) -> None:
    """While it works the token is this task, attempt and agent in its worktree; when it has ended, nobody."""
    seen: list[tuple[str, Holder | None]] = []

    async def look(request: AttemptRequest, _run: InstantRun) -> AttemptEnd:
        seen.append((request.env[VARIABLE], _holder(house.database, request.env[VARIABLE])))
        if len(seen) == 1:
            raise RuntimeError("once")
        return AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)

    house.drivers["instant"] = InstantDriver(look)
    task = house.tasks.add(NewTask("x", agent="instant", session_id="s1"))
    async with house.running():
        (ended,) = await house.ended(task.task_id)
    assert ended.status is TaskState.COMPLETED
    tokens = [token for token, _ in seen]
    assert len(set(tokens)) == 2
    for number, (_, holder) in enumerate(seen, 1):
        assert holder is not None
        assert (holder.task_id, holder.attempt, holder.agent) == (task.task_id, number, "instant")
        assert (holder.trace_id, holder.session_id) == (task.trace_id, "s1")
        assert holder.worktree == Path(house.root / "places" / task.task_id / "work")
        assert holder.workspace is None
    assert [_holder(house.database, token) for token in tokens] == [None, None]
    _kept_nowhere(house, tokens)


def _kept_nowhere(house: House, tokens: list[str]) -> None:
    rows = rows_of(house.database, sa.select(attempts))
    told = rows_of(house.database, sa.select(events.c.details))
    text = json.dumps(
        [rows, told, [dict(one) for one in house.tasks.show(rows[0]["task_id"]).attempts]], default=str
    )
    assert all(row["token_hash"] for row in rows)
    assert not any(token in text or token.rpartition(".")[2] in text for token in tokens)
    assert "token_hash" not in house.tasks.show(rows[0]["task_id"]).attempts[0]


async def test_a_taken_over_attempt_has_a_new_token_and_the_old_one_is_void(house: House) -> None:
    """Whoever lost the attempt must not act in its name; whoever goes on has a token of its own."""
    lost = Opened()
    house.drivers["instant"] = lost
    task = house.tasks.add(NewTask("x", agent="instant"))
    async with house.running():
        await house.until(lambda: lost.inside == 1)
        old = lost.requests[0].env[VARIABLE]
        await house.until(lambda: _holder(house.database, old) is not None)
    next_one = Opened()
    house.drivers["instant"] = next_one
    async with house.running():
        await house.until(lambda: next_one.inside == 1)
        new = next_one.requests[0].env[VARIABLE]
        await house.until(lambda: _holder(house.database, new) is not None)
        found = _holder(house.database, new)
        assert found is not None
        assert (found.task_id, found.attempt) == (task.task_id, 1)
        assert _holder(house.database, old) is None
