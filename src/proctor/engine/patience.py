"""Waiting for a database that is away for a moment: a restart of PostgreSQL is no reason to throw an agent's work away.

Safe to repeat: every change of the engine names attempt and owner, so the second of two writes changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from loguru import logger

from proctor.protocol.errors import StoreUnavailableError

__all__ = ["PATIENCE_SECONDS", "patiently"]

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.25


async def patiently(act: Callable[[], Awaitable[T]], *, seconds: float = PATIENCE_SECONDS) -> T:
    """Do it, again and again while the database cannot be reached; the last refusal goes to the caller."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await act()
        except StoreUnavailableError as error:
            if time.monotonic() >= deadline:
                raise
            logger.warning("waiting for the database: {}", error)
        await asyncio.sleep(PAUSE_SECONDS)
