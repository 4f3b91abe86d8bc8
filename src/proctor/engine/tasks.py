"""The task queue as people use it: add, list, show, cancel, retry. Every change and its event are one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from proctor.engine.foreign import Reading
from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.events import ActorKind, Draft, EventStatus
from proctor.protocol.ids import TaskId, new_id
from proctor.protocol.ports import Clock, SystemClock
from proctor.protocol.states import TASK, TaskState
from proctor.store.database import Database
from proctor.store.tables import approvals, attempts, task_history, task_queue
from proctor.trace.writer import TraceWriter

__all__ = [
    "MAX_DESCRIPTION",
    "NewTask",
    "Task",
    "TaskDetail",
    "Tasks",
    "draft_of",
    "find_task",
    "insert_task",
    "void_questions",
]

MAX_DESCRIPTION = 100_000
MAX_TYPE = 50
MAX_CONTEXT = 1_000_000
MAX_LIST = 1_000
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
OPEN = tuple(state.value for state in TaskState if state not in TASK.terminal)


@dataclass(frozen=True, slots=True)
class NewTask:
    """What somebody wants done."""

    description: str
    task_type: str = "task"
    priority: int = 5
    agent: str | None = None
    file_paths: Sequence[str] = ()
    depends_on: Sequence[str] = ()
    context: Mapping[str, Any] = field(default_factory=dict)
    deadline: datetime | None = None
    max_retries: int = 2
    workspace: str | None = None
    session_id: str | None = None
    trace_id: str | None = None
    created_by: str = "human"

    def check(self) -> None:
        """Refuse what could never run, with the cure."""
        if not self.description.strip():
            raise UsageError(message="A task needs a description: say what is to be done.")
        if len(self.description) > MAX_DESCRIPTION:
            raise UsageError(
                message=f"The description is longer than {MAX_DESCRIPTION:,} characters; put it in a file."
            )
        if "\0" in self.description + self.task_type:
            raise UsageError(message="A task's texts cannot hold a zero character.")
        if not 1 <= len(self.task_type) <= MAX_TYPE:
            raise UsageError(message=f"The kind of work must have 1 to {MAX_TYPE} characters.")
        self._check_context()
        if not 1 <= self.priority <= 10:
            raise UsageError(message=f"Priority {self.priority} is not between 1 (low) and 10 (critical).")
        if not 0 <= self.max_retries <= 100:
            raise UsageError(message=f"{self.max_retries} retries are not between 0 and 100.")
        if self.deadline is not None and self.deadline.tzinfo is None:
            raise UsageError(message="A deadline needs a time zone, for example 2027-01-31T12:00:00+00:00.")

    def _check_context(self) -> None:
        """It must be JSON that both databases keep."""
        try:
            size = len(json.dumps(dict(self.context), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(message=f"The context cannot be kept as JSON: {error}.") from error
        if size > MAX_CONTEXT:
            raise UsageError(
                message=f"The context is longer than {MAX_CONTEXT:,} characters; put it in a file."
            )


@dataclass(frozen=True, slots=True)
class Task:
    """One row of the queue."""

    task_id: TaskId
    task_type: str
    priority: int
    status: TaskState
    description: str
    agent: str | None
    created_by: str
    created_at: datetime
    assigned_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    deadline: datetime | None
    attempt: int
    retry_count: int
    max_retries: int
    not_before: datetime | None
    owner: str | None
    cancel_requested: bool
    depends_on: tuple[str, ...]
    file_paths: tuple[str, ...]
    context: Mapping[str, Any]
    result: Mapping[str, Any] | None
    error: str | None
    trace_id: str | None
    session_id: str | None
    workspace: str | None

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> Task:
        """Read a row; what another program put in that cannot be read is left out (`foreign.defect_of` names it)."""
        read = Reading(row)
        return cls(
            task_id=TaskId(row["task_id"]),
            task_type=row["task_type"],
            priority=read.number("priority"),
            status=TaskState(row["status"]),
            description=read.text("description"),
            agent=row["assigned_to_agent"],
            created_by=row["created_by"],
            created_at=read.moment("created_at") or LONG_AGO,
            assigned_at=read.moment("assigned_at"),
            started_at=read.moment("started_at"),
            completed_at=read.moment("completed_at"),
            deadline=read.moment("deadline"),
            attempt=read.number("attempt"),
            retry_count=read.number("retry_count"),
            max_retries=read.number("max_retries"),
            not_before=read.moment("not_before"),
            owner=row["owner"],
            cancel_requested=row["cancel_requested"],
            depends_on=read.texts("depends_on_task_ids"),
            file_paths=read.texts("file_paths"),
            context=read.facts("context") or {},
            result=read.facts("result"),
            error=row["error_log"],
            trace_id=row["trace_id"],
            session_id=row["session_id"],
            workspace=row["workspace"],
        )


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """A task with everything that was tried."""

    task: Task
    attempts: tuple[Mapping[str, Any], ...]
    history: tuple[Mapping[str, Any], ...]


def draft_of(task_id: str, trace_id: str, event: str, **more: Any) -> Draft:
    """An event of a task, by Proctor unless said otherwise."""
    return Draft(trace_id=trace_id, event=event, task_id=task_id, **more)


def insert_task(connection: sa.Connection, new: NewTask, actor: ActorKind) -> tuple[str, list[Draft]]:
    """Put a task into the queue inside the caller's transaction; its dependencies must exist."""
    new.check()
    task_id = new_id("task")
    trace_id = new.trace_id or new_id("trace")
    depends_on = [find_task(connection, name).task_id for name in new.depends_on]
    connection.execute(
        task_queue.insert().values(
            task_id=task_id,
            task_type=new.task_type,
            priority=new.priority,
            status=TaskState.PENDING.value,
            created_by=new.created_by,
            assigned_to_agent=new.agent,
            file_paths=list(new.file_paths),
            depends_on_task_ids=depends_on,
            description=new.description,
            context=dict(new.context),
            deadline=new.deadline,
            max_retries=new.max_retries,
            trace_id=trace_id,
            session_id=new.session_id,
            workspace=new.workspace,
        )
    )
    details = {"description": new.description[:500], "priority": new.priority, "depends_on": depends_on}
    draft = draft_of(task_id, trace_id, "task_added", actor=actor, actor_name=new.created_by, details=details)
    return task_id, [draft]


def find_task(connection: sa.Connection, name: str, *, lock: bool = False) -> Task:
    """Find a task by its id or a unique beginning of it; `lock` keeps others from changing it meanwhile."""
    query = task_queue.select().where(task_queue.c.task_id == name)
    exact = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if exact is not None:
        return Task.of(exact)
    query = task_queue.select().where(task_queue.c.task_id.startswith(name, autoescape=True)).limit(2)
    rows = connection.execute(query).mappings().all() if name else []
    if len(rows) == 1:
        return find_task(connection, rows[0]["task_id"], lock=lock)
    cure = "More than one begins so; give more of it." if rows else "See `proctor tasks list --all`."
    raise NotFoundError(kind="task", name=name, cure=cure)


def void_questions(connection: sa.Connection, task_id: str, *, of_agent: bool = False) -> None:
    """Take back the questions of a task that ends without an answer, so that nobody is asked for nothing.

    `of_agent`: only those that its agent asked, not those of calls that the gate may still make.
    """
    mine = sa.and_(approvals.c.task_id == task_id, approvals.c.status == "pending")
    if of_agent:
        mine = sa.and_(mine, approvals.c.call_id == "")
    connection.execute(approvals.update().where(mine).values(status="void"))


class Tasks:
    """The queue's front door for people and surfaces; it never executes anything."""

    def __init__(self, database: Database, writer: TraceWriter, clock: Clock | None = None) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock or SystemClock()

    def add(self, new: NewTask, *, actor: ActorKind = ActorKind.HUMAN) -> Task:
        """Put a task into the queue; returning means it is on disk."""
        task_id = self._writer.transact(lambda connection: insert_task(connection, new, actor))
        return self.get(task_id)

    def add_many(self, new: Sequence[NewTask], *, actor: ActorKind = ActorKind.HUMAN) -> list[str]:
        """Put many tasks in with one transaction: all or none."""

        def insert(connection: sa.Connection) -> tuple[list[str], list[Draft]]:
            made = [insert_task(connection, one, actor) for one in new]
            return [task_id for task_id, _ in made], [draft for _, drafts in made for draft in drafts]

        return self._writer.transact(insert)

    def get(self, name: str) -> Task:
        """One task by id or unique prefix."""
        with self._database.read() as connection:
            return find_task(connection, name)

    def list(self, *, status: Sequence[str] = OPEN, agent: str | None = None, limit: int = 100) -> list[Task]:
        """Tasks, the newest first."""
        query = task_queue.select().where(task_queue.c.status.in_(status))
        if agent is not None:
            query = query.where(task_queue.c.assigned_to_agent == agent)
        query = query.order_by(task_queue.c.created_at.desc()).limit(min(limit, MAX_LIST + 1))
        with self._database.read() as connection:
            return [Task.of(row) for row in connection.execute(query).mappings()]

    def show(self, name: str) -> TaskDetail:
        """A task with its attempts and history."""
        with self._database.read() as connection:
            task = find_task(connection, name)
            tries = attempts.select().where(attempts.c.task_id == task.task_id).order_by(attempts.c.attempt)
            past = task_history.select().where(task_history.c.task_id == task.task_id)
            past = past.order_by(task_history.c.created_at)
            return TaskDetail(
                task,
                tuple(_shown(row) for row in connection.execute(tries.limit(MAX_LIST)).mappings()),
                tuple(dict(row) for row in connection.execute(past.limit(MAX_LIST)).mappings()),
            )

    def cancel(self, name: str, *, by: str, actor: ActorKind = ActorKind.HUMAN) -> Task:
        """Cancel at once what nobody runs; ask the executor to stop what runs."""

        def change(connection: sa.Connection) -> tuple[str, list[Draft]]:
            task = find_task(connection, name, lock=True)
            if task.status in TASK.terminal:
                return task.task_id, []
            if task.owner is not None:
                values: dict[str, Any] = {"cancel_requested": True}
                asked = _by(task, "note", by, {"what": "cancel requested"}, actor)
                drafts = [] if task.cancel_requested else [asked]
            else:
                values = {
                    "status": TaskState.CANCELLED.value,
                    "completed_at": self._clock.now(),
                    "queued_at": None,
                }
                drafts = [_by(task, "task_cancelled", by, {"was": task.status.value}, actor)]
                void_questions(connection, task.task_id)
            connection.execute(task_queue.update().where(task_queue.c.task_id == task.task_id).values(values))
            return task.task_id, drafts

        return self.get(self._writer.transact(change))

    def retry(self, name: str, *, by: str) -> Task:
        """Open a failed, cancelled or blocked task again as a new attempt; what it depended on stays.

        A deadline that has passed is lifted: whoever tries again wants it nevertheless.
        """

        def change(connection: sa.Connection) -> tuple[str, list[Draft]]:
            task = find_task(connection, name, lock=True)
            late = task.deadline is not None and task.deadline <= self._clock.now()
            blocked = task.status is TaskState.BLOCKED
            target = TASK.step(task.status, TaskState.PENDING) if blocked else TASK.reopen(task.status)
            connection.execute(
                task_queue.update()
                .where(task_queue.c.task_id == task.task_id)
                .values(
                    status=target.value,
                    retry_count=0,
                    not_before=None,
                    queued_at=None,
                    completed_at=None,
                    cancel_requested=False,
                    error_log=None,
                    deadline=None if late else task.deadline,
                )
            )
            lifted = {"deadline_lifted": task.deadline.isoformat()} if task.deadline and late else {}
            return task.task_id, [_by(task, "task_retried", by, {"was": task.status.value, **lifted})]

        return self.get(self._writer.transact(change))


def _shown(row: sa.RowMapping) -> dict[str, Any]:
    """An attempt without the hash of its token, which tells nobody anything."""
    return {name: value for name, value in row.items() if name != "token_hash"}


def _by(
    task: Task, event: str, name: str, details: Mapping[str, Any], actor: ActorKind = ActorKind.HUMAN
) -> Draft:
    return draft_of(
        task.task_id,
        task.trace_id or task.task_id,
        event,
        actor=actor,
        actor_name=name,
        status=EventStatus.SUCCESS,
        details=details,
    )
