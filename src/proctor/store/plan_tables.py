"""Plans and their steps: what is to be called, how far it came, and who works on it; `tables.py` names them with all others.

What a step's call did stands in `calls`; here stands only what the plan decided about it.
"""

from __future__ import annotations

import sqlalchemy as sa

from proctor.store.columns import created, json_column, metadata, moment

__all__ = ["plan_steps", "plans"]

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("plan_id", sa.String(64), primary_key=True),
    sa.Column("goal", sa.Text, nullable=False),
    sa.Column("stage", sa.String(10), nullable=False, server_default="created"),
    sa.Column("profile", sa.String(50), nullable=False),
    sa.Column("on_error", sa.String(10), nullable=False),
    sa.Column("retry", sa.String(20), nullable=False),
    json_column("budget"),
    json_column("context", "{}"),
    json_column("metadata", "{}"),
    sa.Column("content_hash", sa.String(64), nullable=False),
    sa.Column("trace_id", sa.String(64), nullable=False),
    sa.Column("session_id", sa.String(64)),
    sa.Column("workspace", sa.Text),
    sa.Column("created_by", sa.String(100), nullable=False),
    # `supervisor`: any executor may take it; `process`: only who brought it, because only they know its tools.
    sa.Column("runner", sa.String(10), nullable=False),
    sa.Column("owner", sa.String(255)),
    sa.Column("waiting_for", sa.String(64)),
    moment("not_before"),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    created(),
    moment("routed_at"),
    moment("started_at"),
    moment("completed_at"),
    sa.Column("error", sa.Text),
    sa.CheckConstraint(
        "stage IN ('created','routed','executing','completed','failed','cancelled')", name="stage"
    ),
    sa.CheckConstraint("on_error IN ('fail_fast','continue','retry','fallback')", name="on_error"),
    sa.CheckConstraint("runner IN ('supervisor','process')", name="runner"),
)
sa.Index("ix_plans_stage", plans.c.stage, plans.c.created_at)
sa.Index("ix_plans_trace", plans.c.trace_id)

plan_steps = sa.Table(
    "plan_steps",
    metadata,
    sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("step", sa.Integer, primary_key=True),
    sa.Column("tool", sa.String(100), nullable=False),
    json_column("input", "{}"),
    sa.Column("name", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("estimated_cost", sa.Float, nullable=False, server_default="0"),
    sa.Column("estimated_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("worker", sa.String(100), nullable=False, server_default=""),
    json_column("metadata", "{}"),
    # Nobody knew such a tool when the plan came: it runs on the mock adapter, now and after any restart.
    sa.Column("unregistered", sa.Boolean, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False, server_default="1"),
    sa.Column("call_key", sa.String(128)),
    sa.Column("outcome", sa.String(10)),
    sa.Column("fallback", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("failure_mode", sa.String(30)),
    sa.Column("code", sa.String(50)),
    sa.Column("failure_reason", sa.Text),
    sa.Column("error", sa.Text),
    moment("ended_at"),
    sa.CheckConstraint("outcome IN ('completed','failed','skipped')", name="outcome"),
)
