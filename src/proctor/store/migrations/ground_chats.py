"""The tables of chats of the first release, as they were on that day; part of the ground migration."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from proctor.store.types import UtcDateTime, UtcNow

__all__ = ["add_chat_tables"]


def _json(name: str, default: str) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=False, server_default=sa.text(f"'{default}'"))


def _created(name: str = "created_at") -> sa.Column[Any]:
    return sa.Column(name, UtcDateTime(), nullable=False, server_default=UtcNow())


def add_chat_tables(metadata: sa.MetaData) -> None:
    """Describe them in the migration's own metadata."""
    _chats(metadata)
    _chat_messages(metadata)


def _chats(metadata: sa.MetaData) -> None:
    chats = sa.Table(
        "chats",
        metadata,
        sa.Column("chat_id", sa.String(64), primary_key=True),
        sa.Column("agent_name", sa.String(100), nullable=False),
        sa.Column("title", sa.Text, nullable=False, server_default=""),
        sa.Column("workspace", sa.Text),
        sa.Column("profile", sa.String(50), nullable=False),
        sa.Column("trace_id", sa.String(64), nullable=False),
        sa.Column("task_id", sa.String(64)),
        sa.Column("created_by", sa.String(100), nullable=False),
        sa.Column("state", sa.String(10), nullable=False, server_default="idle"),
        sa.Column("outcome", sa.String(12)),
        sa.Column("turn", sa.Integer, nullable=False, server_default="0"),
        sa.Column("owner", sa.String(350)),
        sa.Column("owned_until", UtcDateTime()),
        _json("waiting_for", "[]"),
        _json("history", "[]"),
        _json("withheld", "[]"),
        sa.Column("messages", sa.Integer, nullable=False, server_default="0"),
        _created(),
        _created("updated_at"),
        sa.CheckConstraint("state IN ('idle','running','parked')", name="state"),
    )
    sa.Index("ix_chats_state", chats.c.state, chats.c.updated_at)
    sa.Index("ix_chats_trace", chats.c.trace_id)


def _chat_messages(metadata: sa.MetaData) -> None:
    sa.Table(
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
        _json("details", "{}"),
        _created(),
        sa.CheckConstraint("role IN ('user','assistant','tool','note')", name="role"),
    )
