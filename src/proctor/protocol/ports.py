"""What lower rooms need from higher ones, as Protocols; `app` wires the concrete classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from proctor.protocol.events import Draft, Event

__all__ = ["Clock", "Doors", "EventSink", "SystemClock"]


class Clock(Protocol):
    """Where the time comes from, so that deadlines and leases can be tested without waiting."""

    def now(self) -> datetime:
        """The wall-clock time in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; for measuring and for time-outs."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The wall-clock time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        import time

        return time.monotonic()


class EventSink(Protocol):
    """Where events go. Returning means durable."""

    def append(self, drafts: Sequence[Draft]) -> list[Event]:
        """Write events; return them with their places once they are on disk."""
        ...


class Doors(Protocol):
    """The surfaces that a supervisor opens beside its work."""

    @property
    def http(self) -> str:
        """Where they are; empty while they are closed."""
        ...

    @property
    def busy(self) -> bool:
        """Whether somebody uses them now."""
        ...

    async def run(self, wake: Callable[[], None]) -> None:
        """Open them and serve until `close`; `wake` tells whoever executes, from any thread."""
        ...

    def close(self) -> None:
        """Begin to close: no new requests, running ones get a moment; comes back at once."""
        ...
