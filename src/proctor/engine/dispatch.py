"""From ready to handed over: which tasks may run now, with which agent, as which attempt.

Level-triggered: everything is computed from the rows as they are, so a missed wake-up, a crash or a row that another
program put in heals itself at the next look. One transaction decides; handing the jobs to the queue afterwards may be
repeated, because the same attempt has the same id there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from proctor.engine import rows
from proctor.engine.foreign import defect_of
from proctor.engine.tasks import Task, draft_of, void_questions
from proctor.protocol.events import Draft, EventKind, EventStatus
from proctor.protocol.ids import new_id
from proctor.protocol.states import TASK, TaskState
from proctor.store.tables import approvals, controls, task_queue

__all__ = [
    "Capacity",
    "Handover",
    "ReadyJob",
    "Waiting",
    "backoff",
    "dispatch",
    "waiting",
    "workspaces_that_wait",
]

BATCH = 500
MAX_SCAN = 10_000
BACKOFF_BASE = 2.0
BACKOFF_CAP = 300.0
# How the reason of a block begins that goes away by itself; every other one waits for a person.
DEPENDS = "it depends on "


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the dispatcher knows of the agents: who can work, how many at once, and what they are good at."""

    slots: Mapping[str, int]
    """Agent → how many attempts it may run at once; agents that are offline are not in it."""
    skills: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that nobody has been given."""

    task: Task
    defect: str | None
    """Why it can never run, when another program put it in so."""


@dataclass(frozen=True, slots=True)
class ReadyJob:
    """An attempt to hand to the queue."""

    task_id: str
    attempt: int
    priority: int


@dataclass(frozen=True, slots=True)
class Handover:
    """What one look decided."""

    jobs: tuple[ReadyJob, ...]
    changed: int


def backoff(retry: int) -> timedelta:
    """How long to wait before the nth retry: 2, 4, 8 … seconds, at most five minutes."""
    return timedelta(seconds=min(BACKOFF_BASE * 2 ** max(0, retry - 1), BACKOFF_CAP))


def waiting(
    connection: sa.Connection,
    now: datetime,
    *,
    agents: Sequence[str],
    full: bool,
    limit: int,
    after: Task | None = None,
) -> list[Waiting]:
    """Tasks that nobody has been given: new, retried, put in by SQL or answered; `full` adds the blocked ones.

    The order is priority, age, id; `after` is where the page before ended.
    """
    given = task_queue.c.assigned_to_agent
    able = sa.or_(given.is_(None), sa.func.lower(given).in_([agent.lower() for agent in agents]))
    query = _COULD_RUN[full]
    if after is not None:
        query = query.where(_behind(after))
    page = (query if full else query.where(able)).limit(limit)
    found = connection.execute(page, {"b_now": now}).mappings()
    return [Waiting(Task.of(row), defect_of(row)) for row in found]


def _behind(task: Task) -> sa.ColumnElement[bool]:
    c = task_queue.c
    later = sa.or_(
        c.created_at > task.created_at, sa.and_(c.created_at == task.created_at, c.task_id > task.task_id)
    )
    return sa.or_(c.priority < task.priority, sa.and_(c.priority == task.priority, later))


def workspaces_that_wait(connection: sa.Connection, now: datetime, *, full: bool) -> list[str | None]:
    """Whose tasks a look must consider: asked twice a second, so built once."""
    return list(connection.execute(_WORKSPACES[full], {"b_now": now}).scalars())


def _could_run(*, full: bool) -> sa.ColumnElement[bool]:
    """Rows that a look must consider."""
    now: sa.BindParameter[datetime] = sa.bindparam("b_now", type_=task_queue.c.not_before.type)
    wanted = [
        TaskState.PENDING,
        TaskState.ASSIGNED,
        TaskState.RECOVERING,
        *([TaskState.BLOCKED] if full else []),
    ]
    answered = sa.exists().where(approvals.c.task_id == task_queue.c.task_id, approvals.c.status != "pending")
    late = task_queue.c.deadline <= now
    ready = sa.or_(
        task_queue.c.status.in_([state.value for state in wanted]),
        sa.and_(task_queue.c.status == TaskState.AWAITING_APPROVAL.value, sa.or_(answered, late)),
    )
    due = sa.or_(task_queue.c.not_before.is_(None), task_queue.c.not_before <= now, late)
    return sa.and_(ready, due, task_queue.c.queued_at.is_(None), task_queue.c.owner.is_(None))


_ORDER = (task_queue.c.priority.desc(), task_queue.c.created_at, task_queue.c.task_id)
_COULD_RUN = {
    full: task_queue.select().where(_could_run(full=full)).order_by(*_ORDER) for full in (False, True)
}
_WORKSPACES = {
    full: sa.select(task_queue.c.workspace).where(_could_run(full=full)).distinct().limit(BATCH)
    for full in (False, True)
}


def dispatch(
    connection: sa.Connection, capacity: Capacity, now: datetime, *, full: bool
) -> tuple[Handover, list[Draft]]:
    """Decide inside the caller's transaction; the caller writes the events with it.

    A quick look stops when no agent has room; a full one also goes over deadlines and blocked tasks.
    """
    look = _Look(connection, capacity, now)
    size, seen, last = min(BATCH, max(50, 2 * look.room())), 0, None
    while seen < MAX_SCAN and (full or look.room() > 0):
        agents = [agent for agent, room in look.free.items() if room > 0]
        found = waiting(connection, now, agents=agents, full=full, limit=size, after=last)
        look.page(found)
        seen += len(found)
        if len(found) < size:
            break
        last = found[-1].task
    return Handover(tuple(look.jobs), look.changed), look.drafts


class _Look:
    """One pass over the waiting tasks, with what it needs fetched in a few queries."""

    def __init__(self, connection: sa.Connection, capacity: Capacity, now: datetime) -> None:
        self.connection = connection
        self.capacity = capacity
        self.now = now
        self.jobs: list[ReadyJob] = []
        self.handed: list[dict[str, Any]] = []
        self.drafts: list[Draft] = []
        self.changed = 0
        self.paused = _paused(connection)
        self.states: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        self.free = _free_slots(connection, capacity)

    def room(self) -> int:
        """How many attempts could be handed over now."""
        return sum(room for room in self.free.values() if room > 0)

    def page(self, found: Sequence[Waiting]) -> None:
        """Consider some tasks; what they depend on and wait for is fetched for all at once."""
        tasks = [one.task for one in found]
        parked = [task.task_id for task in tasks if task.status is TaskState.AWAITING_APPROVAL]
        self.states = _states(self.connection, {name for task in tasks for name in task.depends_on})
        self.answers = _answers(self.connection, parked)
        for one in found:
            self.consider(one.task, one.defect)
        if self.handed:
            self.connection.execute(rows.HAND_OVER, self.handed)
            self.changed += len(self.handed)
            self.handed = []

    def consider(self, task: Task, defect: str | None) -> None:
        """Move one task on, or leave it where it is."""
        if defect is not None:
            self._end(task, TaskState.FAILED, "task_failed", f"another program put it in so: {defect}")
        elif task.deadline is not None and task.deadline <= self.now:
            self._end(task, TaskState.FAILED, "task_failed", "the deadline passed before it could run")
        elif task.not_before is not None and task.not_before > self.now:
            return
        elif task.status is TaskState.AWAITING_APPROVAL:
            self._answered(task)
        elif broken := self._broken_dependency(task):
            self._block(task, f"{DEPENDS}{broken}, which did not complete")
        elif self._dependencies_done(task):
            self._assign(task)

    def _broken_dependency(self, task: Task) -> str | None:
        ended_badly = {None, TaskState.FAILED.value, TaskState.CANCELLED.value}
        return next((name for name in task.depends_on if self.states.get(name) in ended_badly), None)

    def _dependencies_done(self, task: Task) -> bool:
        done = all(self.states[name] == TaskState.COMPLETED.value for name in task.depends_on)
        # A task blocked for another reason than its dependencies waits for a person.
        return done and (task.status is not TaskState.BLOCKED or (task.error or "").startswith(DEPENDS))

    def _answered(self, task: Task) -> None:
        answer = self.answers.get(task.task_id)
        if answer == "timeout":
            self._block(task, "the approval expired without an answer; `proctor tasks retry` asks again")
        elif answer in {"approved", "rejected"}:
            self._assign(task)

    def _assign(self, task: Task) -> None:
        if self.paused & {"all", f"session:{task.session_id}", f"agent:{task.agent}"}:
            return
        agent = self._named(task.agent) or self._route(task)
        if agent is None or self.free.get(agent, 0) <= 0 or f"agent:{agent}" in self.paused:
            return
        self.free[agent] -= 1
        attempt = task.attempt + 1
        trace_id = task.trace_id or new_id("trace")
        if task.status is not TaskState.ASSIGNED:
            TASK.step(task.status, TaskState.ASSIGNED)
        change = {"b_task": task.task_id, "b_attempt": attempt, "b_agent": agent, "b_trace": trace_id}
        self.handed.append({**change, "b_now": self.now})
        self.jobs.append(ReadyJob(task.task_id, attempt, task.priority))
        if task.agent is None:
            self.drafts.append(self._routing(task, trace_id, agent))
        event = "task_resumed" if task.status is TaskState.AWAITING_APPROVAL else "task_assigned"
        self.drafts.append(
            draft_of(
                task.task_id,
                trace_id,
                event,
                attempt=attempt,
                session_id=task.session_id,
                details={"agent": agent},
            )
        )

    def _named(self, agent: str | None) -> str | None:
        """Agents are found whatever the case of their name, also in rows that others put in."""
        if agent is None or agent in self.capacity.slots:
            return agent
        return next((name for name in self.capacity.slots if name.casefold() == agent.casefold()), agent)

    def _route(self, task: Task) -> str | None:
        """Choose an agent: skilled in this type first, then the one with most room; equal inputs, equal choice."""
        free = [agent for agent, room in self.free.items() if room > 0]
        skilled = [agent for agent in free if task.task_type in self.capacity.skills.get(agent, frozenset())]
        order = list(self.capacity.slots)
        return min(skilled or free, key=lambda agent: (-self.free[agent], order.index(agent)), default=None)

    def _routing(self, task: Task, trace_id: str, agent: str) -> Draft:
        alternatives = sorted(set(self.capacity.slots) - {agent})
        details = {
            "selected": agent,
            "reason": f"free and able to do {task.task_type!r}",
            "alternatives": alternatives,
        }
        return draft_of(
            task.task_id,
            trace_id,
            "route_decision",
            kind=EventKind.CANONICAL,
            session_id=task.session_id,
            details=details,
        )

    def _block(self, task: Task, reason: str) -> None:
        if task.status is TaskState.BLOCKED:
            return
        self._set(task, TaskState.BLOCKED, error_log=reason)
        self.drafts.append(self._ending(task, "task_parked", EventStatus.WARNING, reason))

    def _end(self, task: Task, state: TaskState, event: str, reason: str) -> None:
        void_questions(self.connection, task.task_id)
        self._set(task, state, error_log=reason, completed_at=self.now)
        self.drafts.append(self._ending(task, event, EventStatus.ERROR, reason))

    def _ending(self, task: Task, event: str, status: EventStatus, reason: str) -> Draft:
        return draft_of(
            task.task_id,
            task.trace_id or task.task_id,
            event,
            status=status,
            session_id=task.session_id,
            details={"reason": reason},
        )

    def _set(self, task: Task, target: TaskState, **values: Any) -> None:
        """Change the row we read; a second dispatcher waits for our lock and then reads anew."""
        if task.status is not target:
            TASK.step(task.status, target)
        self.connection.execute(
            task_queue.update()
            .where(task_queue.c.task_id == task.task_id)
            .values(status=target.value, **values)
        )
        self.changed += 1


def _paused(connection: sa.Connection) -> set[str]:
    return set(connection.execute(sa.select(controls.c.scope).where(controls.c.paused)).scalars())


def _states(connection: sa.Connection, names: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    ordered = sorted(names)
    for start in range(0, len(ordered), BATCH):
        part = ordered[start : start + BATCH]
        query = sa.select(task_queue.c.task_id, task_queue.c.status).where(task_queue.c.task_id.in_(part))
        found.update({row.task_id: row.status for row in connection.execute(query)})
    return found


def _answers(connection: sa.Connection, task_ids: Sequence[str]) -> dict[str, str]:
    """The newest approval of each task, as far as it is no longer pending."""
    if not task_ids:
        return {}
    query = (
        sa.select(approvals.c.task_id, approvals.c.status)
        .where(approvals.c.task_id.in_(task_ids))
        .order_by(approvals.c.requested_at)
    )
    newest = {row.task_id: row.status for row in connection.execute(query)}
    return {task_id: status for task_id, status in newest.items() if status != "pending"}


def _free_slots(connection: sa.Connection, capacity: Capacity) -> dict[str, int]:
    """Room per agent: what it may run less what it was given and has not ended."""
    held = sa.or_(task_queue.c.queued_at.is_not(None), task_queue.c.owner.is_not(None))
    given = [TaskState.ASSIGNED.value, TaskState.IN_PROGRESS.value, TaskState.VERIFYING.value]
    query = (
        sa.select(task_queue.c.assigned_to_agent, sa.func.count())
        .where(task_queue.c.status.in_(given), held)
        .group_by(task_queue.c.assigned_to_agent)
    )
    busy: dict[str, int] = {name: count for name, count in connection.execute(query) if name}
    return {agent: slots - busy.get(agent, 0) for agent, slots in capacity.slots.items()}
