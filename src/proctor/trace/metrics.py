"""Prometheus metrics of the trace, in a registry of their own. Labels come from closed sets only."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from proctor.protocol.events import Event

__all__ = ["CONTENT_TYPE", "TraceMetrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class TraceMetrics:
    """Counts what the writer commits; give it to `TraceWriter(observer=…)`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._events = Counter(
            "proctor_trace_events",
            "Events written.",
            ("kind", "event", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "proctor_trace_append_seconds",
            "From taking a batch to its commit.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._sizes = Histogram(
            "proctor_trace_batch_events", "Events in one commit.", buckets=_SIZES, registry=self.registry
        )
        self._last = Gauge("proctor_trace_last_seq", "Last place given out.", registry=self.registry)

    def batch(self, events: Sequence[Event], seconds: float) -> None:
        """Take notice of one committed batch."""
        tally = Tally((event.kind.value, event.event, event.status.value) for event in events)
        for labels, count in tally.items():
            self._events.labels(*labels).inc(count)
        self._seconds.observe(seconds)
        self._sizes.observe(len(events))
        self._last.set(events[-1].seq)

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)
