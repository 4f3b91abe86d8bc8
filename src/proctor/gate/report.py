"""What was used, for people and doors: utilization of a node, and costs by session. Reads only.

Money that a flat subscription covers is shown apart from money that is owed; calls without a known price are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.limits import TOTAL, Limits
from proctor.store.tables import budget_nodes

__all__ = ["costs", "report_of"]

MAX_ROWS: Final = 1000


def report_of(connection: sa.Connection, node_id: str, limits: Limits | None = None) -> dict[str, Any]:
    """Utilization of one node: total, by domain and by tool, as the seeds' readers know it, and what it cost.

    `limits` are shown for what was never used; a node nobody has used has no rows yet.
    """
    query = budget_nodes.select().where(budget_nodes.c.node_id == node_id).limit(MAX_ROWS)
    rows = {row["bucket"]: dict(row) for row in connection.execute(query).mappings()}
    report: dict[str, Any] = {"node": node_id, "by_domain": {}, "by_tool": {}}
    for kind, names in (
        ("domain", limits.domains if limits else {}),
        ("tool", limits.tools if limits else {}),
    ):
        report[f"by_{kind}"] = {name: _share({}, names[name]) for name in names}
    report["total"] = _share(rows.get(TOTAL, {}), limits.calls if limits else None)
    for bucket, row in sorted(rows.items()):
        kind, _, name = bucket.partition(":")
        if name:
            report[f"by_{kind}"][name] = _share(row, None)
    return {**report, "cost": _cost(rows.get(TOTAL, {}))}


def _share(row: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    used, held = row.get("used_calls", 0), row.get("held_calls", 0)
    limit = row.get("limit_calls", limit)
    percentage = None if limit is None else 100.0 if limit == 0 else round(100 * (used + held) / limit, 1)
    return {"used": used, "held": held, "limit": limit, "percentage": percentage}


def _cost(row: Mapping[str, Any]) -> dict[str, Any]:
    micro, limit = row.get("used_micro_usd", 0), row.get("limit_micro_usd")
    return {
        "tokens": row.get("used_tokens", 0),
        "usd": micro / 1_000_000,
        "usd_limit": None if limit is None else limit / 1_000_000,
        "plan_usd": row.get("plan_micro_usd", 0) / 1_000_000,
        "unpriced_calls": row.get("unpriced_calls", 0),
        "seconds": row.get("used_millis", 0) / 1000,
    }


def costs(connection: sa.Connection, *, kind: str = "session", limit: int = 50) -> list[dict[str, Any]]:
    """What each session, task or profile and day has used, the dearest and busiest first."""
    query = (
        budget_nodes.select()
        .where(budget_nodes.c.kind == kind, budget_nodes.c.bucket == TOTAL)
        .order_by(
            budget_nodes.c.used_micro_usd.desc(), budget_nodes.c.used_calls.desc(), budget_nodes.c.node_id
        )
        .limit(min(limit, MAX_ROWS))
    )
    rows = [dict(row) for row in connection.execute(query).mappings()]
    return [
        {
            "id": row["node_id"].partition(":")[2],
            "calls": row["used_calls"],
            "running": row["held_calls"],
            **_cost(row),
        }
        for row in rows
    ]
