"""The right to run one attempt, and its end. Every update names attempt and owner, so a zombie changes nothing.

Claimed atomically: an attempt is begun by one executor, or taken over from one that is provably dead. What happened is
an event in the same transaction as the row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from proctor.agents.driver import AttemptEnd, Delegation, Outcome
from proctor.engine.dispatch import backoff
from proctor.engine.patience import patiently
from proctor.engine.tasks import NewTask, Task, draft_of, insert_task, void_questions
from proctor.protocol.errors import ProctorError
from proctor.protocol.events import ActorKind, Draft, EventKind, EventStatus
from proctor.protocol.ids import ExecutorId
from proctor.protocol.ports import Clock
from proctor.protocol.states import TASK, TaskState
from proctor.store.tables import attempts, task_history, task_queue
from proctor.trace.writer import TraceWriter

__all__ = ["Claim", "Claims", "LostClaimError", "Work"]

MAX_DELEGATIONS = 3
MAX_TEXT = 20_000
MAX_EARLIER = 50


class LostClaimError(ProctorError):
    """Attempt {attempt} of task {task_id!r} is no longer ours: another executor has it, or it has ended."""

    code = "lost_claim"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one attempt of one task, until the lease ends."""

    task: Task
    attempt: int
    agent: str
    taken_over: bool
    earlier: Mapping[str, Any] | None
    """What this attempt (a takeover) or the one before it left: outcome, native id, worktree."""
    identities: Sequence[str] = ()
    """Processes that this task's attempts wrote down; whoever begins makes sure that none is left."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Somebody else runs it; the claim stands or falls with whether that one lives."""

    owner: str


@dataclass(frozen=True, slots=True)
class Work:
    """What the attempt left behind, beside what the agent said."""

    branch: str | None = None
    commit: str | None = None
    files: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


class Claims:
    """Takes, updates and ends attempts for one executor."""

    def __init__(self, writer: TraceWriter, executor_id: ExecutorId, clock: Clock) -> None:
        self.executor_id = executor_id
        self._writer = writer
        self._clock = clock

    async def take(
        self,
        task_id: str,
        attempt: int,
        *,
        is_dead: Callable[[str], Awaitable[bool]],
    ) -> Claim | None:
        """Take an attempt; None when it is somebody else's, has ended or is no longer wanted."""
        first = await self._writer.transact_async(lambda c: self._take(c, task_id, attempt, None))
        if not isinstance(first, _Held):
            return first
        if first.owner == self.executor_id or not await is_dead(first.owner):
            return None
        again = await self._writer.transact_async(lambda c: self._take(c, task_id, attempt, first.owner))
        return None if isinstance(again, _Held) else again

    def _take(
        self, connection: sa.Connection, task_id: str, attempt: int, dead: str | None
    ) -> tuple[Claim | _Held | None, list[Draft]]:
        task = _exactly(connection, task_id)
        if task is None:
            return None, []
        waits = task.status is TaskState.ASSIGNED and task.owner is None
        runs = task.status is TaskState.IN_PROGRESS and task.owner is not None
        if task.attempt != attempt or task.agent is None or not (waits or runs):
            return None, []
        if task.owner is not None and task.owner != dead:
            return _Held(task.owner), []
        rows = _attempts_of(connection, task_id)
        now = self._clock.now()
        connection.execute(
            task_queue.update()
            .where(task_queue.c.task_id == task_id)
            .values(
                status=TaskState.IN_PROGRESS.value,
                owner=self.executor_id,
                queued_at=None,
                started_at=task.started_at or now,
            )
        )
        self._write_attempt(connection, task, now, runs)
        identities = tuple(row["identity"] for row in rows if row["identity"])
        claim = Claim(task, attempt, task.agent, runs, _earlier(rows), identities)
        return claim, [self._begun(claim, dead)]

    def _write_attempt(self, connection: sa.Connection, task: Task, now: datetime, left_behind: bool) -> None:
        if left_behind:
            connection.execute(_this(task.task_id, task.attempt).values(owner=self.executor_id))
            return
        connection.execute(
            attempts.insert().values(
                task_id=task.task_id,
                attempt=task.attempt,
                agent_name=task.agent,
                owner=self.executor_id,
                started_at=now,
            )
        )

    def _begun(self, claim: Claim, owner: str | None) -> Draft:
        details: dict[str, Any] = {"agent": claim.agent, "executor": self.executor_id}
        if claim.taken_over:
            details["from"] = owner
        event = "takeover" if claim.taken_over else "attempt_started"
        return self._draft(claim, event, status=EventStatus.RUNNING, details=details)

    async def note(self, claim: Claim, **values: Any) -> None:
        """Write down facts of the running attempt: process identity, native id, worktree, base."""

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            mine = _this(claim.task.task_id, claim.attempt).where(attempts.c.owner == self.executor_id)
            if connection.execute(mine.values(values)).rowcount != 1:
                raise LostClaimError(task_id=claim.task.task_id, attempt=claim.attempt)
            return None, []

        await patiently(lambda: self._writer.transact_async(change))

    async def release(self, claim: Claim, reason: str) -> None:
        """Give the task back unbegun, for example because it was paused; the next attempt is a new one."""
        drafts = [self._draft(claim, "paused", details={"reason": reason})]

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            return self._close(connection, claim, TaskState.ASSIGNED, drafts, outcome="released")

        await patiently(lambda: self._writer.transact_async(change))

    async def park(self, claim: Claim, end: AttemptEnd, *, question: str) -> None:
        """End the attempt without ending the task: a person must answer first."""
        drafts = [
            self._draft(claim, "task_parked", status=EventStatus.WARNING, details={"question": question})
        ]

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            state = TaskState.AWAITING_APPROVAL
            return self._close(connection, claim, state, drafts, outcome="parked", end=end)

        await patiently(lambda: self._writer.transact_async(change))

    async def finish(self, claim: Claim, end: AttemptEnd, work: Work) -> TaskState:
        """End the attempt; decide in the same transaction whether the task ends or is tried again."""
        return await patiently(
            lambda: self._writer.transact_async(lambda connection: self._finish(connection, claim, end, work))
        )

    def _finish(
        self, connection: sa.Connection, claim: Claim, end: AttemptEnd, work: Work
    ) -> tuple[TaskState, list[Draft]]:
        task = _exactly(connection, claim.task.task_id)
        if task is None:
            raise LostClaimError(task_id=claim.task.task_id, attempt=claim.attempt)
        now = self._clock.now()
        state = _next_state(task, end, now)
        values: dict[str, Any] = {
            "error_log": None if state is TaskState.COMPLETED else end.reason[:MAX_TEXT]
        }
        if state is TaskState.RECOVERING:
            values |= {"retry_count": task.retry_count + 1, "not_before": now + backoff(task.retry_count + 1)}
        if state in TASK.terminal:
            values |= {"completed_at": now, "result": _result(end, work), "cancel_requested": False}
        if state is TaskState.CANCELLED:
            void_questions(connection, task.task_id)
        self._close(
            connection, claim, state, [], outcome=end.outcome.value, end=end, values=values, work=work
        )
        handed_on = self._delegate(connection, claim, end.delegations)
        duration = self._record(connection, claim, end, now)
        return state, [*self._ended(claim, end, state, duration), *handed_on]

    def _close(
        self,
        connection: sa.Connection,
        claim: Claim,
        state: TaskState,
        drafts: list[Draft],
        *,
        outcome: str,
        end: AttemptEnd | None = None,
        values: Mapping[str, Any] | None = None,
        work: Work | None = None,
    ) -> tuple[None, list[Draft]]:
        """Take our hand off the row; refuses when it is no longer there."""
        TASK.step(TaskState.IN_PROGRESS, state)
        mine = sa.and_(
            task_queue.c.task_id == claim.task.task_id,
            task_queue.c.attempt == claim.attempt,
            task_queue.c.owner == self.executor_id,
            task_queue.c.status == TaskState.IN_PROGRESS.value,
        )
        changed = connection.execute(
            task_queue.update()
            .where(mine)
            .values(status=state.value, owner=None, queued_at=None, **(values or {}))
        )
        if changed.rowcount != 1:
            raise LostClaimError(task_id=claim.task.task_id, attempt=claim.attempt)
        connection.execute(_this(claim.task.task_id, claim.attempt).values(self._outcome(outcome, end, work)))
        return None, drafts

    def _outcome(self, outcome: str, end: AttemptEnd | None, work: Work | None) -> dict[str, Any]:
        values: dict[str, Any] = {"ended_at": self._clock.now(), "outcome": outcome}
        if end is not None:
            values |= {
                "error": None if end.outcome is Outcome.SUCCEEDED else end.reason[:MAX_TEXT],
                "input_tokens": end.usage.input_tokens,
                "output_tokens": end.usage.output_tokens,
                "cost_usd": end.usage.cost_usd,
            }
            if end.native_id is not None:
                values["native_id"] = end.native_id
        if work is not None:
            values |= {"branch": work.branch, "head_commit": work.commit}
        return values

    def _record(self, connection: sa.Connection, claim: Claim, end: AttemptEnd, now: datetime) -> int:
        began = connection.execute(
            sa.select(attempts.c.started_at).where(
                attempts.c.task_id == claim.task.task_id, attempts.c.attempt == claim.attempt
            )
        ).scalar_one()
        duration = max(0, int((now - began).total_seconds() * 1000))
        success = end.outcome is Outcome.SUCCEEDED
        connection.execute(
            task_history.insert().values(
                agent_name=claim.agent,
                task_id=claim.task.task_id,
                task_type=claim.task.task_type,
                success=success,
                duration_ms=duration,
                error_message=None if success else end.reason[:MAX_TEXT],
                cost_tokens=end.usage.tokens,
                attempt=claim.attempt,
                simulated=end.simulated,
            )
        )
        return duration

    def _ended(self, claim: Claim, end: AttemptEnd, state: TaskState, duration: int) -> list[Draft]:
        good = end.outcome is Outcome.SUCCEEDED
        status = EventStatus.SUCCESS if good else EventStatus.ERROR
        facts: dict[str, Any] = {
            "outcome": end.outcome.value,
            "reason": end.reason[:2000],
            "usage": end.usage.as_details(),
        }
        if end.simulated:
            facts["simulated"] = True
        drafts = [
            self._draft(claim, "attempt_ended", status=status, duration_ms=float(duration), details=facts)
        ]
        events = {
            TaskState.COMPLETED: "task_completed",
            TaskState.FAILED: "task_failed",
            TaskState.CANCELLED: "task_cancelled",
        }
        if state in events:
            more = {"simulated": True} if end.simulated else {}
            drafts.append(
                self._draft(
                    claim, events[state], status=status, details={"reason": end.reason[:2000], **more}
                )
            )
        return drafts

    def _delegate(self, connection: sa.Connection, claim: Claim, wishes: Sequence[Delegation]) -> list[Draft]:
        """Turn an agent's wish to hand work on into tasks; how deep and how many is bounded."""
        depth = int(claim.task.context.get("delegation_depth", 0)) + 1
        drafts: list[Draft] = []
        for wish in wishes[:MAX_DELEGATIONS] if depth <= MAX_DELEGATIONS else ():
            context = {
                "delegated_from": claim.task.task_id,
                "guidance": wish.guidance,
                "delegation_depth": depth,
            }
            new = NewTask(
                description=wish.description,
                task_type=claim.task.task_type,
                priority=claim.task.priority,
                agent=wish.agent,
                context=context,
                workspace=claim.task.workspace,
                session_id=claim.task.session_id,
                trace_id=claim.task.trace_id,
                created_by=claim.agent,
            )
            task_id, added = insert_task(connection, new, ActorKind.AGENT)
            route = {"selected": wish.agent, "reason": wish.guidance, "new_task": task_id}
            drafts += [self._draft(claim, "route_decision", kind=EventKind.CANONICAL, details=route), *added]
        return drafts

    def _draft(self, claim: Claim, event: str, **more: Any) -> Draft:
        task = claim.task
        trace_id = task.trace_id or task.task_id
        return draft_of(
            task.task_id, trace_id, event, attempt=claim.attempt, session_id=task.session_id, **more
        )


def _next_state(task: Task, end: AttemptEnd, now: datetime) -> TaskState:
    if end.outcome is Outcome.SUCCEEDED:
        return TaskState.COMPLETED
    if end.outcome is Outcome.CANCELLED or task.cancel_requested:
        return TaskState.CANCELLED
    in_time = task.deadline is None or task.deadline > now
    if end.retryable and in_time and task.retry_count < task.max_retries:
        return TaskState.RECOVERING
    return TaskState.FAILED


def _result(end: AttemptEnd, work: Work) -> dict[str, Any]:
    return {
        "outcome": end.outcome.value,
        "text": end.final_text[:MAX_TEXT],
        "branch": work.branch,
        "commit": work.commit,
        "files": list(work.files)[:1000],
        "simulated": end.simulated,
        **work.more,
    }


def _exactly(connection: sa.Connection, task_id: str) -> Task | None:
    """The row of this very id, locked; None when somebody deleted it."""
    query = task_queue.select().where(task_queue.c.task_id == task_id).with_for_update()
    row = connection.execute(query).mappings().first()
    return Task.of(row) if row is not None else None


def _attempts_of(connection: sa.Connection, task_id: str) -> list[dict[str, Any]]:
    query = attempts.select().where(attempts.c.task_id == task_id).order_by(attempts.c.attempt.desc())
    return [dict(row) for row in connection.execute(query.limit(MAX_EARLIER)).mappings()]


def _earlier(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The newest attempt that had a place to work; later ones ended before they could have left anything."""
    return next((row for row in rows if row["worktree"] is not None), rows[0] if rows else None)


def _this(task_id: str, attempt: int) -> sa.Update:
    return attempts.update().where(attempts.c.task_id == task_id, attempts.c.attempt == attempt)
