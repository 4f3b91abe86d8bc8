"""Pause and resume: a row per scope that the dispatcher and every attempt about to begin look at.

Cooperative: what runs goes on to its end, nothing new begins. The row and its event are one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.events import ActorKind, Draft
from proctor.store.tables import controls, task_queue

__all__ = ["ALL", "TRACE", "find_session", "paused_scopes", "scope_of", "set_paused"]

ALL = "all"
TRACE = "controls"
MAX_SCOPE = 100
MAX_SHOWN = 1000


def scope_of(kind: str, name: str) -> str:
    """The scope of one session or agent."""
    scope = f"{kind}:{name}"
    if not name or len(scope) > MAX_SCOPE:
        raise UsageError(
            message=f"The name of the {kind} must have 1 to {MAX_SCOPE - len(kind) - 1} letters."
        )
    return scope


def find_session(connection: sa.Connection, name: str) -> str:
    """A session that has tasks; refuses a name that nobody knows, because pausing it would do nothing."""
    query = sa.select(task_queue.c.session_id).where(task_queue.c.session_id == name).limit(1)
    if connection.execute(query).first() is None:
        raise NotFoundError(
            kind="session", name=name, cure="`proctor tasks show TASK` names a task's session."
        )
    return name


def paused_scopes(connection: sa.Connection) -> list[str]:
    """Where nothing new begins."""
    query = sa.select(controls.c.scope).where(controls.c.paused).order_by(controls.c.scope).limit(MAX_SHOWN)
    return list(connection.execute(query).scalars())


def set_paused(
    connection: sa.Connection,
    scopes: Sequence[str],
    *,
    paused: bool,
    by: str,
    now: datetime,
    actor: ActorKind = ActorKind.HUMAN,
) -> tuple[list[str], list[Draft]]:
    """Pause or resume these scopes inside the caller's transaction; those that were so already stay untouched."""
    changed = [scope for scope in scopes if _set(connection, scope, paused=paused, by=by, now=now)]
    return changed, [_draft(scope, paused, by, actor) for scope in changed]


def _set(connection: sa.Connection, scope: str, *, paused: bool, by: str, now: datetime) -> bool:
    mine = controls.c.scope == scope
    found = connection.execute(sa.select(controls.c.paused).where(mine).with_for_update()).scalar()
    if bool(found) is paused:
        return False
    values = {"paused": paused, "changed_by": by[:100], "changed_at": now}
    if found is None:
        connection.execute(controls.insert().values(scope=scope, **values))
    else:
        connection.execute(controls.update().where(mine).values(values))
    return True


def _draft(scope: str, paused: bool, by: str, actor: ActorKind) -> Draft:
    kind, _, name = scope.partition(":")
    return Draft(
        trace_id=TRACE,
        event="paused" if paused else "resumed",
        actor=actor,
        actor_name=by,
        session_id=name if kind == "session" else None,
        details={"scope": scope},
    )
