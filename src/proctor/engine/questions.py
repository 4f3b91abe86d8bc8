"""An agent's question becomes a row that a person answers; nobody's thread waits for long.

The pipe is held for a while (ten minutes by default), then the task is parked: the row stays open for 24 hours, and when
it is answered the reconciler hands the task out again. An answer given meanwhile is found by looking, not by polling per
question: one look per executor serves all.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import timedelta

import sqlalchemy as sa

from proctor.agents.driver import AgentEvent
from proctor.engine.claims import Claim, LostClaimError
from proctor.engine.patience import patiently
from proctor.protocol.events import Draft, EventKind, EventStatus
from proctor.protocol.ids import new_id
from proctor.protocol.ports import Clock
from proctor.store.database import Database
from proctor.store.tables import approvals
from proctor.trace.writer import TraceWriter

__all__ = ["APPROVAL_HOURS", "HOLD_SECONDS", "OpenQuestions"]

APPROVAL_HOURS = 24
HOLD_SECONDS = 600.0


class OpenQuestions:
    """Asks for the attempts of one executor."""

    def __init__(
        self,
        database: Database,
        writer: TraceWriter,
        clock: Clock,
        *,
        is_valid: Callable[[], bool],
        hold_s: float = HOLD_SECONDS,
    ) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._hold = hold_s
        self._is_valid = is_valid
        self._waiting: dict[str, tuple[str, asyncio.Future[bool | None]]] = {}

    async def ask(self, claim: Claim, event: AgentEvent) -> bool | None:
        """Write the question down, hold the pipe, give the answer or None when it is time to park."""
        asked = await patiently(lambda: self._writer.transact_async(lambda c: self._ask(c, claim, event)))
        if isinstance(asked, bool):
            return asked
        future: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._waiting[asked] = claim.task.task_id, future
        try:
            answer = await asyncio.wait_for(future, self._hold)
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(asked, None)
        if answer is None:
            return None
        # Used here and now: the same call asked again is a new question.
        return await patiently(
            lambda: self._writer.transact_async(lambda c: self._use_answer(c, claim, event))
        )

    def abandon(self, task_id: str) -> None:
        """Hold the questions of this task no longer, for example because it was cancelled."""
        for holder, future in self._waiting.values():
            if holder == task_id and not future.done():
                future.set_result(None)

    def _ask(
        self, connection: sa.Connection, claim: Claim, event: AgentEvent
    ) -> tuple[bool | str, list[Draft]]:
        """An answer given while the task was parked, a question that is open already, or a new one."""
        if not self._is_valid():
            raise LostClaimError(task_id=claim.task.task_id, attempt=claim.attempt)
        answer, drafts = self._use_answer(connection, claim, event)
        if answer is not None:
            return answer, drafts
        same = sa.and_(approvals.c.task_id == claim.task.task_id, approvals.c.bound_to == _call(event))
        still_open = same, approvals.c.status == "pending", approvals.c.expires_at > self._clock.now()
        query = sa.select(approvals.c.approval_id).where(*still_open).limit(1)
        known: str | None = connection.execute(query).scalar()
        return (known, []) if known is not None else self._insert(connection, claim, event)

    def _insert(self, connection: sa.Connection, claim: Claim, event: AgentEvent) -> tuple[str, list[Draft]]:
        approval_id = new_id("appr")
        task, now = claim.task, self._clock.now()
        tool = event.tool_name or "agent"
        inputs = dict(event.details.get("input") or {})
        connection.execute(
            approvals.insert().values(
                approval_id=approval_id,
                trace_id=task.trace_id or task.task_id,
                session_id=task.session_id,
                task_id=task.task_id,
                action=event.text or f"{claim.agent} asks to use {tool}",
                tool_name=tool,
                inputs=inputs,
                risk_level="high",
                bound_to=_call(event),
                requested_at=now,
                expires_at=now + timedelta(hours=APPROVAL_HOURS),
            )
        )
        return approval_id, [_asked(claim, approval_id, tool)]

    def _use_answer(
        self, connection: sa.Connection, claim: Claim, event: AgentEvent
    ) -> tuple[bool | None, list[Draft]]:
        """A resumed agent asks again what was answered while it was parked: bound to that very call, used once."""
        content = _call(event)
        query = (
            sa.select(approvals.c.approval_id, approvals.c.status)
            .where(approvals.c.task_id == claim.task.task_id, approvals.c.bound_to == content)
            .where(approvals.c.status.in_(["approved", "rejected"]))
            .order_by(approvals.c.requested_at.desc())
            .limit(1)
        )
        row = connection.execute(query).first()
        if row is None:
            return None, []
        used = approvals.update().where(approvals.c.approval_id == row.approval_id)
        connection.execute(used.values(bound_to=f"used:{content}"))
        return row.status == "approved", []

    async def look(self) -> None:
        """See which of the held questions have been answered; one query for all of them."""
        if not self._waiting:
            return
        ids = list(self._waiting)
        for approval_id, status in (await asyncio.to_thread(self._statuses, ids)).items():
            _, future = self._waiting.get(approval_id, ("", None))
            if future is not None and not future.done() and status in {"approved", "rejected"}:
                future.set_result(status == "approved")

    def _statuses(self, ids: list[str]) -> Mapping[str, str]:
        query = sa.select(approvals.c.approval_id, approvals.c.status).where(approvals.c.approval_id.in_(ids))
        with self._database.read() as connection:
            return {row.approval_id: row.status for row in connection.execute(query)}


def _asked(claim: Claim, approval_id: str, tool: str) -> Draft:
    return Draft(
        trace_id=claim.task.trace_id or claim.task.task_id,
        event="approval_requested",
        kind=EventKind.CANONICAL,
        status=EventStatus.PENDING,
        task_id=claim.task.task_id,
        attempt=claim.attempt,
        session_id=claim.task.session_id,
        tool_name=tool,
        details={"approval_id": approval_id},
    )


def _call(event: AgentEvent) -> str:
    """What an answer is bound to: this tool with exactly these inputs."""
    inputs = dict(event.details.get("input") or {})
    text = json.dumps([event.tool_name or "agent", inputs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
