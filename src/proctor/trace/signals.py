"""The golden signals, computed from events and always within their ranges: rates 0 to 1, times and counts ≥ 0.

A call that began and has not ended counts as a step but neither as success nor as error. A missing duration
is measured between the start and the end of the same call. Times are milliseconds.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

from proctor.protocol.events import Event, EventKind, EventStatus

__all__ = ["Latency", "Signals", "measure"]

_ENDS = {"tool_call_complete", "tool_call_error"}
_ANSWERS = {"approval_received", "approval_timeout"}
_USED = (("used", "limit"), ("used_calls", "total_calls"), ("used", "total"))


@dataclass(frozen=True, slots=True)
class Latency:
    """How long calls took, in milliseconds; zeros when none has ended."""

    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, slots=True)
class Signals:
    """What one trace (or any run of events) looks like from afar."""

    trace_id: str | None
    success_rate: float
    error_rate: float
    latency: Latency
    mean_steps_per_task: float
    approval_wait_time: float
    budget_utilization: float
    duration_ms: float
    total_steps: int
    errors: int
    total_events: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(events: Iterable[Event]) -> Signals:
    """Compute the signals of events in the order of the log, in one pass."""
    tally = _Tally()
    for event in events:
        tally.take(event)
    return tally.signals()


class _Tally:
    def __init__(self) -> None:
        self.trace_id: str | None = None
        self.mixed = False
        self.total = self.errors = self.starts = self.good = self.bad = 0
        self.first = self.last = 0.0
        self.durations = array("d")
        self.waits = array("d")
        self.open_calls: dict[Any, deque[float]] = defaultdict(deque)
        self.open_questions: dict[Any, deque[float]] = defaultdict(deque)
        self.tasks: set[str] = set()
        self.utilization = 0.0

    def take(self, event: Event) -> None:
        """Count one event."""
        at = event.ts.timestamp() * 1000
        self.first = at if self.total == 0 else min(self.first, at)
        self.last = max(self.last, at)
        self.mixed = self.mixed or (self.total > 0 and event.trace_id != self.trace_id)
        self.trace_id = event.trace_id
        self.total += 1
        self.errors += event.status is EventStatus.ERROR
        if event.kind is EventKind.CANONICAL:
            self._canonical(event, at)

    def _canonical(self, event: Event, at: float) -> None:
        if event.event == "tool_call_start":
            self.starts += 1
            self.tasks.add(event.task_id or "")
            self.open_calls[_call(event)].append(at)
        elif event.event in _ENDS:
            self._ended(event, at)
        elif event.event == "approval_requested":
            self.open_questions[event.details.get("approval_id")].append(at)
        elif event.event in _ANSWERS:
            asked = self.open_questions.get(event.details.get("approval_id"))
            if asked:
                self.waits.append(max(0.0, at - asked.popleft()))
        self._budget(event)

    def _ended(self, event: Event, at: float) -> None:
        failed = event.event == "tool_call_error" or event.status is EventStatus.ERROR
        self.bad += failed
        self.good += not failed
        self.tasks.add(event.task_id or "")
        waiting = self.open_calls.get(_call(event))
        began = waiting.popleft() if waiting else None
        took = event.duration_ms
        if took is None and began is not None:
            took = at - began
        if took is not None and math.isfinite(took):
            self.durations.append(max(0.0, took))

    def _budget(self, event: Event) -> None:
        inner = event.details.get("budget")
        share = _share(inner) if isinstance(inner, Mapping) else None
        share = _share(event.details) if share is None and event.event.startswith("budget_") else share
        if share is None and event.event == "budget_exceeded":
            share = 1.0
        self.utilization = self.utilization if share is None else share

    def signals(self) -> Signals:
        """What the count comes to."""
        ended = self.good + self.bad
        steps = max(self.starts, ended)
        return Signals(
            trace_id=None if self.mixed else self.trace_id,
            success_rate=self.good / ended if ended else 0.0,
            error_rate=self.bad / ended if ended else 0.0,
            latency=_latency(self.durations),
            mean_steps_per_task=steps / len(self.tasks) if self.tasks else 0.0,
            approval_wait_time=_mean(self.waits),
            budget_utilization=self.utilization,
            duration_ms=max(0.0, self.last - self.first) if self.total else 0.0,
            total_steps=steps,
            errors=self.errors,
            total_events=self.total,
        )


def _call(event: Event) -> tuple[Any, ...]:
    """What tells calls apart: their id, else tool and task in the order they began."""
    name = event.details.get("call_id")
    return (name,) if isinstance(name, str) else (event.tool_name, event.task_id, event.attempt)


def _share(facts: Mapping[str, Any]) -> float | None:
    given = facts.get("utilization")
    if _number(given):
        return min(1.0, max(0.0, given))
    for used_name, limit_name in _USED:
        used, limit = facts.get(used_name), facts.get(limit_name)
        if _number(used) and _number(limit):
            return _ratio(used, limit)
    return None


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _ratio(used: float, limit: float) -> float:
    """A limit of zero is a limit: any use of it is all of it."""
    if limit <= 0:
        return 1.0 if used > 0 else 0.0
    return min(1.0, max(0.0, used / limit))


def _latency(durations: array[float]) -> Latency:
    if not durations:
        return Latency()
    ranked = sorted(durations)
    return Latency(_rank(ranked, 0.50), _rank(ranked, 0.95), _rank(ranked, 0.99), _mean(durations))


def _rank(ranked: list[float], share: float) -> float:
    """Nearest rank: always a time that was really measured."""
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def _mean(values: array[float]) -> float:
    """Divides before it adds, so that a sum of huge values cannot overflow."""
    return math.fsum(value / len(values) for value in values) if values else 0.0
