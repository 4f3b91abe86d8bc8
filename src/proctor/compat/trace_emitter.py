"""Seed 002's `TraceEmitter` over the real log: durable, redacted, chained; only the ten canonical events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.compat.house import House, shared_house
from proctor.protocol.events import CANONICAL, Draft, Event, EventKind, EventStatus
from proctor.protocol.ids import new_id
from proctor.trace.reader import stream
from proctor.trace.signals import measure

__all__ = ["TraceEmitter", "as_seed_event"]


def as_seed_event(event: Event) -> dict[str, Any]:
    """An event in the seed's words."""
    return {
        "event": event.event,
        "trace_id": event.trace_id,
        "timestamp": event.ts.isoformat(),
        "details": event.details,
        "status": event.status.value,
        "tool_name": event.tool_name,
        "duration_ms": event.duration_ms,
    }


class TraceEmitter:
    """Writes to and reads from one trace."""

    CANONICAL_EVENTS = CANONICAL

    def __init__(self, trace_id: str | None = None, *, house: House | None = None) -> None:
        self.house = house or shared_house()
        self.trace_id = trace_id or new_id("trace")

    def emit(self, event: str, details: Mapping[str, Any] | None = None, status: str = "pending") -> None:
        """Write one canonical event; returning means it is on disk. Another name is a ValueError."""
        facts = dict(details or {})
        named = facts.get("tool_name", facts.get("tool"))
        took = facts.get("duration_ms")
        draft = Draft(
            trace_id=self.trace_id,
            event=event,
            kind=EventKind.CANONICAL,
            status=EventStatus(status),
            tool_name=named if isinstance(named, str) else None,
            duration_ms=float(took) if isinstance(took, int | float) else None,
            details=facts,
        )
        self.house.app.writer.append([draft])

    @property
    def events(self) -> list[dict[str, Any]]:
        """The trace so far."""
        return self.get_trace()

    def get_trace(self) -> list[dict[str, Any]]:
        """All canonical events of this trace, whoever wrote them."""
        found = stream(self.house.app.database, self.trace_id)
        return [as_seed_event(event) for event in found if event.kind is EventKind.CANONICAL]

    def get_duration_ms(self) -> float:
        """From the first event to the last."""
        return float(self.get_golden_signals()["duration_ms"])

    def get_golden_signals(self) -> dict[str, Any]:
        """Rates, latencies, waits and budget, always within their ranges."""
        found = measure(stream(self.house.app.database, self.trace_id)).as_dict()
        return {**found, "trace_id": self.trace_id, "tool_error_rate": found["error_rate"]}
