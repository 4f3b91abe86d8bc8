"""Grants: a person's standing answers, for one class of acts; visible lines of the policy that can be revoked.

Invariants: a grant covers a call only when every class the call asks for is granted here and now; nothing that cannot be
taken back is ever covered; each goes back to a recognised person's answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.humans import Human
from proctor.protocol.errors import NotFoundError
from proctor.protocol.events import ActorKind, Draft
from proctor.protocol.ids import new_id
from proctor.store.tables import grants

__all__ = ["TIMED", "Grant", "Scope", "add_grants", "covering", "list_grants", "revoke_grant"]

TIMED: Final = timedelta(minutes=30)
MAX_LISTED: Final = 1000


class Scope(StrEnum):
    """How far a grant reaches: this task (or session, or request), thirty minutes, or until it is revoked."""

    TASK = "task"
    TIME = "time"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Grant:
    """One line."""

    grant_id: str
    class_key: str
    tool_name: str
    scope: Scope
    run_id: str | None
    workspace: str | None
    granted_by: str
    granted_at: datetime
    expires_at: datetime | None
    reason: str
    approval_id: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Grant:
        """Read a row."""
        fields = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**{**fields, "scope": Scope(row["scope"])})

    def sentence(self) -> str:
        """The line as a person reads it."""
        until = {
            Scope.TASK: f"in {self.run_id}",
            Scope.TIME: f"until {self.expires_at:%Y-%m-%d %H:%M} UTC" if self.expires_at else "",
            Scope.ALWAYS: f"always in {self.workspace or 'every workspace'}",
        }[self.scope]
        return f"allow {self.class_key} {until}".strip()


def add_grants(
    connection: sa.Connection,
    approval: Mapping[str, Any],
    scope: Scope,
    *,
    by: str,
    reason: str,
    now: datetime,
) -> list[str]:
    """Make a line for each class of an approval that a person gave; called only where that is established."""
    run_id = approval["task_id"] or approval["session_id"] or approval["trace_id"]
    made = []
    for class_key in approval["classes"]:
        grant_id = new_id("grant")
        connection.execute(
            grants.insert().values(
                grant_id=grant_id,
                class_key=class_key,
                tool_name=approval["tool_name"],
                scope=scope.value,
                run_id=run_id if scope is Scope.TASK else None,
                workspace=approval["workspace"],
                approval_id=approval["approval_id"],
                granted_by=by[:100],
                reason=reason,
                granted_at=now,
                expires_at=now + TIMED if scope is Scope.TIME else None,
            )
        )
        made.append(grant_id)
    return made


def covering(
    connection: sa.Connection,
    classes: Sequence[str],
    *,
    tool: str,
    run_ids: Sequence[str],
    workspace: str | None,
    now: datetime,
) -> list[str] | None:
    """The grants that together cover all classes; None when one of them is not granted here and now."""
    if not classes:
        return None
    here = sa.or_(
        sa.and_(grants.c.scope == Scope.TASK.value, grants.c.run_id.in_(list(run_ids))),
        sa.and_(grants.c.scope != Scope.TASK.value, _same(grants.c.workspace, workspace)),
    )
    query = sa.select(grants.c.class_key, grants.c.grant_id).where(
        grants.c.class_key.in_(list(classes)), grants.c.tool_name == tool, _live(now), here
    )
    found = {row.class_key: row.grant_id for row in connection.execute(query)}
    return sorted(found.values()) if set(found) == set(classes) else None


def _same(column: sa.ColumnElement[Any], value: str | None) -> sa.ColumnElement[bool]:
    return column.is_(None) if value is None else column == value


def _live(now: datetime) -> sa.ColumnElement[bool]:
    open_end = sa.or_(grants.c.expires_at.is_(None), grants.c.expires_at > now)
    return sa.and_(grants.c.revoked_at.is_(None), open_end)


def list_grants(connection: sa.Connection, now: datetime) -> list[Grant]:
    """All lines in force, the newest first."""
    query = grants.select().where(_live(now)).order_by(grants.c.granted_at.desc()).limit(MAX_LISTED)
    return [Grant.of(dict(row)) for row in connection.execute(query).mappings()]


def revoke_grant(
    connection: sa.Connection, grant_id: str, *, by: Human, now: datetime
) -> tuple[Grant, list[Draft]]:
    """Take a line back; calls from now on ask again."""
    mine = sa.and_(grants.c.grant_id == grant_id, _live(now))
    row = connection.execute(grants.select().where(mine)).mappings().first()
    if row is None:
        raise NotFoundError(kind="grant", name=grant_id[:80], cure="`proctor inbox --grants` lists them.")
    connection.execute(grants.update().where(mine).values(revoked_at=now, revoked_by=by.name[:100]))
    found = Grant.of(dict(row))
    details = {"what": "grant revoked", "grant_id": grant_id, "line": found.sentence()}
    draft = Draft(
        trace_id="controls", event="note", actor=ActorKind.HUMAN, actor_name=by.name, details=details
    )
    return found, [draft]
