"""The gate's tables of the first release, as they were on that day; part of the ground migration."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from proctor.store.types import UtcDateTime, UtcNow

__all__ = ["add_gate_tables"]


def json_column(name: str, default: str | None = None) -> sa.Column[Any]:
    """A JSON value."""
    if default is None:
        return sa.Column(name, sa.JSON(none_as_null=True))
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=False, server_default=sa.text(f"'{default}'"))


def moment(name: str) -> sa.Column[Any]:
    """A moment that may be missing."""
    return sa.Column(name, UtcDateTime())


def created(name: str = "created_at") -> sa.Column[Any]:
    """When the row was made."""
    return sa.Column(name, UtcDateTime(), nullable=False, server_default=UtcNow())


def add_gate_tables(metadata: sa.MetaData) -> None:
    """Describe them in the migration's own metadata."""
    for add in (_calls, _budget_nodes, _leases, _grants):
        add(metadata)


def _calls(metadata: sa.MetaData) -> None:
    """One row per call: what was wanted, how far it came, what came of it. Inputs and result are redacted."""
    calls = sa.Table(
        "calls",
        metadata,
        sa.Column("call_id", sa.String(64), primary_key=True),
        sa.Column("idempotency_key", sa.String(128), nullable=False, unique=True),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("tool_name", sa.String(100), nullable=False),
        sa.Column("domain", sa.String(50), nullable=False),
        sa.Column("side_effect", sa.String(10), nullable=False),
        sa.Column("adapter", sa.String(50), nullable=False),
        sa.Column("simulated", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("actor", sa.String(10), nullable=False),
        sa.Column("actor_name", sa.String(100), nullable=False),
        sa.Column("trace_id", sa.String(64), nullable=False),
        sa.Column("session_id", sa.String(64)),
        sa.Column("task_id", sa.String(64)),
        sa.Column("attempt", sa.Integer),
        sa.Column("profile", sa.String(50), nullable=False),
        sa.Column("workspace", sa.Text),
        json_column("inputs", "{}"),
        sa.Column("state", sa.String(12), nullable=False),
        json_column("result"),
        sa.Column("code", sa.String(50)),
        sa.Column("error", sa.Text),
        sa.Column("approval_id", sa.String(64)),
        sa.Column("snapshot_id", sa.String(128)),
        sa.Column("lease_id", sa.String(64)),
        created("requested_at"),
        moment("started_at"),
        moment("ended_at"),
        sa.Column("duration_ms", sa.Float),
        sa.CheckConstraint(
            "state IN ('requested','waiting','permitted','started','ended','interrupted')", name="state"
        ),
    )
    sa.Index("ix_calls_trace", calls.c.trace_id)
    sa.Index(
        "ix_calls_content",
        calls.c.content_hash,
        sqlite_where=calls.c.actor == "agent",
        postgresql_where=calls.c.actor == "agent",
    )


def _budget_nodes(metadata: sa.MetaData) -> None:
    """The budget tree: for each profile and day, session and task one row in all, per domain and per tool."""
    budget_nodes = sa.Table(
        "budget_nodes",
        metadata,
        sa.Column("bucket_id", sa.String(255), primary_key=True),
        sa.Column("node_id", sa.String(150), nullable=False),
        sa.Column("parent_id", sa.String(150)),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("bucket", sa.String(100), nullable=False, server_default=""),
        *(sa.Column(f"limit_{name}", sa.BigInteger) for name in ("calls", "tokens", "micro_usd", "millis")),
        *(
            sa.Column(f"{part}_{name}", sa.BigInteger, nullable=False, server_default="0")
            for part in ("used", "held")
            for name in ("calls", "tokens", "micro_usd", "millis")
        ),
        sa.Column("plan_micro_usd", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("unpriced_calls", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("warned", sa.Integer, nullable=False, server_default="0"),
        sa.CheckConstraint("kind IN ('profile','session','task')", name="kind"),
        sa.CheckConstraint(
            "held_calls >= 0 AND held_tokens >= 0 AND held_micro_usd >= 0 AND held_millis >= 0", name="held"
        ),
    )
    sa.Index("ix_budget_nodes_node", budget_nodes.c.node_id)
    sa.Index("ix_budget_nodes_parent", budget_nodes.c.parent_id)


def _leases(metadata: sa.MetaData) -> None:
    """What one call holds of the tree until it is settled; who dies holding one is found by `holder` or `expires_at`."""
    leases = sa.Table(
        "leases",
        metadata,
        sa.Column("lease_id", sa.String(64), primary_key=True),
        sa.Column("call_id", sa.String(64), nullable=False),
        json_column("buckets", "[]"),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("micro_usd", sa.BigInteger),
        sa.Column("plan_micro_usd", sa.BigInteger, nullable=False),
        sa.Column("millis", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("task_id", sa.String(64)),
        sa.Column("attempt", sa.Integer),
        created(),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        moment("settled_at"),
        sa.Column("outcome", sa.String(10)),
    )
    sa.Index(
        "ix_leases_open",
        leases.c.expires_at,
        sqlite_where=leases.c.settled_at.is_(None),
        postgresql_where=leases.c.settled_at.is_(None),
    )


def _grants(metadata: sa.MetaData) -> None:
    """A person's standing answers, as lines of the policy that can be seen and revoked."""
    grants = sa.Table(
        "grants",
        metadata,
        sa.Column("grant_id", sa.String(64), primary_key=True),
        sa.Column("class_key", sa.String(255), nullable=False),
        sa.Column("tool_name", sa.String(100), nullable=False),
        sa.Column("scope", sa.String(10), nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("workspace", sa.Text),
        sa.Column("approval_id", sa.String(64)),
        sa.Column("granted_by", sa.String(100), nullable=False),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        created("granted_at"),
        moment("expires_at"),
        moment("revoked_at"),
        sa.Column("revoked_by", sa.String(100)),
        sa.CheckConstraint("scope IN ('task','time','always')", name="scope"),
    )
    sa.Index("ix_grants_class", grants.c.class_key)
