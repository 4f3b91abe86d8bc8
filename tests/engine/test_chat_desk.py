"""Chats at an executor's desk: one's trouble is its own, and many that wait hide none that may go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import cast

import pytest

from proctor.agents.model_chats import Chats, Watch
from proctor.agents.model_turn import TurnEnd, TurnOutcome
from proctor.engine import desk as desk_module
from proctor.engine.chat_desk import BATCH, ChatDesk
from proctor.store.database import Database
from proctor.store.tables import approvals, chats

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Front:
    """Goes on with chats as told; a defect for those that are to have one."""

    def __init__(self, broken: Iterable[str] = ()) -> None:
        self.asked: list[str] = []
        self.asked_again = asyncio.Event()
        self._broken = set(broken)

    async def go_on(self, chat_id: str, _watch: Watch) -> TurnEnd:
        """Break, or answer."""
        self.asked.append(chat_id)
        if chat_id in self._broken:
            raise RuntimeError("a defect")
        if self.asked.count(chat_id) > 1:
            self.asked_again.set()
        return TurnEnd(TurnOutcome.ANSWERED, "done")


def _desk(front: Front, database: Database) -> ChatDesk:
    return ChatDesk(cast("Chats", front), database)


def _park(database: Database, names: Iterable[str], question: str, status: str) -> None:
    """Chats that wait for one question."""
    row = {
        "agent_name": "SOLACE",
        "profile": "standard",
        "trace_id": "t",
        "created_by": "me",
        "state": "parked",
    }
    asked = {
        "trace_id": "t",
        "action": "x",
        "tool_name": "x",
        "risk_level": "low",
        "requested_at": NOON,
        "expires_at": NOON,
    }
    with database.write() as connection:
        connection.execute(approvals.insert().values(approval_id=question, status=status, **asked))
        for name in names:
            connection.execute(chats.insert().values(chat_id=name, waiting_for=[question], **row))


def test_many_chats_that_wait_hide_none_that_is_answered(database: Database) -> None:
    """However many are parked before it, the one whose question has its answer is found."""
    _park(database, [f"chat_{number:04}" for number in range(BATCH + 50)], "open", "pending")
    _park(database, ["chat_last"], "said", "approved")
    assert _desk(Front(), database).answered() == ["chat_last"]


async def test_a_chat_that_breaks_ends_neither_the_desk_nor_the_others(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect in one turn leaves that chat alone for a while; the other goes on and the desk still looks."""
    monkeypatch.setattr(desk_module, "LOOK_SECONDS", 0.02)
    _park(sqlite_database, ["chat_a", "chat_b"], "said", "approved")
    front = Front(broken=["chat_a"])
    desk = _desk(front, sqlite_database)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(desk.run())
        await front.asked_again.wait()  # so the desk has looked again after the defect
        desk.stop()
    assert front.asked.count("chat_a") == 1
    assert not desk.running
