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
from proctor.engine import rows
from proctor.engine.dispatch import backoff
from proctor.engine.patience import patiently
from proctor.engine.tasks import MAX_DESCRIPTION, NewTask, Task, draft_of, insert_task, void_questions
from proctor.protocol.errors import ProctorError
from proctor.protocol.events import ActorKind, Draft, EventKind, EventStatus
from proctor.protocol.ids import ExecutorId
from proctor.protocol.ports import Clock
from proctor.protocol.states import TASK, TaskState
from proctor.trace.writer import TraceWriter

__all__ = ["Claim", "Claims", "LostClaimError", "Work"]

MAX_DELEGATIONS = 3
MAX_TEXT = 20_000
MAX_LEFT = 20


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
    identities: Sequence[str]
    """Processes that this task's attempts wrote down; whoever begins makes sure that none is left."""
    began: datetime
    """When this attempt was begun, also by somebody else."""


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
        row = connection.execute(rows.TAKE, {"b_task": task_id}).mappings().first()
        if row is None:
            return None, []
        task = Task.of(row)
        waits = task.status is TaskState.ASSIGNED and task.owner is None
        runs = task.status is TaskState.IN_PROGRESS and task.owner is not None
        if task.attempt != attempt or task.agent is None or not (waits or runs):
            return None, []
        if task.owner is not None and task.owner != dead:
            return _Held(task.owner), []
        if waits and row["paused"]:
            connection.execute(rows.GIVE_BACK, {"b_task": task_id})
            return None, [_draft(task, attempt, "paused", details={"reason": "paused before it began"})]
        claim = self._begin(connection, task, task.agent, runs)
        return claim, [self._begun(claim, dead)]

    def _begin(self, connection: sa.Connection, task: Task, agent: str, runs: bool) -> Claim:
        now = self._clock.now()
        # A first attempt that nobody has begun has no past.
        past = rows.attempts_of(connection, task.task_id) if runs or task.attempt > 1 else []
        began = past[0]["started_at"] if runs and past else now
        mine = {"b_task": task.task_id, "b_owner": self.executor_id}
        connection.execute(rows.BEGIN, {**mine, "b_started": task.started_at or now})
        if runs:
            connection.execute(rows.TAKE_OVER, {**mine, "b_attempt": task.attempt})
        else:
            new = {"attempt": task.attempt, "agent_name": agent, "owner": self.executor_id}
            connection.execute(rows.NEW_ATTEMPT, {"task_id": task.task_id, "started_at": now, **new})
        identities = tuple(row["identity"] for row in past if row["identity"])
        return Claim(task, task.attempt, agent, runs, _earlier(past), identities, began)

    def _begun(self, claim: Claim, owner: str | None) -> Draft:
        details: dict[str, Any] = {"agent": claim.agent, "executor": self.executor_id}
        if claim.taken_over:
            details["from"] = owner
        event = "takeover" if claim.taken_over else "attempt_started"
        return self._draft(claim, event, status=EventStatus.RUNNING, details=details)

    async def note(self, claim: Claim, **values: Any) -> None:
        """Write down facts of the running attempt: process identity, native id, worktree, base."""

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            mine = {"b_task": claim.task.task_id, "b_attempt": claim.attempt, "b_owner": self.executor_id}
            if connection.execute(rows.NOTE, {**mine, **values}).rowcount != 1:
                raise LostClaimError(task_id=claim.task.task_id, attempt=claim.attempt)
            return None, []

        await patiently(lambda: self._writer.transact_async(change))

    async def park(self, claim: Claim, end: AttemptEnd, *, question: str) -> bool:
        """End the attempt without ending the task: a person must answer first. False: they want it cancelled."""
        drafts = [
            self._draft(claim, "task_parked", status=EventStatus.WARNING, details={"question": question})
        ]

        def change(connection: sa.Connection) -> tuple[bool, list[Draft]]:
            row = connection.execute(rows.TAKE, {"b_task": claim.task.task_id}).mappings().first()
            if row is not None and row["owner"] == self.executor_id and row["cancel_requested"]:
                return False, []
            self._close(connection, claim, TaskState.AWAITING_APPROVAL, "parked", end, Work(), {})
            return True, drafts

        return await patiently(lambda: self._writer.transact_async(change))

    async def finish(self, claim: Claim, end: AttemptEnd, work: Work) -> TaskState:
        """End the attempt; decide in the same transaction whether the task ends or is tried again."""
        return await patiently(
            lambda: self._writer.transact_async(lambda connection: self._finish(connection, claim, end, work))
        )

    def _finish(
        self, connection: sa.Connection, claim: Claim, end: AttemptEnd, work: Work
    ) -> tuple[TaskState, list[Draft]]:
        now = self._clock.now()
        if end.outcome is Outcome.SUCCEEDED:
            state, values = TaskState.COMPLETED, rows.ending(now, _result(end, work))
            if claim.taken_over or claim.attempt > 1:  # only who was interrupted can leave a question behind
                void_questions(connection, claim.task.task_id, of_agent=True)
        else:
            state, values = self._not_done(connection, claim, end, work, now)
        self._close(connection, claim, state, end.outcome.value, end, work, values)
        handed_on = self._delegate(connection, claim, end) if state is TaskState.COMPLETED else []
        duration = max(0, int((now - claim.began).total_seconds() * 1000))
        self._record(connection, claim, end, duration)
        return state, [*self._ended(claim, end, state, duration), *handed_on]

    def _not_done(
        self, connection: sa.Connection, claim: Claim, end: AttemptEnd, work: Work, now: datetime
    ) -> tuple[TaskState, dict[str, Any]]:
        """What becomes of a task whose attempt did not succeed, from the row as it is now."""
        row = connection.execute(rows.TAKE, {"b_task": claim.task.task_id}).mappings().first()
        if row is None:
            raise LostClaimError(task_id=claim.task.task_id, attempt=claim.attempt)
        task = Task.of(row)
        state, reason = _next_state(task, end, now), end.reason[:MAX_TEXT]
        if state is TaskState.RECOVERING:
            retry = task.retry_count + 1
            return state, {"error_log": reason, "retry_count": retry, "not_before": now + backoff(retry)}
        void_questions(connection, task.task_id, of_agent=state is not TaskState.CANCELLED)
        return state, rows.ending(now, _result(end, work), reason)

    def _close(
        self,
        connection: sa.Connection,
        claim: Claim,
        state: TaskState,
        outcome: str,
        end: AttemptEnd,
        work: Work,
        values: Mapping[str, Any],
    ) -> None:
        """Take our hand off the row; refuses when it is no longer there."""
        TASK.step(TaskState.IN_PROGRESS, state)
        attempt = {"b_task": claim.task.task_id, "b_attempt": claim.attempt}
        mine = {**attempt, "b_owner": self.executor_id, "status": state.value}
        if connection.execute(rows.LEAVE, {**mine, **values}).rowcount != 1:
            raise LostClaimError(task_id=claim.task.task_id, attempt=claim.attempt)
        facts = {"outcome": outcome, "ended_at": self._clock.now(), **_used(end)}
        facts |= {"branch": work.branch, "head_commit": work.commit, "b_native": end.native_id}
        connection.execute(rows.END_ATTEMPT, {**attempt, **facts})

    def _record(self, connection: sa.Connection, claim: Claim, end: AttemptEnd, duration: int) -> None:
        success = end.outcome is Outcome.SUCCEEDED
        connection.execute(
            rows.HISTORY,
            {
                "agent_name": claim.agent,
                "task_id": claim.task.task_id,
                "task_type": claim.task.task_type,
                "success": success,
                "duration_ms": duration,
                "error_message": None if success else end.reason[:MAX_TEXT],
                "cost_tokens": end.usage.tokens,
                "attempt": claim.attempt,
                "simulated": end.simulated,
            },
        )

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

    def _delegate(self, connection: sa.Connection, claim: Claim, end: AttemptEnd) -> list[Draft]:
        """Turn a successful agent's wishes to hand work on into tasks; how deep and how many is bounded."""
        depth = int(claim.task.context.get("delegation_depth") or 0) + 1
        wishes = _wishes(connection, claim, end)
        taken = wishes[:MAX_DELEGATIONS] if depth <= MAX_DELEGATIONS else []
        drafts = [draft for wish in taken for draft in self._hand_on(connection, claim, wish, depth)]
        if left := [wish.description[:200] for wish in wishes[len(taken) :]]:
            why = f"a task hands on at most {MAX_DELEGATIONS} others, {MAX_DELEGATIONS} levels deep"
            facts = {"what": "not handed on", "reason": why, "left": left[:MAX_LEFT], "count": len(left)}
            drafts.append(self._draft(claim, "note", status=EventStatus.WARNING, details=facts))
        return drafts

    def _hand_on(
        self, connection: sa.Connection, claim: Claim, wish: Delegation, depth: int
    ) -> Sequence[Draft]:
        task = claim.task
        context = {"delegated_from": task.task_id, "guidance": wish.guidance, "delegation_depth": depth}
        new = NewTask(
            description=wish.description[:MAX_DESCRIPTION],
            task_type=task.task_type,
            priority=task.priority,
            agent=wish.agent[:100],
            context=context,
            workspace=task.workspace,
            session_id=task.session_id,
            trace_id=task.trace_id,
            created_by=claim.agent,
        )
        task_id, added = insert_task(connection, new, ActorKind.AGENT)
        route = {"selected": wish.agent, "reason": wish.guidance, "new_task": task_id}
        return [self._draft(claim, "route_decision", kind=EventKind.CANONICAL, details=route), *added]

    def _draft(self, claim: Claim, event: str, **more: Any) -> Draft:
        return _draft(claim.task, claim.attempt, event, **more)


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


def _wishes(connection: sa.Connection, claim: Claim, end: AttemptEnd) -> list[Delegation]:
    """What the agent wants to hand on; what it said before a death or a parking only the log still knows."""
    before: list[Delegation] = []
    if claim.taken_over or claim.attempt > 1:
        said = rows.wishes_before(connection, claim.task.task_id, claim.attempt)
        before = [
            Delegation(str(one["delegate_to"]), str(one["text"]), str(one.get("guidance", "")))
            for one in said
        ]
    named = [wish for wish in (*before, *end.delegations) if wish.description.strip()]
    return list(dict.fromkeys(named))


def _earlier(past: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The newest attempt that had a place to work; later ones ended before they could have left anything."""
    return next((row for row in past if row["worktree"] is not None), past[0] if past else None)


def _used(end: AttemptEnd) -> dict[str, Any]:
    return {
        "error": None if end.outcome is Outcome.SUCCEEDED else end.reason[:MAX_TEXT],
        "input_tokens": end.usage.input_tokens,
        "output_tokens": end.usage.output_tokens,
        "cost_usd": end.usage.cost_usd,
    }


def _draft(task: Task, attempt: int, event: str, **more: Any) -> Draft:
    trace_id = task.trace_id or task.task_id
    return draft_of(task.task_id, trace_id, event, attempt=attempt, session_id=task.session_id, **more)
