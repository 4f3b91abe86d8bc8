"""The right to run an attempt: one holder, taken over only from the dead, and a zombie changes nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.agents.driver import AgentEvent, AttemptEnd, Delegation, Failure, Outcome
from proctor.engine.claims import Claim, Claims, LostClaimError, Work
from proctor.engine.controls import set_paused
from proctor.engine.dispatch import Capacity, dispatch
from proctor.engine.tasks import NewTask
from proctor.protocol.events import EventStatus
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
    done = house.writer.transact(lambda c: dispatch(c, Capacity({"instant": 99}), now, full=True))
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


async def test_a_cancel_that_comes_before_the_parking_is_not_forgotten(house: House) -> None:
    """Parked with a cancel in the row, the task would wait for an answer that nobody wants to give."""
    claims, claim = await begun(house)
    house.tasks.cancel(claim.task.task_id, by="somebody")
    assert not await claims.park(claim, AttemptEnd(Outcome.INTERRUPTED, "parked"), question="?")
    assert house.tasks.get(claim.task.task_id).owner == "one"
    ended = await claims.finish(claim, AttemptEnd(Outcome.CANCELLED, "cancelled on request"), Work())
    assert ended is TaskState.CANCELLED


async def test_who_asked_for_a_cancel_is_in_the_trace_once(house: House) -> None:
    """The end of a running task is written by Proctor; the wish for it is a person's."""
    _, claim = await begun(house)
    for _ in range(2):
        house.tasks.cancel(claim.task.task_id, by="somebody")
    query = sa.select(events.c.actor, events.c.actor_name).where(events.c.event == "note")
    with house.database.read() as connection:
        assert [tuple(row) for row in connection.execute(query)] == [("human", "somebody")]


def _handed_on(house: House, task_id: str) -> list[str]:
    found = house.tasks.list(status=["pending"])
    return sorted(task.description for task in found if task.context.get("delegated_from") == task_id)


async def _wish(house: House, claim: Claim, text: str) -> None:
    """What an agent's stream says of a delegation while it works, as the attempt writes it down."""
    event = AgentEvent("task", text, EventStatus.PENDING, details={"delegate_to": "a", "guidance": "g"})
    draft = event.draft(
        claim.task.trace_id or "", agent="a", task_id=claim.task.task_id, attempt=claim.attempt
    )
    await house.writer.append_async([draft])


async def test_a_delegation_of_before_the_takeover_is_not_lost(house: House) -> None:
    """The agent that goes on does not say again what it has handed on; the log knows it, each wish once."""
    first, claim = await begun(house)
    await first.note(claim, native_id="talk")
    await _wish(house, claim, "said before")
    await _wish(house, claim, "said twice")
    second = claims_of(house, "two")
    over = await second.take(claim.task.task_id, 1, is_dead=dead)
    assert over is not None
    assert over.taken_over
    await _wish(house, over, "said twice")
    wishes = (Delegation("a", "said twice", "g"), Delegation("a", "said after", "g"), Delegation("a", " "))
    await second.finish(over, AttemptEnd(Outcome.SUCCEEDED, "done", delegations=wishes), Work())
    assert _handed_on(house, claim.task.task_id) == ["said after", "said before", "said twice"]


async def test_only_success_hands_work_on(house: House) -> None:
    """An attempt that fails is tried again and says so again: handed on twice it would be done twice."""
    clock = FakeClock()
    claims, claim = await begun(house)
    await claims.note(claim, native_id="talk")
    await _wish(house, claim, "the rest")
    wish = (Delegation("a", "the rest", "g"),)
    await claims.finish(claim, replace(BROKEN, delegations=wish), Work())
    assert _handed_on(house, claim.task.task_id) == []
    clock.forward(hours=1)
    hand_over(house, clock)
    again = await claims.take(claim.task.task_id, 2, is_dead=alive)
    assert again is not None
    await claims.note(again, native_id="another talk")
    await claims.finish(again, AttemptEnd(Outcome.SUCCEEDED, "done", delegations=wish), Work())
    assert _handed_on(house, claim.task.task_id) == ["the rest"]


async def test_delegations_beyond_the_bound_are_named(house: House) -> None:
    """At most three are taken; what is left out is said, not dropped in silence."""
    claims, claim = await begun(house)
    wishes = tuple(Delegation("a", f"part {number}") for number in range(5))
    await claims.finish(claim, AttemptEnd(Outcome.SUCCEEDED, "done", delegations=wishes), Work())
    assert _handed_on(house, claim.task.task_id) == ["part 0", "part 1", "part 2"]
    query = sa.select(events.c.details).where(events.c.event == "note")
    with house.database.read() as connection:
        (said,) = [json.loads(text) for text in connection.execute(query).scalars()]
    assert (said["left"], said["count"]) == (["part 3", "part 4"], 2)


async def test_a_retry_lifts_a_deadline_that_has_passed(house: House) -> None:
    """Whoever tries again wants it nevertheless; a deadline that is still ahead stays."""
    ahead = datetime.now(UTC) + timedelta(hours=1)
    late, early = (
        house.tasks.add(NewTask("x", agent="a", deadline=moment))
        for moment in (datetime.now(UTC) - timedelta(seconds=1), ahead)
    )
    for task in (late, early):
        house.tasks.cancel(task.task_id, by="t")
    assert house.tasks.retry(late.task_id, by="t").deadline is None
    assert house.tasks.retry(early.task_id, by="t").deadline == ahead
