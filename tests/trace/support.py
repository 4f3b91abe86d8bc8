"""What the tests of the trace share: a key, drafts of every kind, and programs that write and read elsewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proctor.protocol.events import ActorKind, Draft, Event, EventKind, EventStatus
from proctor.store.database import Database
from proctor.trace.log import append_in
from proctor.trace.redact import Redactor

__all__ = ["KEY", "REDACTOR", "address", "canonical", "draft", "put", "script"]

KEY = b"k" * 32
REDACTOR = Redactor(key=KEY, known=("hunter2-very-secret",), use_fast=False)


def draft(trace_id: str = "trace_a", event: str = "message", **rest: Any) -> Draft:
    """A worker's event unless told otherwise."""
    kind = rest.pop("kind", EventKind.WORKER)
    details = rest.pop("details", {"text": "did something"})
    return Draft(
        trace_id, event, kind=kind, actor=ActorKind.AGENT, actor_name="claude", details=details, **rest
    )


def canonical(event: str, trace_id: str = "trace_a", **rest: Any) -> Draft:
    """One of the ten."""
    status = rest.pop("status", EventStatus.ERROR if event == "tool_call_error" else EventStatus.SUCCESS)
    return draft(trace_id, event, kind=EventKind.CANONICAL, status=status, **rest)


def put(database: Database, drafts: Sequence[Draft]) -> list[Event]:
    """Append in one transaction."""
    with database.write() as connection:
        return append_in(connection, drafts, key=KEY, redactor=REDACTOR)


def address(database: Database) -> str:
    """The URL with its password, for another process."""
    return database.url.render_as_string(hide_password=False)


@contextmanager
def script(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program in a process of its own that never outlives the test."""
    root = Path(__file__).resolve().parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait(10)
        for pipe in (child.stdout, child.stdin):
            if pipe is not None:
                pipe.close()
