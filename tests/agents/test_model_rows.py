"""The rows of chats on both databases: one owner, found by the end of their id, bounded texts, forgotten when old."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.agents import model_rows as rows
from proctor.agents.model_rows import Chat, ChatBusyError, ChatWaitsError, LostChatError
from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.ports import SystemClock
from proctor.store.database import Database
from proctor.store.tables import chats

NOW = SystemClock().now()
LATER = NOW + timedelta(minutes=30)


def opened(connection: sa.Connection, chat_id: str = "chat_0001", **more: Any) -> Chat:
    """A chat."""
    values = {"agent_name": "SOLACE", "profile": "standard", "trace_id": "trace_1", "created_by": "David"}
    return rows.insert(
        connection, chat_id=chat_id, **{**values, "created_at": NOW, "updated_at": NOW, **more}
    )


def take(connection: sa.Connection, chat: Chat, owner: str, **more: Any) -> str:
    """Claim it."""
    return rows.claim(connection, chat, owner, **{"until": LATER, "now": NOW, "new_turn": True, **more})


def test_one_owner_at_a_time_and_a_stale_look_does_not_count(database: Database) -> None:
    """Who looked before another claimed is refused by the update itself; the loser's writes are, too."""
    owner = rows.new_owner()
    with database.write() as connection:
        seen = opened(connection)
        assert take(connection, seen, owner) == "idle"
        assert rows.find(connection, seen.chat_id).turn == 1
        for look in (seen, rows.find(connection, seen.chat_id)):
            with pytest.raises(ChatBusyError):
                take(connection, look, "another@x")
        take(connection, rows.find(connection, seen.chat_id), "forced@x", force=True)
        with pytest.raises(LostChatError):
            rows.update(connection, seen.chat_id, owner, {"state": "idle"})
    rows.let_go(owner)


def test_a_turn_that_nobody_runs_is_interrupted_and_a_parked_one_takes_no_new_words(
    database: Database,
) -> None:
    """A living process that let go, one past its time, and one of this machine that is gone."""
    with database.write() as connection:
        chat = opened(connection)
        owner = rows.new_owner()
        take(connection, chat, owner)
        assert rows.find(connection, chat.chat_id).stands(NOW) == "running"
        assert rows.find(connection, chat.chat_id).stands(LATER + timedelta(hours=1)) == "interrupted"
        rows.let_go(owner)
        left = rows.find(connection, chat.chat_id)
        assert left.stands(NOW) == "interrupted"
        assert take(connection, left, "next@x", new_turn=False) == "interrupted"
        rows.update(
            connection, chat.chat_id, "next@x", {"state": "parked", "owner": None, "waiting_for": ["appr_1"]}
        )
        with pytest.raises(ChatWaitsError, match="appr_1"):
            take(connection, rows.find(connection, chat.chat_id), "third@x")
        assert take(connection, rows.find(connection, chat.chat_id), "third@x", new_turn=False) == "parked"


def test_a_transcript_is_capped_counted_and_adds_up(database: Database) -> None:
    """Long texts say that they are cut, NUL does no harm, an unknown price is not counted as nothing."""
    with database.write() as connection:
        chat = opened(connection)
        said: list[dict[str, Any]] = [
            {"role": "user", "text": "x" * 30_000},
            {"role": "assistant", "text": "a\0b", "input_tokens": 10, "output_tokens": 2, "micro_usd": 5},
            {
                "role": "assistant",
                "text": "",
                "input_tokens": 1,
                "output_tokens": 1,
                "micro_usd": None,
                "attempt": 2,
            },
        ]
        rows.add_messages(connection, chat.chat_id, 1, said, NOW)
        told = rows.transcript(connection, chat.chat_id, after=0, limit=10)
        assert [row["seq"] for row in told] == [1, 2, 3]
        assert "truncated: 30000" in told[0]["text"]
        assert told[1]["text"] == "a�b"
        assert rows.spent(connection, chat.chat_id) == (11, 3, 5, False)
        assert rows.spent(connection, chat.chat_id, attempt=2) == (1, 1, 0, False)
        connection.execute(chats.update().values(messages=rows.MOST_MESSAGES))
        with pytest.raises(UsageError, match="open a new one"):
            take(connection, rows.find(connection, chat.chat_id), "x@y")


def test_chats_are_found_by_the_end_of_their_id_and_forgotten_when_old(database: Database) -> None:
    """An end that fits two is none; an open chat is never forgotten."""
    with database.write() as connection:
        opened(connection, "chat_aa_same")
        opened(connection, "chat_bb_same")
        old = NOW - timedelta(days=100)
        opened(connection, "chat_old", updated_at=old)
        opened(connection, "chat_waits", updated_at=old, state="parked")
        assert rows.find(connection, "a_same").chat_id == "chat_aa_same"
        for name in ("same", "%", "me", "_same"):
            with pytest.raises(NotFoundError):
                rows.find(connection, name)
        assert rows.forget(connection, NOW - timedelta(days=90)) == 1
        with pytest.raises(NotFoundError):
            rows.find(connection, "chat_old")
        assert rows.find(connection, "chat_waits").state == "parked"
