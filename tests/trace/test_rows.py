"""From draft to stored row: whole, capped, redacted, and the same for writer and reader."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from proctor.protocol.errors import NonCanonicalEventError, UsageError
from proctor.protocol.events import ActorKind, Draft, Event, EventKind
from proctor.trace.rows import MAX_DETAILS, Prepared, build, decode, prepare, to_micros
from tests.trace.support import REDACTOR, draft

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


def _one(one: Draft) -> Prepared:
    (prepared,) = prepare([one], REDACTOR)
    return prepared


@given(st.dictionaries(st.text(max_size=10), JSON, max_size=5))
def test_any_details_become_text_that_reads_back_as_the_event_shows(details: dict[str, Any]) -> None:
    """The stored text, parsed, is exactly what the writer was handed back."""
    prepared = _one(draft(details=details))
    assert from_json(prepared.text) == prepared.details
    assert len(prepared.text.encode()) <= MAX_DETAILS


def test_what_is_handed_back_is_a_valid_event() -> None:
    """Building events without validation yields what validation would."""
    prepared = _one(draft(details={"a": [1, 2.5, None]}, task_id="t1", attempt=2, duration_ms=3))
    row = (7, prepared.trace_id, 4, *prepared.columns, prepared.text, b"\x01" * 32)
    event = build(prepared.values | {"seq": 7, "trace_seq": 4, "hash": "01" * 32})
    assert event == Event.model_validate_json(event.model_dump_json())
    assert decode(row) == event
    assert event.model_fields_set == set(Event.model_fields)
    assert (event.kind, event.actor, event.duration_ms) == (EventKind.WORKER, ActorKind.AGENT, 3.0)


@pytest.mark.parametrize(
    "raw",
    ["x" * 1_300_000, "é\n" * 100_000, {"deep": ["y" * 100_000] * 3}, ["z"] * 100_000, b"\xff" * 300_000],
    ids=["long line", "wide", "nested", "many", "bytes"],
)
def test_a_native_payload_is_kept_raw_up_to_the_cap_and_marked(raw: Any) -> None:
    """Unknown output of an agent is no error; beyond 64 KiB it is cut and says so."""
    prepared = _one(draft(event="native", details={"raw": raw, "type": "item.odd"}))
    assert prepared.details["truncated"] is True
    assert prepared.details["type"] == "item.odd"
    assert MAX_DETAILS // 2 < len(prepared.text.encode()) <= MAX_DETAILS


def test_a_flood_of_keys_stays_under_the_cap() -> None:
    """Also many small entries fit, with a mark for the rest."""
    prepared = _one(draft(details={f"key {n}": n for n in range(50_000)}))
    assert len(prepared.text) <= MAX_DETAILS
    assert prepared.details["truncated"] is True


def test_a_secret_at_the_cut_does_not_escape() -> None:
    """Redaction sees the whole secret before anything is cut."""
    secret = "hunter2-very-secret"
    for pad in (MAX_DETAILS - 20, MAX_DETAILS * 2 - 10, MAX_DETAILS * 2 - 8 * 1024 - 10):
        text = _one(draft(details={"raw": "a" * pad + secret + "b" * MAX_DETAILS * 2})).text
        assert "hunter2" not in text


def test_a_secret_inside_an_object_is_seen() -> None:
    """Objects are made plain before redaction, so nothing hides in them."""

    class Thing:
        def __str__(self) -> str:
            return "token hunter2-very-secret"

    prepared = _one(draft(details={"a": Thing(), "b": ("hunter2-very-secret",), "c": b"hunter2-very-secret"}))
    assert "hunter2" not in prepared.text


@pytest.mark.parametrize("trace_id", ["", "a\nb", "x" * 65, "ä", "a\0"])
def test_an_identifier_is_taken_whole_or_refused(trace_id: str) -> None:
    """A cut or cleaned identifier would name another thing."""
    with pytest.raises(UsageError, match="identifier"):
        prepare([draft(trace_id)], REDACTOR)


def test_numbers_that_no_database_holds_are_refused_or_left_out() -> None:
    """A NaN duration is unknown, an absurd attempt is a mistake, a time needs a zone."""
    assert _one(draft(duration_ms=math.nan)).values["duration_ms"] is None
    with pytest.raises(UsageError, match="attempt"):
        prepare([draft(attempt=1 << 31)], REDACTOR)
    with pytest.raises(UsageError, match="zone"):
        to_micros(datetime(2026, 1, 1))  # noqa: DTZ001


@given(st.datetimes(timezones=st.just(UTC)))
def test_moments_come_back_to_the_microsecond(moment: datetime) -> None:
    """Nothing is lost between a draft's time and an event's."""
    row = (1, "t", 1, to_micros(moment), "worker", "message", "success", "agent", "", *[None] * 5, "{}", b"")
    assert decode(row).ts == moment


def test_the_ten_canonical_events_are_closed() -> None:
    """Another name is a ValueError that says so."""
    with pytest.raises(ValueError, match="Non-canonical event"):
        Draft("t", "made_up", kind=EventKind.CANONICAL)
    with pytest.raises(NonCanonicalEventError):
        Draft("t", "made_up", kind=EventKind.WORKER)


def test_many_drafts_keep_their_order_through_grouped_redaction() -> None:
    """Groups for the redactor do not mix events up, and one secret marks only its own."""
    drafts = [draft(details={"n": n, "text": "x" * (n * 37 % 700)}) for n in range(200)]
    drafts[99] = draft(details={"n": 99, "text": "hunter2-very-secret"})
    prepared = prepare(drafts, REDACTOR)
    assert [one.details["n"] for one in prepared] == list(range(200))
    assert [n for n, one in enumerate(prepared) if "REDACTED" in one.text] == [99]
