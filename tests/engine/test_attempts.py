"""One attempt: a broken driver ends, a stopped executor leaves its work to the next, no event is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.agents.driver import AttemptEnd, AttemptRequest, Capabilities, Outcome
from proctor.engine import patience
from proctor.engine.dispatch import Capacity, dispatch
from proctor.engine.patience import patiently
from proctor.engine.tasks import NewTask
from proctor.protocol.errors import StoreUnavailableError
from proctor.protocol.states import TaskState
from proctor.store.tables import attempts, events
from proctor.testing.instant import InstantDriver, InstantRun
from tests.engine.conftest import FakeClock, House
from tests.support.rows import rows_of


class Opened:
    """A driver whose agents hang; counts who came and who was let go."""

    name = "instant"
    capabilities = Capabilities(resumes=True, simulated=True)

    def __init__(self) -> None:
        self.requests: list[AttemptRequest] = []
        self.inside = 0

    async def _hang(self, _request: AttemptRequest, _run: InstantRun) -> AttemptEnd:
        await asyncio.sleep(60)
        raise AssertionError("nobody stopped it")

    @asynccontextmanager
    async def launch(self, request: AttemptRequest) -> AsyncIterator[InstantRun]:
        """Leaving the block is what kills a real process tree."""
        self.requests.append(request)
        self.inside += 1
        try:
            yield InstantRun(request, self._hang)
        finally:
            self.inside -= 1


async def test_a_driver_that_breaks_fails_the_task_within_its_retries(house: House) -> None:
    """A bug of ours is a failure with a reason, tried again up to the cap, and never for ever."""
    calls = 0

    async def bug(_request: AttemptRequest, _run: InstantRun) -> AttemptEnd:
        nonlocal calls
        calls += 1
        raise RuntimeError("a bug")

    house.drivers["instant"] = InstantDriver(bug)
    async with house.running():
        task = house.tasks.add(NewTask("x", agent="instant", max_retries=1))
        (ended,) = await house.ended(task.task_id)
    assert (ended.status, ended.attempt, calls) == (TaskState.FAILED, 2, 2)
    assert "a bug" in (ended.error or "")


async def test_stopping_lets_agents_go_and_the_next_executor_goes_on(house: House) -> None:
    """In order or because the lease was lost: no agent outlives its executor, and the attempt is resumed once."""
    driver = Opened()
    house.drivers["instant"] = driver
    task = house.tasks.add(NewTask("x", agent="instant"))
    async with house.running():
        await house.until(lambda: driver.inside == 1)
    assert driver.inside == 0
    left = house.tasks.get(task.task_id)
    assert (left.status, left.attempt) == (TaskState.IN_PROGRESS, 1)
    house.drivers["instant"] = InstantDriver()
    async with house.running():
        (ended,) = await house.ended(task.task_id)
    assert (ended.status, ended.attempt) == (TaskState.COMPLETED, 1)
    told = rows_of(house.database, sa.select(events.c.event).where(events.c.event == "takeover"))
    assert len(told) == 1


async def test_a_lost_lease_lets_agents_go(house: House) -> None:
    """The executor ends as lost, with all agents stopped; its own clean-up frees the work."""
    driver = Opened()
    house.drivers["instant"] = driver
    executor = house.executor()
    async with asyncio.TaskGroup() as group:
        group.create_task(executor.run())
        task = house.tasks.add(NewTask("x", agent="instant"))
        await house.until(lambda: driver.inside == 1)
        executor._lost()
    assert executor.lost
    assert driver.inside == 0
    assert house.tasks.get(task.task_id).status is TaskState.IN_PROGRESS


async def test_a_resumed_agent_gets_its_conversation_a_retried_one_a_new_one(house: House) -> None:
    """Interrupted: resume by native id; failed: the same place, but from the beginning."""
    requests: list[AttemptRequest] = []

    async def fail_once(request: AttemptRequest, _run: InstantRun) -> AttemptEnd:
        requests.append(request)
        if len(requests) == 1:
            raise RuntimeError("once")
        return AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)

    house.drivers["instant"] = InstantDriver(fail_once)
    async with house.running():
        task = house.tasks.add(NewTask("x", agent="instant"))
        await house.ended(task.task_id)
    assert [request.resume for request in requests] == [None, None]
    assert requests[0].worktree == requests[1].worktree


async def test_what_runs_is_written_down_before_it_acts(house: House) -> None:
    """When the behaviour begins, row and attempt already say where it works and that it is simulated."""
    seen: list[dict[str, Any]] = []

    async def look(request: AttemptRequest, _run: InstantRun) -> AttemptEnd:
        seen.extend(await asyncio.to_thread(rows_of, house.database, sa.select(attempts)))
        return AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)

    house.drivers["instant"] = InstantDriver(look)
    async with house.running():
        task = house.tasks.add(NewTask("x", agent="instant"))
        await house.ended(task.task_id)
    assert [(row["simulated"], bool(row["worktree"]), row["native_id"]) for row in seen] == [
        (True, True, f"instant-{task.task_id}")
    ]


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that stays away is reported after a bounded time; one that comes back is not."""
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.01)
    away = StoreUnavailableError(place="x", reason="away", cure="Wait.")
    calls = 0

    async def act() -> str:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise away
        return "done"

    assert await patiently(act) == "done"
    calls = -1_000_000
    with pytest.raises(StoreUnavailableError):
        await patiently(act, seconds=0.05)


async def test_what_was_handed_over_too_late_is_not_begun(house: House) -> None:
    """A job may wait in the queue beyond its deadline; no agent is started for it then."""
    clock = FakeClock()
    task = house.tasks.add(NewTask("x", agent="instant", deadline=clock.now() + timedelta(hours=1)))
    house.writer.transact(lambda c: dispatch(c, Capacity({"instant": 1}), clock.now(), full=True))
    clock.forward(hours=2)
    assert await house.executor(clock=clock).attempts.run(task.task_id, 1) == "failed"
    ended = house.tasks.get(task.task_id)
    assert (ended.status, ended.retry_count) == (TaskState.FAILED, 0)
    assert ended.error == "the deadline passed before it could run"
