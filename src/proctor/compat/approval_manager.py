"""Seed 002's `ApprovalRequest` and `ApprovalManager` over the real table of questions: durable, 24 hours, a person answers.

The gate's own questions of the same trace are listed and answered here too.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from proctor.compat.trace_emitter import TraceEmitter
from proctor.engine.plan_tools import consequences_by_name, is_final_by_name
from proctor.gate import approvals as questions
from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.events import Draft
from proctor.protocol.ids import new_id
from proctor.protocol.tools import SideEffect
from proctor.store.tables import approvals

__all__ = ["ApprovalManager", "ApprovalRequest"]

_RISKS: Final = {SideEffect.READ_ONLY: "low", SideEffect.PROPOSE: "medium", SideEffect.EXECUTE: "high"}
_MAX_KNOWN: Final = 1000
_REMINDER: Final = "review the effect before you say yes"


@dataclass
class ApprovalRequest:
    """One question in the seed's words."""

    approval_id: str
    action: str
    tool_name: str
    inputs: dict[str, Any]
    reasoning: str
    risk_level: str
    consequences: list[str]
    requested_at: str
    expires_at: str
    status: str
    profile: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ApprovalRequest:
        """Read a row."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        moments = {name: row[name].isoformat() for name in ("requested_at", "expires_at")}
        return cls(**{**values, **moments})


class ApprovalManager:
    """Asks people and takes their answers."""

    REQUIRES_APPROVAL = frozenset({SideEffect.EXECUTE.value, SideEffect.PROPOSE.value})
    APPROVAL_TIMEOUT: timedelta = questions.LIFE

    def __init__(self, trace_emitter: TraceEmitter | None = None) -> None:
        self.trace_emitter = trace_emitter or TraceEmitter()
        self.pending_approvals: dict[str, ApprovalRequest] = {}
        self._house = self.trace_emitter.house
        self._lock = threading.Lock()

    def request_approval(
        self,
        action: str,
        tool_name: str,
        inputs: Mapping[str, Any],
        reasoning: str,
        side_effect_class: str,
        profile: str | None = None,
    ) -> str:
        """Write a question down; gives its id."""
        effect, redactor = SideEffect(side_effect_class), self._house.app.redactor
        shown = redactor.value(dict(inputs))
        digest = hashlib.sha256(json.dumps([tool_name, dict(inputs)], sort_keys=True, default=str).encode())
        question = questions.Question(
            trace_id=self.trace_emitter.trace_id,
            session_id=None,
            task_id=None,
            attempt=None,
            call_id=new_id("call"),
            asked_by="plan",
            tool=tool_name[:100],
            action=redactor.text(action),
            inputs=shown,
            reasoning=redactor.text(reasoning),
            risk="high" if is_final_by_name(tool_name) else _RISKS[effect],
            consequences=[*consequences_by_name(tool_name), _REMINDER],
            content_hash=digest.hexdigest(),
            bound_to="",
            classes=(),
            irreversible=is_final_by_name(tool_name),
            profile=(profile or "")[:50],
            workspace=None,
        )
        now = datetime.now(UTC)
        approval_id = self._house.app.writer.transact(lambda c: questions.ask(c, question, now))
        self.get_approval(approval_id)
        return approval_id

    def get_approval(self, approval_id: str) -> ApprovalRequest | None:
        """How a question stands; one whose time is over becomes `timeout` here, with its event."""
        known = self.pending_approvals.get(approval_id)
        self._expire(approval_id, known)
        query = approvals.select().where(approvals.c.approval_id == approval_id)
        with self._house.app.database.read() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else self._remember(ApprovalRequest.of(dict(row)))

    def _remember(self, found: ApprovalRequest) -> ApprovalRequest:
        with self._lock:
            known = self.pending_approvals.setdefault(found.approval_id, found)
            known.status, known.expires_at = found.status, found.expires_at
            while len(self.pending_approvals) > _MAX_KNOWN:
                self.pending_approvals.pop(next(iter(self.pending_approvals)))
            return known

    def _expire(self, approval_id: str, known: ApprovalRequest | None) -> None:
        """Only ever sooner than the row says: whoever shortened the time of a question they hold means it."""
        now = datetime.now(UTC)
        until = None if known is None else datetime.fromisoformat(known.expires_at)

        def change(connection: sa.Connection) -> tuple[int, list[Draft]]:
            mine = sa.and_(approvals.c.approval_id == approval_id, approvals.c.status == "pending")
            if until is not None and until <= now:
                sooner = sa.and_(mine, approvals.c.expires_at > until)
                connection.execute(approvals.update().where(sooner).values(expires_at=until))
            return questions.expire_approvals(connection, now)

        self._house.app.writer.transact(change)

    def approve(self, approval_id: str) -> bool:
        """Say yes; False when it cannot be answered any more. Only a person's own process may."""
        return self._answer(approval_id, approved=True, reason="")

    def reject(self, approval_id: str, reason: str = "") -> bool:
        """Say no; False when it cannot be answered any more."""
        return self._answer(approval_id, approved=False, reason=reason)

    def _answer(self, approval_id: str, *, approved: bool, reason: str) -> bool:
        found = self.get_approval(approval_id)
        if found is None or found.status != "pending":
            return False
        person, now = self._house.person(), datetime.now(UTC)
        try:
            self._house.app.writer.transact(
                lambda c: questions.answer(
                    c, approval_id, approved=approved, by=person, reason=reason, now=now
                )
            )
        except (UsageError, NotFoundError):
            return False
        self.get_approval(approval_id)
        return True

    def list_pending(self, profile: str | None = None) -> list[ApprovalRequest]:
        """Open questions of this trace, the most urgent first."""
        now = datetime.now(UTC)
        with self._house.app.database.read() as connection:
            rows = questions.pending(connection, now)
        mine = [row for row in rows if row["trace_id"] == self.trace_emitter.trace_id]
        found = [self._remember(ApprovalRequest.of(row)) for row in mine]
        return [one for one in found if profile is None or one.profile == profile]
