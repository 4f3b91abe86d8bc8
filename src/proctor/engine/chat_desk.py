"""Chats in an executor: one that was parked for a person goes on here when they have answered, exactly once.

Level-triggered: each look takes the parked chats whose questions are all answered. One conditional update admits one runner,
so a chat that somebody goes on with elsewhere at that moment is theirs. An expired question leaves it parked.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import sqlalchemy as sa
from loguru import logger

from proctor.agents.model_chats import Chats, Watch
from proctor.protocol.errors import ProctorError, UnavailableError
from proctor.store.database import Database
from proctor.store.tables import approvals, chats

__all__ = ["ChatDesk"]

LOOK_SECONDS: Final = 1.0
STOP_SECONDS: Final = 10.0
MAX_RUNNING: Final = 8
BATCH: Final = 200
AGAIN_SECONDS: Final = 60.0


class ChatDesk:
    """Goes on with answered chats for one executor."""

    def __init__(self, front: Chats, database: Database) -> None:
        self._chats = front
        self._database = database
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._not_before: dict[str, float] = {}
        self.running: set[str] = set()

    def wake(self) -> None:
        """Something may have changed: look now."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no more; what runs gets a moment and is then left as it stands."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Look and go on until stopped."""
        async with asyncio.TaskGroup() as group:
            at_work: set[asyncio.Task[None]] = set()
            while not self._stop.is_set():
                self._wake.clear()
                for chat_id in await self._ready():
                    self.running.add(chat_id)
                    one = group.create_task(self._one(chat_id))
                    at_work.add(one)
                    one.add_done_callback(at_work.discard)
                await self._next()
            if at_work:
                _, late = await asyncio.wait(set(at_work), timeout=STOP_SECONDS)
                for one in late:
                    one.cancel()

    async def _next(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
        except TimeoutError:
            return

    async def _ready(self) -> list[str]:
        try:
            room = MAX_RUNNING - len(self.running)
            found = await asyncio.to_thread(self.answered) if room > 0 else []
        except (UnavailableError, sa.exc.SQLAlchemyError) as error:
            logger.error("looking for chats failed, trying again: {}", error)
            return []
        return [chat_id for chat_id in found if chat_id not in self.running][:room]

    def answered(self) -> list[str]:
        """Parked chats that nothing keeps any more; those of tasks go on with their task."""
        parked = sa.select(chats.c.chat_id, chats.c.waiting_for).where(
            chats.c.state == "parked", chats.c.task_id.is_(None)
        )
        with self._database.read() as connection:
            rows = connection.execute(parked.order_by(chats.c.updated_at).limit(BATCH)).all()
            wanted = {one for row in rows for one in row.waiting_for}
            done = approvals.c.status.in_(["approved", "rejected", "void"])
            query = sa.select(approvals.c.approval_id).where(approvals.c.approval_id.in_(wanted), done)
            known = set(connection.execute(query).scalars()) if wanted else set()
        ready = [row.chat_id for row in rows if set(row.waiting_for) <= known]
        return [one for one in ready if self._not_before.get(one, 0.0) <= time.monotonic()]

    def waits(self) -> bool:
        """Whether a chat could go on now or is going on here."""
        return bool(self.running) or bool(self.answered())

    async def _one(self, chat_id: str) -> None:
        try:
            end = await self._chats.go_on(chat_id, Watch(supervised=True))
            logger.info("chat {} went on: {}", chat_id, end.outcome.value)
        except ProctorError as error:  # somebody else has it, or its agent cannot work now: it stays as it is
            logger.warning("chat {} was left as it stands: {}", chat_id, error)
            self._not_before[chat_id] = time.monotonic() + AGAIN_SECONDS
        finally:
            self.running.discard(chat_id)
            self._wake.set()
