"""A desk of an executor: looks for its kind of work again and again, and does several at once until it is told to stop.

Level-triggered: a look that was missed heals itself. Whatever befalls one piece of work is its own; the desk goes on.
"""

from __future__ import annotations

import asyncio
from typing import Final

import sqlalchemy as sa
from loguru import logger

from proctor.protocol.errors import UnavailableError

__all__ = ["Desk"]

LOOK_SECONDS: Final = 1.0
STOP_SECONDS: Final = 10.0


class Desk:
    """The loop; a subclass says what is ready and how one is done."""

    kind = "work"

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()

    async def find(self) -> list[str]:
        """What to begin now, by its id; nothing that is at work here already."""
        raise NotImplementedError

    async def work(self, name: str) -> None:
        """Do one."""
        raise NotImplementedError

    def begun(self, name: str) -> None:
        """It is at work from now on."""

    def ended(self, name: str) -> None:
        """It is not at work any more, however it ended."""

    def wake(self) -> None:
        """Something may have changed: look now."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no more; what is at work gets a moment and is then left as it stands."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Look and work until stopped."""
        async with asyncio.TaskGroup() as group:
            at_work: set[asyncio.Task[None]] = set()
            while not self._stop.is_set():
                self._wake.clear()
                for name in await self._found():
                    self.begun(name)
                    one = group.create_task(self._one(name))
                    at_work.add(one)
                    one.add_done_callback(at_work.discard)
                await self._next()
            if at_work:
                _, late = await asyncio.wait(set(at_work), timeout=STOP_SECONDS)
                for one in late:
                    one.cancel()

    async def _found(self) -> list[str]:
        """A database that is away is looked at again later."""
        try:
            return await self.find()
        except (UnavailableError, sa.exc.SQLAlchemyError) as error:
            logger.error("looking for a {} failed, trying again: {}", self.kind, error)
            return []

    async def _next(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
        except TimeoutError:
            return

    async def _one(self, name: str) -> None:
        try:
            await self.work(name)
        except Exception as error:  # noqa: BLE001 - worker loop: one's trouble is its own, and is looked at again
            logger.error("{} {} was left as it stands: {!r}", self.kind, name, error)
            await asyncio.sleep(LOOK_SECONDS)
        finally:
            self.ended(name)
            self._wake.set()
