"""Events: three closed sets; the canonical ten stay ten."""

from __future__ import annotations

import pytest

from proctor.protocol.errors import NonCanonicalEventError
from proctor.protocol.events import CANONICAL, EVENTS, SYSTEM, WORKER, Draft, EventKind, register


def test_canonical_events_are_the_seeds_ten() -> None:
    """The closed set is exactly seed 002's."""
    assert len(CANONICAL) == 10
    assert {"plan_created", "tool_call_start", "approval_timeout", "budget_exceeded"} <= CANONICAL


@pytest.mark.parametrize("kind", list(EventKind))
def test_a_name_outside_its_set_is_refused(kind: EventKind) -> None:
    """Unknown names raise a ValueError that says so."""
    with pytest.raises(ValueError, match="Non-canonical event"):
        Draft(trace_id="t", event="made_up", kind=kind)


def test_sets_do_not_overlap() -> None:
    """A name tells its set."""
    assert not CANONICAL & WORKER
    assert not CANONICAL & SYSTEM
    assert not WORKER & SYSTEM


def test_plugins_extend_worker_events_but_never_the_canonical_ones() -> None:
    """A registered worker event is accepted; the canonical set refuses additions."""
    register(EventKind.WORKER, "plugin_event")
    assert Draft(trace_id="t", event="plugin_event", kind=EventKind.WORKER).event in EVENTS[EventKind.WORKER]
    with pytest.raises(NonCanonicalEventError):
        register(EventKind.CANONICAL, "eleventh")
