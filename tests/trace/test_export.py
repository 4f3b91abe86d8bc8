"""Exported lines are the events, can be checked again, and become spans."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from proctor.protocol.errors import UnavailableError
from proctor.protocol.events import Draft, Event, EventKind, EventStatus
from proctor.store.database import Database
from proctor.trace.export import export_jsonl, verify_jsonl
from proctor.trace.otlp import export_spans, otlp_exporter
from proctor.trace.reader import stream
from tests.trace.support import canonical, draft, put

START = datetime(2026, 1, 1, tzinfo=UTC)


def _fill(database: Database) -> list[str]:
    details: dict[str, Any] = {"text": "ünï\n\0", "n": 1.5, "deep": [{"a": None}]}
    put(
        database,
        [draft(f"trace_{n % 2}", details=details | {"i": n}, duration_ms=0.1 * n) for n in range(10)],
    )
    return list(export_jsonl(database))


def test_exported_lines_are_the_events(database: Database) -> None:
    """Each line reads back as the event that a reader sees."""
    lines = _fill(database)
    assert [Event.model_validate_json(line) for line in lines] == list(stream(database))
    assert len(list(export_jsonl(database, "trace_1"))) == 5


def test_an_exported_file_verifies_by_itself(sqlite_database: Database) -> None:
    """Whole files pass; so does the export of one trace."""
    lines = _fill(sqlite_database)
    report = verify_jsonl(lines)
    assert (report.ok, report.events, report.traces) == (True, 10, 2)
    assert verify_jsonl(export_jsonl(sqlite_database, "trace_0")).ok


def test_an_altered_file_is_found(sqlite_database: Database) -> None:
    """An edited, dropped or swapped line, and one that is no event."""
    lines = _fill(sqlite_database)
    edited = json.loads(lines[4]) | {"actor_name": "other"}
    assert verify_jsonl([*lines[:4], json.dumps(edited), *lines[5:]]).problems[0].kind == "edited"
    assert verify_jsonl([*lines[:4], *lines[5:]]).problems[0].kind == "dropped"
    assert not verify_jsonl([*lines[:2], lines[4], lines[3], lines[2], *lines[5:]]).ok
    assert not verify_jsonl([*lines[:2], "{", *lines[2:]]).ok


def _story() -> list[Draft]:
    def at(ms: int) -> datetime:
        return START + timedelta(milliseconds=ms)

    system: dict[str, Any] = {"kind": EventKind.SYSTEM, "task_id": "t1", "attempt": 1}
    call: dict[str, Any] = {"task_id": "t1", "attempt": 1, "tool_name": "run", "details": {"call_id": "c1"}}
    return [
        draft(event="task_added", kind=EventKind.SYSTEM, session_id="s1", ts=at(0)),
        draft(event="attempt_started", ts=at(10), **system),
        canonical("tool_call_start", ts=at(20), **call),
        draft(event="progress", task_id="t1", attempt=1, ts=at(30)),
        canonical("tool_call_error", ts=at(50), **call),
        draft(event="attempt_ended", ts=at(90), details={"input_tokens": 7, "output_tokens": 3}, **system),
        canonical("tool_call_complete", ts=at(100), tool_name="late", duration_ms=40.0),
        canonical("tool_call_start", ts=at(110), tool_name="open"),
    ]


def test_a_trace_becomes_spans_with_genai_names(sqlite_database: Database) -> None:
    """Root, attempt and calls nest; errors, tokens, missing starts and missing ends are told as they are."""
    put(sqlite_database, _story())
    exporter = InMemorySpanExporter()
    assert export_spans(stream(sqlite_database, "trace_a"), exporter) == 8
    spans = {span.name: span for span in exporter.get_finished_spans()}
    root, agent, call = spans["trace trace_a"], spans["invoke_agent claude"], spans["execute_tool run"]
    assert _parent(agent) == root.context.span_id
    assert _parent(call) == agent.context.span_id
    assert len({span.context.trace_id for span in spans.values()}) == 1
    assert call.status.status_code is StatusCode.ERROR
    assert _attributes(call)["gen_ai.tool.call.id"] == "c1"
    assert _attributes(agent)["gen_ai.usage.input_tokens"] == 7
    assert [event.name for event in agent.events] == ["progress"]
    late = spans["execute_tool late"]
    assert late.end_time is not None
    assert late.start_time is not None
    assert late.end_time - late.start_time == 40_000_000
    assert _attributes(spans["execute_tool open"])["proctor.interrupted"] is True
    assert _attributes(root)["gen_ai.conversation.id"] == "s1"


def _parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_missing_sdk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is optional; without it the sentence names the command."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(UnavailableError, match=r"pip install 'proctor\[otlp\]'"):
        export_spans([], InMemorySpanExporter())
    with pytest.raises(UnavailableError, match="otlp"):
        otlp_exporter("http://localhost:4318/v1/traces")
    assert EventStatus.ERROR.value == "error"
