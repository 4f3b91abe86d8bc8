"""What may run now: properties over random queues, and each reason to wait by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.engine import dispatch as module
from proctor.engine.dispatch import Capacity, backoff, dispatch
from proctor.gate.approvals import expire_approvals
from proctor.protocol.states import TASK, TaskState
from proctor.store.database import Database
from proctor.store.tables import approvals, controls, task_queue
from tests.support.rows import NOON

AGENTS = ("a", "b", "c")


class _UndoError(Exception):
    """Take back what an example wrote."""


@contextmanager
def undone(database: Database) -> Iterator[sa.Connection]:
    """A transaction that never happened."""
    try:
        with database.write() as connection:
            yield connection
            raise _UndoError
    except _UndoError:
        pass


@dataclass(frozen=True)
class Row:
    """One task of a random queue."""

    status: str
    agent: str | None
    priority: int
    depends_on: tuple[int, ...]
    deadline: int | None
    not_before: int | None
    session: str | None
    held: bool


def rows(size: int) -> st.SearchStrategy[list[Row]]:
    """Queues whose tasks depend on earlier ones, in any state."""

    def row(number: int) -> st.SearchStrategy[Row]:
        earlier = st.lists(st.integers(0, max(0, number - 1)), max_size=3 if number else 0, unique=True)
        moments = st.none() | st.integers(-3, 3)
        return st.builds(
            Row,
            status=st.sampled_from([state.value for state in TaskState]),
            agent=st.none() | st.sampled_from([*AGENTS, "offline"]),
            priority=st.integers(1, 10),
            depends_on=earlier.map(tuple),
            deadline=moments,
            not_before=moments,
            session=st.none() | st.sampled_from(["s", "t"]),
            held=st.booleans(),
        )

    return st.integers(0, size).flatmap(lambda n: st.tuples(*(row(i) for i in range(n))).map(list))


def _at(hours: int | None) -> datetime | None:
    return None if hours is None else NOON + timedelta(hours=hours, minutes=1)


def _insert(connection: sa.Connection, queue: list[Row]) -> None:
    for number, row in enumerate(queue):
        given_out = row.held and row.status in {"assigned", "in_progress", "verifying"} and row.agent
        connection.execute(
            task_queue.insert().values(
                task_id=f"t{number:03}",
                description="d",
                status=row.status,
                assigned_to_agent=row.agent,
                priority=row.priority,
                depends_on_task_ids=[f"t{other:03}" for other in row.depends_on],
                deadline=_at(row.deadline),
                not_before=_at(row.not_before),
                session_id=row.session,
                created_at=NOON - timedelta(days=1) + timedelta(seconds=number),
                owner="exec-x" if given_out and row.status != "assigned" else None,
                queued_at=NOON if given_out and row.status == "assigned" else None,
            )
        )


def _all(connection: sa.Connection) -> dict[str, Any]:
    return {row.task_id: row for row in connection.execute(task_queue.select())}


def _pause(connection: sa.Connection, scopes: set[str]) -> None:
    for scope in scopes:
        connection.execute(
            controls.insert().values(scope=scope, paused=True, changed_by="x", changed_at=NOON)
        )


scopes = st.sets(st.sampled_from(["all", "session:s", "agent:a", "agent:b"]), max_size=2)
slots = st.fixed_dictionaries({agent: st.integers(0, 3) for agent in AGENTS})


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(queue=rows(14), paused=scopes, room=slots, full=st.booleans())
def test_only_what_may_run_is_handed_over(
    sqlite_database: Database, queue: list[Row], paused: set[str], room: dict[str, int], full: bool
) -> None:
    """Never with unmet dependencies, over an agent's slots, paused, too early, too late, held, ended or twice."""
    with undone(sqlite_database) as connection:
        _insert(connection, queue)
        _pause(connection, paused)
        before = _all(connection)
        handover, drafts = dispatch(connection, Capacity(room), NOON, full=full)
        after = _all(connection)
        again, _ = dispatch(connection, Capacity(room), NOON, full=full)
    jobs = {job.task_id: job for job in handover.jobs}
    assert len(jobs) == len(handover.jobs)
    assert not {job.task_id for job in again.jobs} & set(jobs)
    for name, job in jobs.items():
        row, now = before[name], after[name]
        assert TaskState(row.status) not in TASK.terminal
        assert row.owner is None
        assert row.queued_at is None
        assert all(before[other].status == "completed" for other in row.depends_on_task_ids)
        assert row.deadline is None or row.deadline > NOON
        assert row.not_before is None or row.not_before <= NOON
        assert not paused & {"all", f"session:{row.session_id}", f"agent:{now.assigned_to_agent}"}
        assert (now.status, now.attempt, job.attempt) == ("assigned", row.attempt + 1, row.attempt + 1)
        assert row.assigned_to_agent in {None, now.assigned_to_agent}
    held = Counter(row.assigned_to_agent for row in after.values() if row.owner or row.queued_at)
    was = Counter(row.assigned_to_agent for row in before.values() if row.owner or row.queued_at)
    assert all(held[agent] <= max(room[agent], was[agent]) for agent in AGENTS)
    assert {draft.task_id for draft in drafts} >= set(jobs)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(queue=rows(14), room=slots)
def test_nobody_waits_while_an_agent_is_free_and_priority_goes_first(
    sqlite_database: Database, queue: list[Row], room: dict[str, int]
) -> None:
    """After a full look no task that could run is left beside a free slot, and none went before a more urgent one."""
    with undone(sqlite_database) as connection:
        _insert(connection, queue)
        before = _all(connection)
        handover, _ = dispatch(connection, Capacity(room), NOON, full=True)
        after = _all(connection)
    jobs = {job.task_id for job in handover.jobs}
    busy = Counter(row.assigned_to_agent for row in after.values() if row.owner or row.queued_at)
    free = {agent for agent in AGENTS if busy[agent] < room[agent]}
    able = {
        name
        for name, row in before.items()
        if row.status in {"pending", "assigned", "recovering"}
        and row.owner is None
        and row.queued_at is None
        and (row.deadline is None or row.deadline > NOON)
        and (row.not_before is None or row.not_before <= NOON)
        and all(before[other].status == "completed" for other in row.depends_on_task_ids)
    }
    for name in able - jobs:
        wanted = before[name].assigned_to_agent
        assert wanted not in free
        assert wanted is not None or not free
        if wanted in AGENTS:
            same = [before[job] for job in jobs if before[job].assigned_to_agent == wanted]
            assert all(row.priority >= before[name].priority for row in same)


def _one(connection: sa.Connection, name: str = "t", **values: Any) -> None:
    connection.execute(
        task_queue.insert().values(
            **{"task_id": name, "description": "d", "assigned_to_agent": "a", **values}
        )
    )


def _status(connection: sa.Connection, name: str = "t") -> tuple[str, str | None]:
    query = sa.select(task_queue.c.status, task_queue.c.error_log).where(task_queue.c.task_id == name)
    return tuple(connection.execute(query).one())


ROOM = Capacity({"a": 5})


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_broken_dependency_blocks_and_a_mended_one_unblocks(database: Database, end: str) -> None:
    """Blocked with the name of what broke; assigned by a full look once it completed."""
    with undone(database) as connection:
        _one(connection, "dep", status=end)
        _one(connection, depends_on_task_ids=["dep"])
        dispatch(connection, ROOM, NOON, full=False)
        status, reason = _status(connection)
        assert (status, "dep" in (reason or "")) == ("blocked", True)
        assert dispatch(connection, ROOM, NOON, full=True)[0].jobs == ()
        connection.execute(
            task_queue.update().where(task_queue.c.task_id == "dep").values(status="completed")
        )
        assert [job.task_id for job in dispatch(connection, ROOM, NOON, full=True)[0].jobs] == ["t"]
        assert _status(connection) == ("assigned", None)


def test_a_missing_dependency_blocks(database: Database) -> None:
    """A row put in by SQL may name what does not exist: nobody runs it."""
    with undone(database) as connection:
        _one(connection, depends_on_task_ids=["nowhere"])
        assert dispatch(connection, ROOM, NOON, full=True)[0].jobs == ()
        assert _status(connection)[0] == "blocked"


def _approval(connection: sa.Connection, status: str, expires: datetime) -> None:
    connection.execute(
        approvals.insert().values(
            approval_id=f"appr-{status}",
            trace_id="trace",
            task_id="t",
            action="x",
            tool_name="run",
            risk_level="high",
            status=status,
            requested_at=NOON,
            expires_at=expires,
        )
    )


@pytest.mark.parametrize("dependencies", [[], ["dep"]])
def test_an_expired_approval_blocks_until_a_person_comes(database: Database, dependencies: list[str]) -> None:
    """Neither run nor denied, also when its dependencies are all done."""
    with undone(database) as connection:
        _one(connection, "dep", status="completed")
        _one(connection, status="awaiting_approval", attempt=1, depends_on_task_ids=dependencies)
        _approval(connection, "pending", NOON + timedelta(hours=24))
        assert expire_approvals(connection, NOON + timedelta(hours=23))[0] == 0
        late = NOON + timedelta(hours=24)
        count, drafts = expire_approvals(connection, late)
        assert (count, [draft.event for draft in drafts]) == (1, ["approval_timeout"])
        for _ in range(3):
            assert dispatch(connection, ROOM, late, full=True)[0].jobs == ()
        status, reason = _status(connection)
        assert (status, "expired" in (reason or "")) == ("blocked", True)


@pytest.mark.parametrize("answer", ["approved", "rejected"])
def test_an_answered_task_goes_on_as_a_new_attempt(database: Database, answer: str) -> None:
    """A yes and a no both go to the agent; a quick look is enough."""
    with undone(database) as connection:
        _one(connection, status="awaiting_approval", attempt=1)
        _approval(connection, "pending", NOON + timedelta(hours=24))
        assert dispatch(connection, ROOM, NOON, full=False)[0].jobs == ()
        connection.execute(approvals.update().values(status=answer))
        handover, drafts = dispatch(connection, ROOM, NOON, full=False)
        assert [job.attempt for job in handover.jobs] == [2]
        assert [draft.event for draft in drafts] == ["task_resumed"]


def test_a_deadline_ends_what_waits_for_a_person_or_a_retry(database: Database) -> None:
    """Neither a question that nobody answers nor a long back-off outlives the deadline; the question is taken back."""
    soon, later = NOON + timedelta(minutes=1), NOON + timedelta(hours=1)
    with undone(database) as connection:
        _one(connection, status="awaiting_approval", deadline=soon)
        _approval(connection, "pending", later)
        _one(connection, "again", status="recovering", deadline=soon, not_before=later)
        assert dispatch(connection, ROOM, NOON, full=True)[0].changed == 0
        dispatch(connection, ROOM, soon, full=False)
        assert [_status(connection, name)[0] for name in ("t", "again")] == ["failed", "failed"]
        assert connection.execute(sa.select(approvals.c.status)).scalars().all() == ["void"]


def test_an_agent_is_found_whatever_the_case_of_its_name(database: Database) -> None:
    """A row put in by SQL may spell it otherwise; it is handed over under the agent's own name, also in a quick look."""
    with undone(database) as connection:
        _one(connection, assigned_to_agent="fOrGe")
        jobs = dispatch(connection, Capacity({"a": 1, "FORGE": 1}), NOON, full=False)[0].jobs
        assert [job.task_id for job in jobs] == ["t"]
        assert connection.execute(sa.select(task_queue.c.assigned_to_agent)).scalar() == "FORGE"


def test_a_task_without_agent_goes_to_a_skilled_one_and_says_why(database: Database) -> None:
    """The choice is an event with the alternatives."""
    capacity = Capacity({"a": 5, "b": 1}, {"b": frozenset({"review"})})
    with undone(database) as connection:
        _one(connection, assigned_to_agent=None, task_type="review")
        _, drafts = dispatch(connection, capacity, NOON, full=False)
        decision = next(draft for draft in drafts if draft.event == "route_decision")
        assert (decision.details["selected"], decision.details["alternatives"]) == ("b", ["a"])


def test_a_long_queue_is_paged_without_gaps(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of a busy agent in front do not hide those of a free one behind them, whatever the page's size."""
    monkeypatch.setattr(module, "BATCH", 7)
    with undone(database) as connection:
        for number in range(60):
            _one(connection, f"t{number:02}", assigned_to_agent="a" if number < 50 else "b", created_at=NOON)
        handover, _ = dispatch(connection, Capacity({"a": 3, "b": 9}), NOON, full=True)
        assert [job.task_id for job in handover.jobs] == [
            "t00",
            "t01",
            "t02",
            *(f"t{number}" for number in range(50, 59)),
        ]


def test_back_off_doubles_and_ends_at_five_minutes() -> None:
    """2, 4, 8 … 300."""
    waits = [backoff(retry).total_seconds() for retry in range(1, 12)]
    assert waits[:4] == [2, 4, 8, 16]
    assert waits == sorted(waits)
    assert waits[-1] == 300
