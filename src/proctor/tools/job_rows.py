"""The rows of background commands: found, judged, closed when their holder is dead, and removed when they are old.

A row without an end whose holder is gone is *interrupted*; whoever finds it so writes that down once, with an event, and
charges the time it held. No row is called running for ever.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json

from proctor.gate.later import charge_later
from proctor.protocol.events import Draft, EventStatus
from proctor.sandbox.identity import ProcessIdentity
from proctor.store.database import Database
from proctor.store.tables import calls, command_jobs, events

__all__ = ["close_dead_jobs", "facts_of", "find_job", "is_held", "prune_jobs"]

MOST_ROWS: Final = 5000  # ended ones beyond this number leave whatever their age
_CHUNK: Final = 500
_LATE: Final = timedelta(seconds=60)


def find_job(database: Database, job_id: str) -> Mapping[str, Any] | None:
    """The row of one job."""
    with database.read() as connection:
        wanted = sa.select(command_jobs).where(command_jobs.c.job_id == job_id)
        row = connection.execute(wanted).mappings().first()
    return None if row is None else dict(row)


def is_held(row: Mapping[str, Any], now: datetime) -> bool:
    """Whether its holder lives; of one on another machine we only know when it must have ended."""
    holder = ProcessIdentity.decode(row["holder"])
    if holder.boot == ProcessIdentity.of(os.getpid(), "").boot:
        return holder.alive()
    return bool(now < row["started_at"] + timedelta(seconds=row["seconds"]) + _LATE)


def close_dead_jobs(
    connection: sa.Connection, now: datetime, *, only: str | None = None
) -> tuple[int, list[Draft]]:
    """End the rows whose holder is gone, once: interrupted, charged for the time they held, told in their trace."""
    query = command_jobs.select().where(command_jobs.c.ended_at.is_(None)).limit(_CHUNK)
    if only is not None:
        query = query.where(command_jobs.c.job_id == only)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    drafts: list[Draft] = []
    dead = [row for row in rows if not is_held(row, now)]
    for row in dead:
        drafts += _close(connection, row, now)
    return len(dead), drafts


def _close(connection: sa.Connection, row: Mapping[str, Any], now: datetime) -> list[Draft]:
    mine = sa.and_(command_jobs.c.job_id == row["job_id"], command_jobs.c.ended_at.is_(None))
    if connection.execute(command_jobs.update().where(mine).values(ended_at=now)).rowcount == 0:
        return []
    # Nobody knows how far it came: at most until its limit, at most until now.
    spent = min((now - row["started_at"]).total_seconds(), row["seconds"] or float("inf"))
    facts = {**_call_of(connection, row), "call_id": row["call_id"], "trace_id": row["trace_id"]}
    known: dict[str, Any] = {name: facts.get(name) for name in ("session_id", "task_id", "attempt")}
    details = {"job_id": row["job_id"], "outcome": "interrupted", "error": "the process that ran it died"}
    told = Draft(
        row["trace_id"],
        "command_ended",
        status=EventStatus.ERROR,
        tool_name="start_command",
        details={**details, "charged_seconds": round(max(0.0, spent), 3)},
        **known,
    )
    lines = charge_later(
        connection, facts | {"tool_name": "start_command"}, millis=round(max(0.0, spent) * 1000)
    )
    return [told, *lines]


def _call_of(connection: sa.Connection, row: Mapping[str, Any]) -> dict[str, Any]:
    query = sa.select(calls.c.session_id, calls.c.task_id, calls.c.attempt).where(
        calls.c.call_id == row["call_id"]
    )
    found = connection.execute(query).mappings().first()
    return {} if found is None else dict(found)


def prune_jobs(
    database: Database, *, older_than: datetime, most: int = MOST_ROWS, dry_run: bool = False
) -> int:
    """Remove rows of commands that ended before a moment, and the oldest beyond a number; running ones stay."""
    ended = command_jobs.c.ended_at
    newest = sa.select(command_jobs.c.job_id).where(ended.is_not(None)).order_by(ended.desc()).limit(most)
    old = sa.and_(ended.is_not(None), sa.or_(ended < older_than, command_jobs.c.job_id.not_in(newest)))
    if dry_run:
        with database.read() as connection:
            count = sa.select(sa.func.count()).select_from(command_jobs).where(old)
            return int(connection.execute(count).scalar_one())
    removed = 0
    while True:
        with database.write() as connection:
            part = list(
                connection.execute(sa.select(command_jobs.c.job_id).where(old).limit(_CHUNK)).scalars()
            )
            connection.execute(command_jobs.delete().where(command_jobs.c.job_id.in_(part)))
        removed += len(part)
        if len(part) < _CHUNK:
            return removed


def facts_of(database: Database, row: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Everything a caller may know of a command that another process holds or held."""
    told = _told(database, row)
    running = row["ended_at"] is None and is_held(row, now)
    state = row["outcome"] or ("running" if running else "interrupted")
    end = row["ended_at"] or now
    return {
        "job_id": row["job_id"],
        "state": state,
        "running": running,
        "command": str(told.get("command", "")),
        "cwd": str(told.get("cwd", ".")),
        "progress": str(told.get("line", "")),
        "stdout": str(told.get("stdout", "")),
        "stderr": str(told.get("stderr", "")),
        "exit_code": row["exit_code"],
        "success": state == "completed",
        "truncated": bool(told.get("truncated", False)),
        "error": told.get("error"),
        "started_at": row["started_at"],
        "ended_at": row["ended_at"],
        "duration_ms": round((end - row["started_at"]).total_seconds() * 1000, 3),
        "cpu_seconds": told.get("cpu_seconds"),
        "sandbox": told.get("sandbox"),
    }


def _told(database: Database, row: Mapping[str, Any]) -> dict[str, Any]:
    """What its events say, the later over the earlier."""
    names = ("command_started", "command_progress", "command_ended")
    query = (
        sa.select(events.c.details)
        .where(events.c.trace_id == row["trace_id"], events.c.event.in_(names))
        .order_by(events.c.seq.desc())
        .limit(500)
    )
    with database.read() as connection:
        found = [from_json(text) for text in connection.execute(query).scalars()]
    whole: dict[str, Any] = {}
    for details in reversed(found):
        if details.get("job_id") == row["job_id"]:
            whole |= details
    return whole
