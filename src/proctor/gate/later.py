"""What a call goes on using after its own end: the time of a command it left in the background.

The call's lease names the rows; they are charged when the command has ended, in the transaction that writes its end. How
long it may run is cut at its start to what is left. Works inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from proctor.gate.budget_rows import lock_buckets
from proctor.gate.leases import Passed, settled_lines
from proctor.gate.limits import TOTAL
from proctor.protocol.events import Draft, EventKind, EventStatus
from proctor.store.tables import budget_nodes, calls, leases

__all__ = ["charge_later", "seconds_left"]


def seconds_left(connection: sa.Connection, call_id: str) -> float | None:
    """How much time is left everywhere on the call's path; None when time is not limited."""
    left = [
        row.limit_millis - row.used_millis - row.held_millis
        for row in connection.execute(_totals(_buckets(connection, call_id)))
        if row.limit_millis is not None
    ]
    return max(0, min(left)) / 1000 if left else None


def charge_later(connection: sa.Connection, facts: Mapping[str, Any], *, millis: int) -> list[Draft]:
    """Add time to what the call has used; gives the events of the lines that were reached.

    `facts` are the call's: call_id, trace_id, and where known session_id, task_id, attempt and tool_name.
    """
    ids = _buckets(connection, str(facts["call_id"]))
    if not ids or millis <= 0:
        return []
    lock_buckets(connection, ids)
    more = budget_nodes.c.used_millis + millis
    connection.execute(
        budget_nodes.update().where(budget_nodes.c.bucket_id.in_(ids)).values(used_millis=more)
    )
    return [_line(one, facts) for one in settled_lines(connection, ids)]


def _buckets(connection: sa.Connection, call_id: str) -> list[str]:
    held = calls.join(leases, leases.c.lease_id == calls.c.lease_id)
    query = sa.select(leases.c.buckets).select_from(held).where(calls.c.call_id == call_id)
    return list(connection.execute(query).scalar() or ())


def _totals(ids: Sequence[str]) -> sa.Select[Any]:
    return sa.select(budget_nodes).where(budget_nodes.c.bucket_id.in_(ids), budget_nodes.c.bucket == TOTAL)


def _line(one: Passed, facts: Mapping[str, Any]) -> Draft:
    event, status = (
        ("budget_exceeded", EventStatus.ERROR) if one.over else ("budget_warning", EventStatus.WARNING)
    )
    reason = {"reason": one.reason} if one.over else {}
    known: dict[str, Any] = {
        name: facts.get(name) for name in ("session_id", "task_id", "attempt", "tool_name")
    }
    details = {"call_id": facts["call_id"], **one.details(), **reason}
    return Draft(
        str(facts["trace_id"]), event, kind=EventKind.CANONICAL, status=status, details=details, **known
    )
