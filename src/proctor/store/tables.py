"""Every table of `proctor.db`, once, for both databases. The seeds' tables keep the seeds' names and columns.

Nobody writes a display status by hand: `agent_status` is a view over agents, attempts and history (law 2).
"""

from __future__ import annotations

import sqlalchemy as sa

from proctor.store.chat_tables import chat_messages, chats
from proctor.store.columns import created, json_column, key, metadata, moment
from proctor.store.gate_tables import budget_nodes, calls, grants, leases
from proctor.store.plan_tables import plan_steps, plans
from proctor.store.request_tables import (
    command_jobs,
    github_instruction_queue,
    repo_file_cache,
    solace_user_requests,
)
from proctor.store.types import GivenDateTime, UsdAmount, UtcDateTime

__all__ = [
    "AGENT_STATUS_VIEW",
    "UtcDateTime",
    "agent_status",
    "agents",
    "approvals",
    "architecture_rules",
    "attempts",
    "budget_nodes",
    "calls",
    "chat_messages",
    "chats",
    "command_jobs",
    "controls",
    "events",
    "executors",
    "github_instruction_queue",
    "grants",
    "leases",
    "metadata",
    "plan_steps",
    "plans",
    "repo_file_cache",
    "solace_user_requests",
    "task_history",
    "task_queue",
    "trace_heads",
    "trace_tombstones",
]

task_queue = sa.Table(
    "task_queue",
    metadata,
    key("task_id"),
    sa.Column("task_type", sa.String(50), nullable=False, server_default="task"),
    sa.Column("priority", sa.Integer, nullable=False, server_default="5"),
    sa.Column("status", sa.String(20), nullable=False, server_default="pending"),
    sa.Column("created_by", sa.String(100), nullable=False, server_default="DAVID"),
    sa.Column("assigned_to_agent", sa.String(100)),
    json_column("file_paths", "[]"),
    json_column("depends_on_task_ids", "[]"),
    sa.Column("description", sa.Text, nullable=False),
    json_column("context", "{}"),
    created(kind=GivenDateTime),
    moment("assigned_at", GivenDateTime),
    moment("started_at", GivenDateTime),
    moment("completed_at", GivenDateTime),
    moment("deadline", GivenDateTime),
    json_column("result"),
    sa.Column("error_log", sa.Text),
    sa.Column("retry_count", sa.Integer, nullable=False, server_default="0"),
    # Ours, beside the seed's: who holds it, which attempt, and when it may run again.
    sa.Column("trace_id", sa.String(64)),
    sa.Column("session_id", sa.String(64)),
    sa.Column("workspace", sa.Text),
    sa.Column("max_retries", sa.Integer, nullable=False, server_default="2"),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("owner", sa.String(64)),
    moment("queued_at", GivenDateTime),
    moment("not_before", GivenDateTime),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.CheckConstraint("priority BETWEEN 1 AND 10", name="priority"),
    sa.CheckConstraint(
        "status IN ('pending','assigned','in_progress','awaiting_approval','blocked','recovering',"
        "'verifying','completed','failed','cancelled')",
        name="status",
    ),
)
sa.Index("ix_task_queue_status_priority", task_queue.c.status, task_queue.c.priority.desc())
sa.Index("ix_task_queue_agent_status", task_queue.c.assigned_to_agent, task_queue.c.status)
sa.Index("ix_task_queue_session", task_queue.c.session_id)
sa.Index("ix_task_queue_created", task_queue.c.created_at)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column(
        "task_id", sa.String(64), sa.ForeignKey("task_queue.task_id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("agent_name", sa.String(100), nullable=False),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("native_id", sa.String(128)),
    sa.Column("pid", sa.Integer),
    sa.Column("identity", sa.Text),
    sa.Column("worktree", sa.Text),
    sa.Column("branch", sa.String(255)),
    sa.Column("base_commit", sa.String(64)),
    sa.Column("head_commit", sa.String(64)),
    sa.Column("token_hash", sa.String(64)),
    sa.Column("simulated", sa.Boolean, nullable=False, server_default=sa.false()),
    created("started_at"),
    moment("ended_at"),
    sa.Column("outcome", sa.String(20)),
    sa.Column("error", sa.Text),
    sa.Column("input_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("output_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("cost_usd", UsdAmount()),
)
sa.Index("ix_attempts_open", attempts.c.ended_at, attempts.c.agent_name)

task_history = sa.Table(
    "task_history",
    metadata,
    key("history_id"),
    sa.Column("agent_name", sa.String(100), nullable=False),
    sa.Column(
        "task_id", sa.String(64), sa.ForeignKey("task_queue.task_id", ondelete="CASCADE"), nullable=False
    ),
    sa.Column("task_type", sa.String(50), nullable=False),
    sa.Column("file_id", sa.String(64)),
    sa.Column("action_type", sa.String(20)),
    sa.Column("success", sa.Boolean, nullable=False),
    sa.Column("duration_ms", sa.BigInteger, nullable=False),
    sa.Column("error_message", sa.Text),
    sa.Column("learned_pattern", sa.Text),
    sa.Column("cost_tokens", sa.BigInteger),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="1"),
    sa.Column("simulated", sa.Boolean, nullable=False, server_default=sa.false()),
    created(),
)
sa.Index("ix_task_history_agent", task_history.c.agent_name, task_history.c.created_at)
sa.Index("ix_task_history_task", task_history.c.task_id)

agents = sa.Table(
    "agents",
    metadata,
    key("agent_id"),
    sa.Column("agent_name", sa.String(100), nullable=False, unique=True),
    sa.Column("agent_type", sa.String(50), nullable=False),
    json_column("capabilities", "[]"),
    sa.Column("offline_reason", sa.Text),
    moment("checked_at"),
    created(),
)

AGENT_STATUS_VIEW = """
CREATE VIEW agent_status AS
WITH past AS (
  SELECT agent_name, count(CASE WHEN success THEN 1 END) AS completed,
    CAST(avg(CASE WHEN success THEN 1.0 ELSE 0.0 END) AS DOUBLE PRECISION) AS rate,
    CAST(round(avg(duration_ms)) AS BIGINT) AS mean_ms, max(created_at) AS last_end
  FROM task_history GROUP BY agent_name
), running AS (
  SELECT agent_name, task_id, started_at,
    row_number() OVER (PARTITION BY agent_name ORDER BY started_at DESC, task_id) AS place
  FROM attempts WHERE ended_at IS NULL
)
SELECT a.agent_id, a.agent_name, a.agent_type, a.capabilities,
  CASE WHEN r.task_id IS NOT NULL THEN 'busy'
       WHEN a.offline_reason IS NOT NULL THEN 'offline' ELSE 'idle' END AS status,
  r.task_id AS current_task_id,
  coalesce(p.completed, 0) AS total_tasks_completed,
  p.rate AS success_rate,
  p.mean_ms AS avg_completion_time_ms,
  CASE WHEN p.last_end IS NULL OR r.started_at > p.last_end THEN r.started_at
       ELSE p.last_end END AS last_active_at,
  a.created_at
FROM agents a
LEFT JOIN past p ON p.agent_name = a.agent_name
LEFT JOIN running r ON r.agent_name = a.agent_name AND r.place = 1
"""

# The view for SELECTs, with its columns' types; outside `metadata`, because nobody may create or write it.
agent_status = sa.table(
    "agent_status",
    sa.column("agent_id", sa.String(64)),
    sa.column("agent_name", sa.String(100)),
    sa.column("agent_type", sa.String(50)),
    sa.column("capabilities", sa.JSON()),
    sa.column("status", sa.String(20)),
    sa.column("current_task_id", sa.String(64)),
    sa.column("total_tasks_completed", sa.Integer),
    sa.column("success_rate", sa.Float),
    sa.column("avg_completion_time_ms", sa.Integer),
    sa.column("last_active_at", UtcDateTime()),
    sa.column("created_at", UtcDateTime()),
)

architecture_rules = sa.Table(
    "architecture_rules",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("feature_type", sa.String(100), nullable=False),
    sa.Column("backend_pattern", sa.Text),
    sa.Column("frontend_pattern", sa.Text),
    json_column("integration_points", "[]"),
    sa.Column("rules_description", sa.Text),
    json_column("examples", "[]"),
    created(),
    created("updated_at"),
)
sa.Index("ix_architecture_rules_feature", architecture_rules.c.feature_type)

executors = sa.Table(
    "executors",
    metadata,
    sa.Column("executor_id", sa.String(64), primary_key=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("pid_started", sa.BigInteger, nullable=False),
    sa.Column("boot_id", sa.String(64), nullable=False),
    sa.Column("version", sa.String(64), nullable=False),
    created("started_at"),
    sa.Column("expires_at", UtcDateTime(), nullable=False),
)

approvals = sa.Table(
    "approvals",
    metadata,
    key("approval_id"),
    sa.Column("trace_id", sa.String(64), nullable=False),
    sa.Column("session_id", sa.String(64)),
    sa.Column("task_id", sa.String(64)),
    sa.Column("call_id", sa.String(64)),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("tool_name", sa.String(100), nullable=False),
    json_column("inputs", "{}"),
    sa.Column("reasoning", sa.Text, nullable=False, server_default=""),
    sa.Column("risk_level", sa.String(10), nullable=False),
    json_column("consequences", "[]"),
    sa.Column("bound_to", sa.String(128), nullable=False, server_default=""),
    sa.Column("profile", sa.String(50)),
    created("requested_at"),
    sa.Column("expires_at", UtcDateTime(), nullable=False),
    sa.Column("status", sa.String(10), nullable=False, server_default="pending"),
    sa.Column("answered_by", sa.String(100)),
    moment("answered_at"),
    sa.Column("answer_reason", sa.Text),
    sa.Column("asked_by", sa.String(100), nullable=False, server_default=""),
    sa.Column("workspace", sa.Text),
    sa.Column("content_hash", sa.String(64), nullable=False, server_default=""),
    json_column("classes", "[]"),
    sa.Column("irreversible", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("snapshot_id", sa.String(128)),
    moment("used_at"),
    sa.CheckConstraint("risk_level IN ('low','medium','high')", name="risk_level"),
    sa.CheckConstraint("status IN ('pending','approved','rejected','timeout','void')", name="status"),
)
sa.Index("ix_approvals_status", approvals.c.status, approvals.c.expires_at)
sa.Index("ix_approvals_task", approvals.c.task_id)
sa.Index("ix_approvals_content", approvals.c.content_hash)

controls = sa.Table(
    "controls",
    metadata,
    sa.Column("scope", sa.String(100), primary_key=True),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("changed_by", sa.String(100), nullable=False),
    created("changed_at"),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column(
        "seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False
    ),
    sa.Column("trace_id", sa.String(64), nullable=False),
    sa.Column("trace_seq", sa.Integer, nullable=False),
    sa.Column("ts", sa.BigInteger, nullable=False),  # microseconds since 1970, UTC
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("event", sa.String(50), nullable=False),
    sa.Column("status", sa.String(10), nullable=False),
    sa.Column("actor", sa.String(10), nullable=False),
    sa.Column("actor_name", sa.String(100), nullable=False),
    sa.Column("session_id", sa.String(64)),
    sa.Column("task_id", sa.String(64)),
    sa.Column("attempt", sa.Integer),
    sa.Column("tool_name", sa.String(100)),
    sa.Column("duration_ms", sa.Float),
    sa.Column(
        "details", sa.Text, nullable=False
    ),  # canonical JSON, redacted; the very bytes that were hashed
    sa.Column("hash", sa.LargeBinary(32), nullable=False),
)
sa.Index("uq_events_trace", events.c.trace_id, events.c.trace_seq, unique=True)
sa.Index(
    "ix_events_task",
    events.c.task_id,
    sqlite_where=events.c.task_id.is_not(None),
    postgresql_where=events.c.task_id.is_not(None),
)

# One row per trace and one with the empty name for the whole log. Its lock orders all writers, and its MAC,
# made with a key outside the database, shows a dropped tail, a dropped trace and a rolled-back head.
trace_heads = sa.Table(
    "trace_heads",
    metadata,
    sa.Column("trace_id", sa.String(64), primary_key=True),
    sa.Column("first_seq", sa.BigInteger, nullable=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.LargeBinary(32), nullable=False),
    sa.Column("mac", sa.LargeBinary(32), nullable=False),
    sa.Column("started", sa.BigInteger, nullable=False),  # microseconds since 1970: the first event's moment
)
# Never updated after the first event, so that appending stays cheap; newest traces are found by it.
sa.Index("ix_trace_heads_first", trace_heads.c.first_seq)

# What retention took out: how many events up to which hash, so that the rest still verifies.
trace_tombstones = sa.Table(
    "trace_tombstones",
    metadata,
    sa.Column("trace_id", sa.String(64), primary_key=True),
    sa.Column("through_trace_seq", sa.Integer, nullable=False),
    sa.Column("through_hash", sa.LargeBinary(32), nullable=False),
    sa.Column("removed", sa.BigInteger, nullable=False),
    sa.Column("mac", sa.LargeBinary(32), nullable=False),
    created("pruned_at"),
)
