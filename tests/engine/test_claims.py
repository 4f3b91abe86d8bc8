"""The right to run an attempt: one holder, taken over only from the dead, and a zombie changes nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.agents.driver import AttemptEnd, Failure, Outcome
from proctor.engine.claims import Claim, Claims, LostClaimError, Work
from proctor.engine.controls import set_paused
from proctor.engine.dispatch import Desk, dispatch
from proctor.engine.tasks import NewTask
from proctor.protocol.ids import ExecutorId
from proctor.protocol.states import TaskState
from proctor.store.tables import attempts, events, task_history, task_queue
from tests.engine.conftest import FakeClock, House
from tests.support.rows import rows_of

DONE = AttemptEnd(Outcome.SUCCEEDED, "done", final_text="done", simulated=True)
BROKEN = AttemptEnd(Outcome.FAILED, "the network", failure=Failure.NETWORK)


def claims_of(house: House, name: str, clock: FakeClock | None = None) -> Claims:
    """The claims of one executor."""
    return Claims(house.writer, ExecutorId(name), clock or FakeClock())


def hand_over(house: House, clock: FakeClock | None = None) -> list[str]:
    """One look of a dispatcher; which tasks it gave out."""
    now = (clock or FakeClock()).now()
    done = house.writer.transact(lambda c: dispatch(c, Desk({"instant": 99}), now, full=True))
    return [job.task_id for job in done.jobs]


async def dead(_name: str) -> bool:
    """Everybody else is dead."""
    return True


async def alive(_name: str) -> bool:
    """Everybody lives."""
    return False


async def begun(house: House, name: str = "one") -> tuple[Claims, Claim]:
    """A task that this executor runs."""
    task = house.tasks.add(NewTask("x", agent="instant"))
    hand_over(house)
    claims = claims_of(house, name)
    claim = await claims.take(task.task_id, 1, is_dead=alive)
    assert claim is not None
    return claims, claim


def facts(house: House) -> list[Any]:
    """Everything the engine wrote down."""
    tables = (task_queue, attempts, task_history, events)
    return [rows_of(house.database, sa.select(table)) for table in tables]


async def test_an_attempt_has_one_holder(house: House) -> None:
    """Of ten executors that reach for one attempt at once exactly one gets it."""
    task = house.tasks.add(NewTask("x", agent="instant"))
    hand_over(house)
    got: list[Claim | None] = []

    async def reach(number: int) -> None:
        got.append(await claims_of(house, f"e{number}").take(task.task_id, 1, is_dead=alive))

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(reach(number))
    assert sum(claim is not None for claim in got) == 1


async def test_an_attempt_is_taken_over_from_the_dead_only(house: House) -> None:
    """A living owner keeps it; a dead one's attempt goes on under the same number, with who had it before."""
    _, claim = await begun(house)
    two = claims_of(house, "two")
    assert await two.take(claim.task.task_id, 1, is_dead=alive) is None
    taken = await two.take(claim.task.task_id, 1, is_dead=dead)
    assert taken is not None
    assert (taken.taken_over, taken.attempt, taken.began) == (True, 1, claim.began)
    last = rows_of(house.database, sa.select(events).order_by(events.c.seq.desc()).limit(1))[0]
    assert last["event"] == "takeover"


async def test_only_the_wanted_attempt_can_be_taken(house: House) -> None:
    """An old job of the queue, a future one and one of a task that is gone are nobody's."""
    task = house.tasks.add(NewTask("x", agent="instant"))
    hand_over(house)
    claims = claims_of(house, "one")
    assert await claims.take(task.task_id, 0, is_dead=dead) is None
    assert await claims.take(task.task_id, 2, is_dead=dead) is None
    assert await claims.take(task.task_id[:-1], 1, is_dead=dead) is None
    assert await claims.take("nowhere", 1, is_dead=dead) is None


async def test_who_lost_the_claim_changes_nothing(house: House) -> None:
    """After a takeover the zombie's note, park and end are refused and leave every table as it was."""
    zombie, claim = await begun(house)
    assert await claims_of(house, "two").take(claim.task.task_id, 1, is_dead=dead) is not None
    before = facts(house)
    with pytest.raises(LostClaimError):
        await zombie.note(claim, pid=1)
    with pytest.raises(LostClaimError):
        await zombie.park(claim, BROKEN, question="?")
    for end in (DONE, BROKEN):
        with pytest.raises(LostClaimError):
            await zombie.finish(claim, end, Work())
    assert facts(house) == before


async def test_an_end_is_written_once(house: House) -> None:
    """A second end of the same attempt is refused."""
    claims, claim = await begun(house)
    assert await claims.finish(claim, DONE, Work(branch="b", commit="c")) is TaskState.COMPLETED
    before = facts(house)
    with pytest.raises(LostClaimError):
        await claims.finish(claim, BROKEN, Work())
    assert facts(house) == before
    assert house.tasks.get(claim.task.task_id).error is None


async def test_an_end_after_the_row_was_deleted_is_refused(house: House) -> None:
    """Somebody removed the task meanwhile: there is nothing to write to."""
    claims, claim = await begun(house)
    with house.database.write() as connection:
        connection.execute(task_queue.delete())
    for end in (DONE, BROKEN):
        with pytest.raises(LostClaimError):
            await claims.finish(claim, end, Work())


async def test_retries_back_off_on_the_clock_and_stop_at_the_cap(house: House) -> None:
    """2 s, 4 s, then failed; nothing is handed over a moment too early."""
    clock = FakeClock()
    task = house.tasks.add(NewTask("x", agent="instant", max_retries=2))
    for attempt, wait in ((1, 2), (2, 4), (3, 0)):
        assert hand_over(house, clock) == [task.task_id]
        claims = claims_of(house, "one", clock)
        claim = await claims.take(task.task_id, attempt, is_dead=alive)
        assert claim is not None
        clock.forward(seconds=5)
        state = await claims.finish(claim, BROKEN, Work())
        assert state is (TaskState.RECOVERING if wait else TaskState.FAILED)
        clock.forward(seconds=wait - 0.5)
        assert hand_over(house, clock) == []
        clock.forward(seconds=0.5)
    shown = house.tasks.show(task.task_id)
    assert [row["duration_ms"] for row in shown.history] == [5000] * 3
    assert shown.task.error == "the network"


async def test_no_retry_after_the_deadline_or_a_cancel(house: House) -> None:
    """A failure that could be retried ends the task when its time is over or a person gave up."""
    clock = FakeClock()
    late = house.tasks.add(NewTask("x", agent="instant", deadline=clock.now() + timedelta(seconds=1)))
    stopped = house.tasks.add(NewTask("y", agent="instant"))
    hand_over(house, clock)
    claims = claims_of(house, "one", clock)
    got = [await claims.take(task.task_id, 1, is_dead=alive) for task in (late, stopped)]
    house.tasks.cancel(stopped.task_id, by="test")
    clock.forward(seconds=1)
    states = [await claims.finish(claim, BROKEN, Work()) for claim in got if claim is not None]
    assert states == [TaskState.FAILED, TaskState.CANCELLED]


@pytest.mark.parametrize("scope", ["all", "agent:instant", "session:s"])
async def test_a_paused_task_is_given_back_unbegun(house: House, scope: str) -> None:
    """A pause that comes between handover and claim holds; after resuming, the next attempt runs."""
    task = house.tasks.add(NewTask("x", agent="instant", session_id="s"))
    hand_over(house)
    clock = FakeClock()
    house.writer.transact(lambda c: set_paused(c, [scope], paused=True, by="t", now=clock.now()))
    claims = claims_of(house, "one")
    assert await claims.take(task.task_id, 1, is_dead=alive) is None
    assert hand_over(house) == []
    house.writer.transact(lambda c: set_paused(c, [scope], paused=False, by="t", now=clock.now()))
    assert hand_over(house) == [task.task_id]
    claim = await claims.take(task.task_id, 2, is_dead=alive)
    assert claim is not None
    assert house.tasks.show(task.task_id).history == ()


async def test_a_paused_scope_does_not_stop_a_takeover(house: House) -> None:
    """What had begun goes on to its end: pause is cooperative."""
    _, claim = await begun(house)
    house.writer.transact(lambda c: set_paused(c, ["all"], paused=True, by="t", now=FakeClock().now()))
    assert await claims_of(house, "two").take(claim.task.task_id, 1, is_dead=dead) is not None


async def test_the_place_of_work_survives_attempts_that_never_had_one(house: House) -> None:
    """Parked with a worktree, then interrupted before anything was written down: the third finds the worktree."""
    claims, claim = await begun(house)
    await claims.note(claim, worktree="/w", native_id="n", base_commit="b", identity="one")
    await claims.park(claim, AttemptEnd(Outcome.INTERRUPTED, "parked"), question="?")
    for attempt in (2, 3):
        with house.database.write() as connection:
            connection.execute(task_queue.update().values(status="recovering", owner=None))
        hand_over(house)
        again = await claims.take(claim.task.task_id, attempt, is_dead=alive)
        assert again is not None
        assert again.earlier is not None
        assert (again.earlier["worktree"], again.earlier["native_id"]) == ("/w", "n")
        assert again.identities == ("one",)
