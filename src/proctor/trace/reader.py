"""Reading the log: pages of events, the newest traces, a trace by the beginning of its name; all capped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.events import Event
from proctor.store.database import Database
from proctor.store.tables import events, trace_heads, trace_tombstones
from proctor.trace.rows import COLUMNS, decode

__all__ = [
    "MAX_PAGE",
    "TraceInfo",
    "find_trace",
    "last_events",
    "last_seq",
    "page",
    "stream",
    "trace_events",
    "traces",
]

MAX_PAGE = 5000
_WHAT = 200
_ROW = [events.c[name] for name in COLUMNS]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """One line of the list of traces; everything in it comes from heads and events."""

    trace_id: str
    started: datetime
    ended: datetime | None
    events: int
    pruned: int
    last_event: str | None
    status: str | None
    actor_name: str | None
    session_id: str | None
    what: str | None = None
    """What it is about, from its first event: a tool, a task's description, else the event itself."""


def last_seq(connection: sa.Connection) -> int:
    """How far the log has come; 0 before the first event."""
    found = connection.execute(sa.select(trace_heads.c.last_seq).where(trace_heads.c.trace_id == "")).scalar()
    return int(found or 0)


def page(
    connection: sa.Connection,
    *,
    after: int = 0,
    through: int | None = None,
    limit: int = 500,
    session_id: str | None = None,
    kinds: Sequence[str] | None = None,
) -> list[Event]:
    """Events of the whole log after a `seq`, in order, at most `limit`."""
    query = sa.select(*_ROW).where(events.c.seq > after).order_by(events.c.seq).limit(min(limit, MAX_PAGE))
    if through is not None:
        query = query.where(events.c.seq <= through)
    return _fetch(connection, _filtered(query, session_id, kinds))


def trace_events(
    connection: sa.Connection,
    trace_id: str,
    *,
    after: int = 0,
    through: int | None = None,
    limit: int = 500,
    session_id: str | None = None,
    kinds: Sequence[str] | None = None,
) -> list[Event]:
    """Events of one trace after a `trace_seq`, in order, at most `limit`; `through` is a `seq`."""
    query = (
        sa.select(*_ROW)
        .where(events.c.trace_id == trace_id, events.c.trace_seq > after)
        .order_by(events.c.trace_seq)
        .limit(min(limit, MAX_PAGE))
    )
    if through is not None:
        query = query.where(events.c.seq <= through)
    return _fetch(connection, _filtered(query, session_id, kinds))


def last_events(
    connection: sa.Connection, trace_id: str | None = None, *, limit: int = 50
) -> tuple[list[Event], int]:
    """The newest events of a trace (or of the log) in order, and how many were ever written to it."""
    query = sa.select(*_ROW).limit(min(limit, MAX_PAGE))
    if trace_id is None:
        query = query.order_by(events.c.seq.desc())
    else:
        query = query.where(events.c.trace_id == trace_id).order_by(events.c.trace_seq.desc())
    total = sa.select(trace_heads.c.count).where(trace_heads.c.trace_id == (trace_id or ""))
    found = _fetch(connection, query)[::-1]
    return found, int(connection.execute(total).scalar() or 0)


def _filtered(query: sa.Select[Any], session_id: str | None, kinds: Sequence[str] | None) -> sa.Select[Any]:
    if session_id is not None:
        query = query.where(events.c.session_id == session_id)
    if kinds is not None:
        query = query.where(events.c.kind.in_([str(kind) for kind in kinds]))
    return query


def _fetch(connection: sa.Connection, query: sa.Select[Any]) -> list[Event]:
    return [decode(row) for row in connection.execute(query)]


def stream(database: Database, trace_id: str | None = None, *, batch: int = 1000) -> Iterator[Event]:
    """All events of a trace (or of the log) up to now, in order, holding one batch at a time."""
    with database.read() as connection:
        through = last_seq(connection)
    after, size = 0, min(batch, MAX_PAGE)
    while True:
        with database.read() as connection:
            if trace_id is None:
                found = page(connection, after=after, through=through, limit=size)
            else:
                found = trace_events(connection, trace_id, after=after, through=through, limit=size)
        yield from found
        if len(found) < size:
            return
        after = found[-1].seq if trace_id is None else found[-1].trace_seq


def traces(database: Database, *, limit: int = 50, before: int | None = None) -> list[TraceInfo]:
    """The newest traces first, with counts and how their last event stands; `before` pages by `first_seq`."""
    head, last, gone = trace_heads, events, trace_tombstones
    query = (
        sa.select(
            head.c.trace_id, head.c.first_seq, head.c.started, head.c.count.label("total"), gone.c.removed,
            last.c.ts, last.c.event, last.c.status, last.c.actor_name, last.c.session_id,
        )
        .select_from(
            head.outerjoin(last, last.c.seq == head.c.last_seq)
            .outerjoin(gone, gone.c.trace_id == head.c.trace_id)
        )
        .where(head.c.trace_id != "")
        .order_by(head.c.first_seq.desc())
        .limit(min(limit, MAX_PAGE))
    )  # fmt: skip
    if before is not None:
        query = query.where(head.c.first_seq < before)
    with database.read() as connection:
        rows = list(connection.execute(query))
        begun = sa.select(*_ROW).where(events.c.seq.in_([row.first_seq for row in rows]))
        first = {event.trace_id: event for event in _fetch(connection, begun)}
    return [_info(row, first.get(row.trace_id)) for row in rows]


def _what(first: Event) -> str:
    about = first.details.get("description")
    return first.tool_name or (about[:_WHAT] if isinstance(about, str) else "") or first.event


def _info(row: Any, first: Event | None) -> TraceInfo:
    removed = row.removed or 0
    return TraceInfo(
        trace_id=row.trace_id,
        started=_moment(row.started),
        ended=None if row.ts is None else _moment(row.ts),
        events=row.total - removed,
        pruned=removed,
        last_event=row.event,
        status=row.status,
        actor_name=row.actor_name or None,
        session_id=row.session_id,
        what=None if first is None else _what(first),
    )


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def find_trace(database: Database, name: str) -> str:
    """The trace of that name, or the only one whose name begins so."""
    query = (
        sa.select(trace_heads.c.trace_id)
        .where(trace_heads.c.trace_id != "", trace_heads.c.trace_id.startswith(name, autoescape=True))
        .order_by(trace_heads.c.first_seq.desc())
        .limit(MAX_PAGE)
    )
    with database.read() as connection:
        # LIKE does not tell cases apart on SQLite; identifiers do.
        found = [one for one in connection.execute(query).scalars() if one.startswith(name)]
    if name in found or len(found) == 1:
        return name if name in found else found[0]
    if not found or not name:
        raise NotFoundError(kind="trace", name=name, cure="`proctor trace` lists the newest ones.")
    shown = ", ".join(found[:5]) + ("…" if len(found) > 5 else "")
    raise UsageError(message=f"{len(found)} traces begin with {name!r}: {shown}. Give more letters.")
