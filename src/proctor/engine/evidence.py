"""Evidence of life, for those who only look: which executors and agent processes are there, without touching them.

Three answers: alive, gone, or not to be seen from here (another machine or container). Never imports dbos.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from proctor.agents.identity import ProcessIdentity, boot, start_time
from proctor.store.glance import Glance, as_moment

__all__ = ["ExecutorFact", "executors_seen", "process_alive"]

MAX_EXECUTORS = 200
# FlockLease (SQLite) writes this year: its rows do not run out, the process does.
FOREVER = 9999


@dataclass(frozen=True, slots=True)
class ExecutorFact:
    """One supervisor or worker, as its row and the process table show it."""

    executor_id: str
    kind: str
    host: str
    pid: int
    version: str
    started_at: datetime | None
    alive: bool | None


def executors_seen(look: Glance, now: datetime) -> list[ExecutorFact]:
    """Everybody who holds a lease or left one behind."""
    found = look.rows(
        "SELECT executor_id, kind, host, pid, pid_started, boot_id, version, started_at, expires_at"
        f" FROM executors ORDER BY started_at LIMIT {MAX_EXECUTORS}"
    )
    return [_executor(row, now) for row in found]


def _executor(row: Mapping[str, Any], now: datetime) -> ExecutorFact:
    return ExecutorFact(
        executor_id=row["executor_id"],
        kind=row["kind"],
        host=row["host"],
        pid=row["pid"],
        version=row["version"],
        started_at=as_moment(row["started_at"]),
        alive=_alive(row, now),
    )


def _alive(row: Mapping[str, Any], now: datetime) -> bool | None:
    ours, theirs = boot()[:64], row["boot_id"]
    if theirs == ours:
        return bool(start_time(row["pid"]) == row["pid_started"])
    until = as_moment(row["expires_at"])
    if until is not None and until.year < FOREVER:
        return until > now
    if row["host"] == socket.gethostname() and theirs.partition("/")[0] != ours.partition("/")[0]:
        return False  # the machine was started anew since
    return None


def process_alive(identity: str | None) -> bool | None:
    """Whether the process an attempt wrote down still runs; None when it cannot be told from here."""
    if not identity:
        return None
    try:
        process = ProcessIdentity.decode(identity)
    except (ValueError, KeyError, TypeError):
        return None
    return process.alive() if process.boot == boot() else None
