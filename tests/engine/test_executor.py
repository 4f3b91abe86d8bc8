"""The engine end to end on both databases: tasks run once, in order, and end as facts say."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from proctor.agents.driver import AttemptEnd, AttemptRequest, Delegation, Failure, Outcome
from proctor.engine import executor
from proctor.engine.tasks import NewTask
from proctor.protocol.states import TaskState
from proctor.store.tables import events, executors, task_history, task_queue
from proctor.testing.instant import InstantDriver, InstantRun
from tests.engine.conftest import House
from tests.support.rows import rows_of


async def test_a_task_runs_to_its_end_and_leaves_history(house: House) -> None:
    """Added, assigned, run, completed: row, history and events agree."""
    async with house.running():
        task = house.tasks.add(NewTask("say done", agent="instant"))
        (ended,) = await house.ended(task.task_id)
    detail = house.tasks.show(ended.task_id)
    assert ended.status is TaskState.COMPLETED
    assert ended.owner is None
    assert [row["outcome"] for row in detail.attempts] == ["succeeded"]
    assert [(row["success"], row["simulated"]) for row in detail.history] == [(True, True)]
    with house.database.read() as connection:
        query = sa.select(events.c.event).where(events.c.task_id == ended.task_id).order_by(events.c.seq)
        told = list(connection.execute(query).scalars())
    assert told == [
        "task_added",
        "task_assigned",
        "attempt_started",
        "message",
        "attempt_ended",
        "task_completed",
    ]


async def test_dependencies_run_first_and_a_broken_one_blocks(house: House) -> None:
    """A task waits for what it depends on; when that fails it is blocked, and goes on after a successful retry."""
    broken = True

    async def behave(request: AttemptRequest, run: InstantRun) -> AttemptEnd:
        if request.prompt == "first" and broken:
            return AttemptEnd(Outcome.FAILED, "broken", failure=Failure.MODEL, simulated=True)
        return AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)

    house.drivers["instant"] = InstantDriver(behave)
    async with house.running():
        first = house.tasks.add(NewTask("first", agent="instant"))
        second = house.tasks.add(NewTask("second", agent="instant", depends_on=[first.task_id]))
        await house.until(lambda: house.tasks.get(second.task_id).status is TaskState.BLOCKED)
        broken = False
        house.tasks.retry(first.task_id, by="test")
        done = await house.ended(first.task_id, second.task_id)
    assert [task.status for task in done] == [TaskState.COMPLETED, TaskState.COMPLETED]
    assert house.tasks.get(first.task_id).attempt == 2


async def test_a_retryable_failure_is_tried_again_until_the_cap(house: House) -> None:
    """Retries back off and stop at the cap; every attempt is in the history."""

    async def fail(request: AttemptRequest, run: InstantRun) -> AttemptEnd:
        return AttemptEnd(Outcome.FAILED, "the network", failure=Failure.NETWORK, simulated=True)

    house.drivers["instant"] = InstantDriver(fail)
    async with house.running():
        task = house.tasks.add(NewTask("try", agent="instant", max_retries=1))
        (ended,) = await house.ended(task.task_id)
    assert (ended.status, ended.attempt, ended.retry_count) == (TaskState.FAILED, 2, 1)
    assert len(house.tasks.show(ended.task_id).history) == 2


async def test_a_row_put_in_by_sql_is_adopted_within_two_seconds(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 000: a row with status 'assigned' is enough; nobody is woken, the next look finds it."""
    assert executor.LOOK_SECONDS <= 1.0
    monkeypatch.setattr(executor, "FULL_SECONDS", 3600.0)
    async with house.running():
        await house.until(lambda: bool(rows_of(house.database, sa.select(executors))))
        with house.database.write() as connection:
            connection.execute(
                task_queue.insert().values(
                    task_id="by-sql", description="x", status="assigned", assigned_to_agent="instant"
                )
            )
        await house.until(lambda: house.tasks.get("by-sql").status is TaskState.COMPLETED)
    assert house.tasks.get("by-sql").attempt == 1


async def test_an_agent_runs_no_more_at_once_than_it_may(house: House) -> None:
    """Per-agent concurrency holds under a burst."""
    now, most, full = 0, 0, asyncio.Event()

    async def count(request: AttemptRequest, run: InstantRun) -> AttemptEnd:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 3:
            full.set()
        await asyncio.wait_for(full.wait(), 60)
        await asyncio.sleep(0.02)
        now -= 1
        return AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)

    house.drivers["instant"] = InstantDriver(count)
    house.slots = 3
    async with house.running():
        ids = house.tasks.add_many([NewTask(f"{i}", agent="instant") for i in range(20)])
        done = await house.ended(*ids)
    assert {task.status for task in done} == {TaskState.COMPLETED}
    assert most == 3


async def test_higher_priority_runs_first(house: House) -> None:
    """With one slot the order is priority, then age."""
    order: list[str] = []

    async def note(request: AttemptRequest, run: InstantRun) -> AttemptEnd:
        order.append(request.prompt)
        return AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)

    house.drivers["instant"] = InstantDriver(note)
    house.slots = 1
    ids = house.tasks.add_many([NewTask(f"p{p}", agent="instant", priority=p) for p in (2, 9, 5, 10)])
    async with house.running():
        await house.ended(*ids)
    assert order == ["p10", "p9", "p5", "p2"]


async def test_a_running_task_is_cancelled_and_unwinds(house: House) -> None:
    """Cancel reaches the running attempt; row and attempt end as cancelled."""

    async def hang(request: AttemptRequest, run: InstantRun) -> AttemptEnd:
        async with asyncio.timeout(20):
            while not run.cancelled:  # noqa: ASYNC110 - what a simulated agent does
                await asyncio.sleep(0.01)
        return AttemptEnd(Outcome.SUCCEEDED, "never", simulated=True)

    house.drivers["instant"] = InstantDriver(hang)
    async with house.running() as running:
        task = house.tasks.add(NewTask("hang", agent="instant"))
        await house.until(lambda: house.tasks.get(task.task_id).status is TaskState.IN_PROGRESS)
        house.tasks.cancel(task.task_id, by="test")
        running.wake()
        (ended,) = await house.ended(task.task_id)
    assert ended.status is TaskState.CANCELLED
    assert house.tasks.show(task.task_id).attempts[0]["outcome"] == "cancelled"


async def test_delegation_makes_a_routed_task(house: House) -> None:
    """An agent may hand work on: a route_decision and a new task with its guidance."""

    async def behave(request: AttemptRequest, run: InstantRun) -> AttemptEnd:
        wish = (Delegation("instant", "the rest", "carefully"),) if request.prompt == "all" else ()
        return AttemptEnd(Outcome.SUCCEEDED, "done", delegations=wish, simulated=True)

    house.drivers["instant"] = InstantDriver(behave)
    async with house.running():
        task = house.tasks.add(NewTask("all", agent="instant"))
        await house.ended(task.task_id)
        await house.until(lambda: len(house.tasks.list(status=["completed"])) == 2)
    other = next(t for t in house.tasks.list(status=["completed"]) if t.task_id != task.task_id)
    assert other.created_by == "instant"
    assert other.context["delegated_from"] == task.task_id
    assert other.trace_id == task.trace_id
    with house.database.read() as connection:
        routed = connection.execute(sa.select(events.c.event).where(events.c.event == "route_decision")).all()
    assert len(routed) == 1


async def test_a_passed_deadline_fails_without_running(house: House) -> None:
    """What can no longer be in time is not begun."""
    late = NewTask("late", agent="instant", deadline=datetime.now(UTC) - timedelta(seconds=1))
    task = house.tasks.add(late)
    async with house.running():
        (ended,) = await house.ended(task.task_id)
    assert ended.status is TaskState.FAILED
    assert "deadline" in (ended.error or "")
    with house.database.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(task_history)).scalar() == 0
