"""The golden signals stay within their ranges whatever the events are, and are right where we can count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocol.events import CANONICAL, EVENTS, ActorKind, Event, EventKind, EventStatus
from proctor.trace.signals import Signals, measure

START = datetime(2026, 1, 1, tzinfo=UTC)


def _event(name: str, ms: float = 0, **rest: Any) -> Event:
    failed = name == "tool_call_error"
    facts: dict[str, Any] = {
        "seq": 1,
        "trace_id": "t",
        "trace_seq": 1,
        "ts": START + timedelta(milliseconds=ms),
        "kind": EventKind.CANONICAL,
        "event": name,
        "status": EventStatus.ERROR if failed else EventStatus.SUCCESS,
        "actor": ActorKind.AGENT,
        "hash": "",
    }
    return Event(**(facts | rest))


_NUMBERS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
_DETAILS = st.dictionaries(
    st.sampled_from(["call_id", "approval_id", "utilization", "used", "limit", "used_calls", "total_calls"]),
    _NUMBERS,
    max_size=3,
)


@st.composite
def _events(draw: st.DrawFn) -> Event:
    kind = draw(st.sampled_from(EventKind))
    name = draw(st.sampled_from(sorted(EVENTS[kind])))
    details: dict[str, Any] = draw(_DETAILS)
    if draw(st.booleans()):
        details = {**details, "budget": draw(_DETAILS)}
    return _event(
        name,
        draw(st.floats(-1e9, 1e9)),
        kind=kind,
        status=draw(st.sampled_from(EventStatus)),
        task_id=draw(st.sampled_from([None, "a", "b"])),
        tool_name=draw(st.sampled_from([None, "x"])),
        duration_ms=draw(st.none() | st.floats()),
        details=details,
    )


def _values(signals: Signals) -> dict[str, float]:
    flat = signals.as_dict()
    return {
        name: value for name, value in (flat | flat.pop("latency")).items() if isinstance(value, int | float)
    }


@settings(deadline=None, max_examples=60)
@given(st.lists(_events(), max_size=20))
def test_signals_are_always_within_their_ranges(events: Sequence[Event]) -> None:
    """Starts without ends, ends without starts, clocks that go back, absurd numbers: never outside."""
    signals = measure(events)
    for value in _values(signals).values():
        assert math.isfinite(value)
        assert value >= 0
    for rate in (signals.success_rate, signals.error_rate, signals.budget_utilization):
        assert 0 <= rate <= 1
    assert round(signals.success_rate + signals.error_rate, 9) in {0.0, 1.0}
    assert signals.latency.p50 <= signals.latency.p95 <= signals.latency.p99
    assert signals.total_events == len(events)
    assert signals.errors <= len(events)


def test_rates_latency_and_steps_of_a_plain_trace() -> None:
    """Two tasks, four calls, one of them failed, one still running."""
    signals = measure(
        [
            _event("tool_call_start", 0, task_id="a", tool_name="x"),
            _event("tool_call_complete", 10, task_id="a", tool_name="x"),
            _event("tool_call_start", 20, task_id="a", details={"call_id": "1"}),
            _event("tool_call_start", 30, task_id="b", details={"call_id": "2"}),
            _event("tool_call_error", 60, task_id="a", details={"call_id": "1"}),
            _event("tool_call_complete", 70, task_id="b", details={"call_id": "2"}, duration_ms=99.0),
            _event("tool_call_start", 1000, task_id="b"),
        ]
    )
    assert signals.success_rate == pytest.approx(2 / 3)
    assert signals.error_rate == pytest.approx(1 / 3)
    assert signals.latency.p50 == pytest.approx(40)
    assert signals.latency.p99 == 99.0
    assert signals.latency.mean == pytest.approx((10 + 40 + 99) / 3)
    assert (signals.total_steps, signals.mean_steps_per_task, signals.errors) == (4, 2.0, 1)
    assert signals.duration_ms == pytest.approx(1000)
    assert signals.trace_id == "t"


def test_approval_wait_is_measured_per_question() -> None:
    """Two open questions, answered in the other order."""
    asked = [_event("approval_requested", n, details={"approval_id": str(n)}) for n in (0, 100)]
    told = [
        _event("approval_received", 200, details={"approval_id": "100"}),
        _event("approval_timeout", 400, details={"approval_id": "0"}),
    ]
    assert measure([*asked, *told]).approval_wait_time == pytest.approx(250)


@pytest.mark.parametrize(
    ("details", "share"),
    [
        ({"used": 40, "limit": 50}, 0.8),
        ({"used": 3, "limit": 0}, 1.0),
        ({"used": 0, "limit": 0}, 0.0),
        ({"used": 70, "limit": 50}, 1.0),
        ({"utilization": 0.9}, 0.9),
    ],
)
def test_a_limit_of_zero_is_a_limit(details: dict[str, Any], share: float) -> None:
    """Utilization never divides by zero and never leaves 0 to 1."""
    assert measure([_event("budget_warning", details=details)]).budget_utilization == pytest.approx(share)
    assert measure([_event("tool_call_complete", details={"budget": details})]).budget_utilization == share


def test_nothing_measured_is_zero() -> None:
    """No events, no claim of success."""
    signals = measure([])
    assert set(_values(signals).values()) == {0}
    assert signals.trace_id is None
    assert len(CANONICAL) == 10
