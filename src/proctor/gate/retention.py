"""What the gate need not remember any more: ended calls, settled leases, and the budget rows nobody refers to.

What runs, waits, is interrupted or is held stays, whatever its age; so do questions and answers, which are evidence.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.grants import Scope
from proctor.protocol.tools import CallState
from proctor.store.database import Database
from proctor.store.tables import budget_nodes, calls, grants, leases

__all__ = ["prune_calls"]

CHUNK: Final = 5000  # rows in one transaction, so that writers wait for moments only


def prune_calls(database: Database, *, older_than: datetime, dry_run: bool = False) -> int:
    """Remove what ended before a moment; gives the number of calls. Safe to interrupt."""
    ended = sa.and_(calls.c.state == CallState.ENDED.value, calls.c.ended_at < older_than)
    if dry_run:
        with database.read() as connection:
            query = sa.select(sa.func.count()).select_from(calls).where(ended)
            return int(connection.execute(query).scalar_one())
    removed = _remove(database, calls, calls.c.call_id, ended)
    _remove(database, leases, leases.c.lease_id, leases.c.settled_at < older_than)
    # A grant for one task is of no use when the task is as old as what leaves here; one for always stays.
    task = sa.and_(grants.c.scope == Scope.TASK.value, grants.c.granted_at < older_than)
    gone = sa.or_(grants.c.revoked_at < older_than, grants.c.expires_at < older_than, task)
    _remove(database, grants, grants.c.grant_id, gone)
    _remove(database, budget_nodes, budget_nodes.c.bucket_id, _unused(older_than))
    return removed


def _unused(older_than: datetime) -> sa.ColumnElement[bool]:
    """Budget rows of runs without any call left, and of days long past; never where something is held."""
    node = budget_nodes.c.node_id
    run = sa.func.coalesce(calls.c.session_id, calls.c.trace_id)
    sessions = sa.exists().where(node == sa.literal("session:").concat(run))
    # An allowance bears the name of its plan, which its calls carry as their task; one of another kind may be anybody's.
    own = sa.or_(
        node == sa.literal("task:").concat(calls.c.task_id),
        node == sa.literal("share:").concat(calls.c.task_id),
    )
    tasks = sa.or_(sa.exists().where(own), node.like("share:budget%"))
    day = sa.func.substr(node, sa.func.length(node) - 9)  # profile:NAME:YYYY-MM-DD
    old = sa.or_(
        sa.and_(budget_nodes.c.kind == "session", ~sessions),
        sa.and_(budget_nodes.c.kind == "task", ~tasks),
        sa.and_(budget_nodes.c.kind == "profile", day < f"{older_than:%Y-%m-%d}"),
    )
    return sa.and_(budget_nodes.c.held_calls == 0, old)


def _remove(database: Database, table: sa.Table, key: sa.Column[Any], which: sa.ColumnElement[bool]) -> int:
    removed = 0
    while True:
        with database.write() as connection:
            part = sa.select(key).where(which).limit(CHUNK)
            gone = connection.execute(table.delete().where(key.in_(part))).rowcount
        removed += gone
        if gone < CHUNK:
            return removed
