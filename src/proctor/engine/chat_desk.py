"""Chats in an executor: one that was parked for a person goes on here when they have answered, exactly once.

Level-triggered: each look takes the parked chats whose questions are all answered. One conditional update admits one runner,
so a chat that somebody goes on with elsewhere at that moment is theirs. An expired question leaves it parked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa
from loguru import logger

from proctor.agents.model_chats import Chats, Watch
from proctor.engine.desk import Desk
from proctor.store.database import Database
from proctor.store.tables import approvals, chats

__all__ = ["ChatDesk"]

MAX_RUNNING: Final = 8
BATCH: Final = 200
AGAIN_SECONDS: Final = 60.0


class ChatDesk(Desk):
    """Goes on with answered chats for one executor."""

    kind = "chat"

    def __init__(self, front: Chats, database: Database) -> None:
        super().__init__()
        self._chats = front
        self._database = database
        self._not_before: dict[str, float] = {}
        self.running: set[str] = set()

    def begun(self, name: str) -> None:
        """It goes on here."""
        self.running.add(name)

    def ended(self, name: str) -> None:
        """It has an answer, or was left as it stands."""
        self.running.discard(name)

    async def find(self) -> list[str]:
        """Chats to go on with now."""
        now = time.monotonic()
        self._not_before = {name: until for name, until in self._not_before.items() if until > now}
        room = MAX_RUNNING - len(self.running)
        found = await asyncio.to_thread(self.answered) if room > 0 else []
        return [chat_id for chat_id in found if chat_id not in self.running][:room]

    def answered(self) -> list[str]:
        """Parked chats that nothing keeps any more; those of tasks go on with their task."""
        now = time.monotonic()
        with self._database.read() as connection:
            free = [name for rows in _parked(connection) for name in _free(connection, rows)]
        return [name for name in free if self._not_before.get(name, 0.0) <= now]

    def waits(self) -> bool:
        """Whether a chat could go on now or is going on here."""
        return bool(self.running) or bool(self.answered())

    async def work(self, name: str) -> None:
        """Go on with one; whoever has it, or an agent that cannot work now, leaves it as it stands for a while."""
        self._not_before[name] = time.monotonic() + AGAIN_SECONDS
        end = await self._chats.go_on(name, Watch(supervised=True))
        self._not_before.pop(name, None)
        logger.info("chat {} went on: {}", name, end.outcome.value)


def _parked(connection: sa.Connection) -> Iterator[Sequence[sa.Row[Any, Any]]]:
    """Every parked chat that is no task's, page by page: many that wait must not hide one that is answered."""
    of_people = sa.and_(chats.c.state == "parked", chats.c.task_id.is_(None))
    query = sa.select(chats.c.chat_id, chats.c.waiting_for).where(of_people).order_by(chats.c.chat_id)
    last = ""
    while rows := connection.execute(query.where(chats.c.chat_id > last).limit(BATCH)).all():
        yield rows
        last = rows[-1].chat_id


def _free(connection: sa.Connection, rows: Sequence[sa.Row[Any, Any]]) -> list[str]:
    wanted = {one for row in rows for one in row.waiting_for}
    done = approvals.c.status.in_(["approved", "rejected", "void"])
    query = sa.select(approvals.c.approval_id).where(approvals.c.approval_id.in_(wanted), done)
    known = set(connection.execute(query).scalars()) if wanted else set()
    return [row.chat_id for row in rows if set(row.waiting_for) <= known]
