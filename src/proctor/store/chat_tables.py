"""Chats: a conversation with a model that can go on in any process, and its messages as people read them.

`history` is what the model is told again, capped and without secrets; `chat_messages` is the transcript.
"""

from __future__ import annotations

import sqlalchemy as sa

from proctor.store.columns import created, json_column, metadata, moment

__all__ = ["chat_messages", "chats"]

chats = sa.Table(
    "chats",
    metadata,
    sa.Column("chat_id", sa.String(64), primary_key=True),
    sa.Column("agent_name", sa.String(100), nullable=False),
    sa.Column("title", sa.Text, nullable=False, server_default=""),
    sa.Column("workspace", sa.Text),
    sa.Column("profile", sa.String(50), nullable=False),
    sa.Column("trace_id", sa.String(64), nullable=False),
    # Set where it is the conversation of a task's attempts and not a person's own.
    sa.Column("task_id", sa.String(64)),
    sa.Column("created_by", sa.String(100), nullable=False),
    sa.Column("state", sa.String(10), nullable=False, server_default="idle"),
    sa.Column("outcome", sa.String(12)),
    sa.Column("turn", sa.Integer, nullable=False, server_default="0"),
    sa.Column("owner", sa.String(350)),
    moment("owned_until"),
    json_column("waiting_for", "[]"),
    json_column("history", "[]"),
    # Calls whose arguments were not kept whole, because they hold a secret: they are never carried out from here.
    json_column("withheld", "[]"),
    sa.Column("messages", sa.Integer, nullable=False, server_default="0"),
    created(),
    created("updated_at"),
    sa.CheckConstraint("state IN ('idle','running','parked')", name="state"),
)
sa.Index("ix_chats_state", chats.c.state, chats.c.updated_at)
sa.Index("ix_chats_trace", chats.c.trace_id)

chat_messages = sa.Table(
    "chat_messages",
    metadata,
    sa.Column("chat_id", sa.String(64), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("turn", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("text", sa.Text, nullable=False, server_default=""),
    sa.Column("tool_name", sa.String(100)),
    sa.Column("call_key", sa.String(128)),
    sa.Column("input_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("output_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("micro_usd", sa.BigInteger),
    json_column("details", "{}"),
    created(),
    sa.CheckConstraint("role IN ('user','assistant','tool','note')", name="role"),
)
