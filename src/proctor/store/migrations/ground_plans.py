"""The tables of plans of the first release, as they were on that day; part of the ground migration."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from proctor.store.types import UtcDateTime, UtcNow

__all__ = ["add_plan_tables"]


def _json(name: str, default: str | None = None) -> sa.Column[Any]:
    if default is None:
        return sa.Column(name, sa.JSON(none_as_null=True))
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=False, server_default=sa.text(f"'{default}'"))


def _moment(name: str) -> sa.Column[Any]:
    return sa.Column(name, UtcDateTime())


def add_plan_tables(metadata: sa.MetaData) -> None:
    """Describe them in the migration's own metadata."""
    _plans(metadata)
    _plan_steps(metadata)


def _plans(metadata: sa.MetaData) -> None:
    plans = sa.Table(
        "plans",
        metadata,
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("goal", sa.Text, nullable=False),
        sa.Column("stage", sa.String(10), nullable=False, server_default="created"),
        sa.Column("profile", sa.String(50), nullable=False),
        sa.Column("on_error", sa.String(10), nullable=False),
        sa.Column("retry", sa.String(20), nullable=False),
        _json("budget"),
        _json("context", "{}"),
        _json("metadata", "{}"),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("trace_id", sa.String(64), nullable=False),
        sa.Column("session_id", sa.String(64)),
        sa.Column("workspace", sa.Text),
        sa.Column("created_by", sa.String(100), nullable=False),
        sa.Column("runner", sa.String(10), nullable=False),
        sa.Column("owner", sa.String(255)),
        sa.Column("waiting_for", sa.String(64)),
        _moment("not_before"),
        sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("created_at", UtcDateTime(), nullable=False, server_default=UtcNow()),
        _moment("routed_at"),
        _moment("started_at"),
        _moment("completed_at"),
        sa.Column("error", sa.Text),
        sa.CheckConstraint(
            "stage IN ('created','routed','executing','completed','failed','cancelled')", name="stage"
        ),
        sa.CheckConstraint("on_error IN ('fail_fast','continue','retry','fallback')", name="on_error"),
        sa.CheckConstraint("runner IN ('supervisor','process')", name="runner"),
    )
    sa.Index("ix_plans_stage", plans.c.stage, plans.c.created_at)
    sa.Index("ix_plans_trace", plans.c.trace_id)


def _plan_steps(metadata: sa.MetaData) -> None:
    sa.Table(
        "plan_steps",
        metadata,
        sa.Column(
            "plan_id", sa.String(64), sa.ForeignKey("plans.plan_id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("tool", sa.String(100), nullable=False),
        _json("input", "{}"),
        sa.Column("name", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("estimated_cost", sa.Float, nullable=False, server_default="0"),
        sa.Column("estimated_tokens", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("worker", sa.String(100), nullable=False, server_default=""),
        _json("metadata", "{}"),
        sa.Column("unregistered", sa.Boolean, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False, server_default="1"),
        sa.Column("call_key", sa.String(128)),
        sa.Column("outcome", sa.String(10)),
        sa.Column("fallback", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("failure_mode", sa.String(30)),
        sa.Column("code", sa.String(50)),
        sa.Column("failure_reason", sa.Text),
        sa.Column("error", sa.Text),
        _moment("ended_at"),
        sa.CheckConstraint("outcome IN ('completed','failed','skipped')", name="outcome"),
    )
