"""What lower rooms need from higher ones, as Protocols; `app` wires the concrete classes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from proctor.protocol.events import Draft, Event

__all__ = ["Clock", "EventSink", "SystemClock"]


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
