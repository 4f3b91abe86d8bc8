"""Whether a call that needs an answer may begin: by a grant, by an answer to this very call, or not yet.

The question is worked out anew after every wait, because the ground may have changed; an answer to what was shown before
is then void. The budget is looked at before a person is bothered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import sqlalchemy as sa

from proctor.gate import approvals, calls, leases
from proctor.gate.calls import Entry
from proctor.gate.consequences import consequences_of, risk_of
from proctor.gate.context import Confined
from proctor.gate.grants import Scope, add_grants, covering
from proctor.gate.outcome import SHORT, AnswerChangedError, bound_to, path_of, waiting, wish_of
from proctor.gate.snapshots import Snapshots
from proctor.gate.verdict import Ask
from proctor.protocol.errors import RefusedError
from proctor.protocol.events import Draft
from proctor.protocol.ports import Clock
from proctor.protocol.tools import CallError, CallResult, CallState
from proctor.store.database import Database
from proctor.trace.rows import Redacts
from proctor.trace.writer import TraceWriter

__all__ = ["Asking", "Leave"]


@dataclass(frozen=True, slots=True)
class Leave:
    """What lets a call begin: nothing needed, a person's answer, or grants."""

    confined: Confined
    reading: bool = False
    notes: tuple[str, ...] = ()
    ask: Ask | None = None
    approval_id: str | None = None
    bound_to: str = ""


class Asking:
    """Finds answers and asks for them."""

    def __init__(
        self,
        *,
        database: Database,
        writer: TraceWriter,
        redactor: Redacts,
        snapshots: Snapshots | None,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._redactor = redactor
        self._snapshots = snapshots
        self._clock = clock
        self._waiter = approvals.Waiter(database, clock)

    async def ask(self, entry: Entry, ask: Ask, until: float) -> Leave | CallResult | CallError:
        """Look for a grant or an answer; else write the question down and wait as long as the caller holds."""
        question = await self._question(entry, ask)
        while True:
            standing, call_id = await self._writer.transact_async(partial(self._stand, entry, ask, question))
            if standing is None:
                return Leave(ask.confined, ask=ask)
            if standing.status == "approved":
                return Leave(
                    ask.confined, ask=ask, approval_id=standing.approval_id, bound_to=question.bound_to
                )
            if standing.status == "rejected":
                by = standing.answered_by or "a person"
                said = f"{by} said no" + (f": {standing.reason}" if standing.reason else "")
                return CallError("approval_rejected", f"Refused: {said}.", RefusedError.exit_code)
            left = until - self._clock.monotonic()
            status = await self._waiter.wait(standing.approval_id, left) if left > 0 else "pending"
            if status in {"pending", "timeout"}:
                return replace(waiting(entry, standing.approval_id, ask.reason), call_id=call_id)
            question = await self._question(entry, ask)  # the ground may have changed while we waited

    async def _question(self, entry: Entry, ask: Ask) -> approvals.Question:
        call = entry.call
        snapshot_id = self._snapshots.existing(call) if self._snapshots is not None else None
        shown = await asyncio.to_thread(
            lambda: consequences_of(
                entry.tool,
                entry.inputs,
                entry.touches,
                workspace=call.workspace,
                decisions=ask.decisions,
                irreversible=ask.irreversible,
                snapshot_id=snapshot_id,
            )
        )
        return approvals.Question(
            trace_id=call.trace_id,
            session_id=call.session_id,
            task_id=call.task_id,
            attempt=call.attempt,
            call_id=call.call_id,
            asked_by=call.actor.name[:100],
            tool=entry.tool.name,
            action=self._redactor.text(f"{call.actor.name} wants {entry.tool.name}: {ask.reason}")[:SHORT],
            inputs=entry.shown,
            reasoning=self._redactor.text(call.reasoning)[:SHORT],
            risk=risk_of(entry.tool, irreversible=ask.irreversible),
            consequences=[self._redactor.text(line) for line in shown.lines],
            content_hash=entry.content_hash,
            bound_to=bound_to(entry, ask, shown),
            classes=self._classes(ask),
            irreversible=ask.irreversible,
            profile=entry.profile.name[:50],
            workspace=None if call.rules_from is None else str(call.rules_from),
            snapshot_id=snapshot_id,
        )

    def _stand(
        self, entry: Entry, ask: Ask, question: approvals.Question, connection: sa.Connection
    ) -> tuple[tuple[approvals.Standing | None, str], list[Draft]]:
        """In one transaction: an earlier answer, a grant (None), an open question, or a new one; and the call's id."""
        now = self._clock.now()
        row = calls.find_row(connection, entry.key)
        # A repeated call is the row it was before, so that answer and question name one that exists.
        own = entry.call.call_id if row is None else str(row["call_id"])
        standing, drafts = approvals.find_standing(connection, question, now)
        if standing is not None and standing.status != "pending":
            return (standing, own), drafts  # the answer to this very act goes before what holds for its class
        if self._granted(connection, entry, ask, now) is not None:
            return (None, own), drafts
        refusal = leases.check(connection, path_of(entry, now), wish_of(entry))
        if refusal is not None:
            raise refusal
        if standing is None:
            approval_id, asked = approvals.ask(connection, replace(question, call_id=own), now)
            standing, drafts = approvals.Standing(approval_id, "pending"), [*drafts, *asked]
        values = {"state": CallState.WAITING.value, "approval_id": standing.approval_id}
        calls.save(connection, entry, row, **values)
        return (standing, own), drafts

    def _granted(self, connection: sa.Connection, entry: Entry, ask: Ask, now: datetime) -> list[str] | None:
        call = entry.call
        runs = [name for name in (call.task_id, call.session_id, call.trace_id) if name]
        workspace = None if call.rules_from is None else str(call.rules_from)
        return covering(
            connection,
            self._classes(ask),
            tool=entry.tool.name,
            run_ids=runs,
            workspace=workspace,
            now=now,
        )

    def _classes(self, ask: Ask) -> list[str]:
        """What a grant would be named by; a class may hold words of a command, so secrets are taken out first."""
        return [self._redactor.text(name) for name in ask.classes]

    def use(self, connection: sa.Connection, entry: Entry, leave: Leave, now: datetime) -> None:
        """Spend the answer, or see that the grant still stands."""
        if leave.ask is None:
            return
        if leave.approval_id is None:
            if self._granted(connection, entry, leave.ask, now) is None:
                raise AnswerChangedError(approval_id="by a grant")
            return
        row = approvals.use_approval(connection, leave.approval_id, bound_to=leave.bound_to, now=now)
        if row is None:
            raise AnswerChangedError(approval_id=leave.approval_id)
        if entry.profile.once_per_task and not row["irreversible"]:
            reason = f"the profile {entry.profile.name} asks once per class and task"
            add_grants(connection, row, Scope.TASK, by=row["answered_by"] or "", reason=reason, now=now)
