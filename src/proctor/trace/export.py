"""JSONL export: one event a line, streamed, with what is needed to check the file again without the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_core import from_json, to_json

from proctor.protocol.events import Event
from proctor.store.database import Database
from proctor.trace.chain import GENESIS, link
from proctor.trace.reader import stream
from proctor.trace.rows import to_micros
from proctor.trace.verify import Problem, Report

__all__ = ["as_line", "export_jsonl", "verify_jsonl"]


def export_jsonl(database: Database, trace_id: str | None = None) -> Iterator[str]:
    """Lines (with their ends) of one trace or of the whole log up to now."""
    for event in stream(database, trace_id):
        yield as_line(event) + "\n"


def as_line(event: Event) -> str:
    """One event as one line of JSON."""
    return to_json(event.__dict__).decode()


def verify_jsonl(lines: Iterable[str]) -> Report:
    """Check that exported lines are whole and in order: each hash follows from the one before it.

    A file has no sealed head, so a cut end cannot be seen here; compare the last hash with the database.
    """
    report = Report()
    ends: dict[str, tuple[int, bytes]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            _check_line(line, number, ends, report)
    report.traces = len(ends)
    return report


def _check_line(line: str, number: int, ends: dict[str, tuple[int, bytes]], report: Report) -> None:
    try:
        event = Event.model_validate_json(line)
        raw: dict[str, Any] = from_json(line)
    except ValueError:
        report.add(Problem("edited", f"line {number} is not an event"))
        return
    report.events += 1
    known = ends.get(event.trace_id)
    place, previous = known or (0, GENESIS)
    wrong = None
    if event.trace_seq != place + 1 and (known or event.trace_seq == 1):
        kind = "dropped" if event.trace_seq > place else "reordered"
        wrong = Problem(kind, f"line {number} does not follow", event.trace_id, event.seq, event.trace_seq)
    elif (known or event.trace_seq == 1) and link(
        previous, _facts(event), to_json(raw.get("details", {}))
    ).hex() != event.hash:
        message = f"line {number} is not as it was written"
        wrong = Problem("edited", message, event.trace_id, event.seq, event.trace_seq)
    if wrong:
        report.add(wrong)
    ends[event.trace_id] = (event.trace_seq, bytes.fromhex(event.hash) if len(event.hash) == 64 else GENESIS)


def _facts(event: Event) -> tuple[Any, ...]:
    return (
        event.seq,
        event.trace_id,
        event.trace_seq,
        to_micros(event.ts),
        event.kind.value,
        event.event,
        event.status.value,
        event.actor.value,
        event.actor_name,
        event.session_id,
        event.task_id,
        event.attempt,
        event.tool_name,
        event.duration_ms,
    )
