"""Retention: old events leave from the front of their traces, a sealed tombstone stays, the rest still verifies.

What is taken out is verified first: pruning must never be the way to hide an alteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from proctor.protocol.errors import IntegrityError
from proctor.protocol.events import Draft
from proctor.store.database import Database
from proctor.store.tables import events, trace_heads, trace_tombstones
from proctor.trace.chain import Head, Tombstone
from proctor.trace.log import append_in, lock_log, read_heads
from proctor.trace.rows import Redacts, to_micros
from proctor.trace.verify import verify_prefix

__all__ = ["RETENTION_TRACE", "Pruned", "prunable", "prune"]

RETENTION_TRACE = "retention"
_CHUNK = 5000  # events in one transaction, so that writers wait for moments only
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was taken out of one trace."""

    trace_id: str
    removed: int
    through_trace_seq: int


class _Plain:
    """Retention's own events hold names and numbers; there is nothing to redact."""

    def text(self, s: str, /) -> str:
        return s

    def value(self, v: object, /) -> object:
        return v


def prunable(
    database: Database, *, older_than: datetime, keep: int = 0, spare: Collection[str] = ()
) -> Iterator[Pruned]:
    """What `prune` would take out of each trace, without doing it."""
    cutoff = to_micros(min(older_than, datetime.now(UTC)))
    for name in _candidates(database, cutoff, keep):
        if name in spare:
            continue
        mine, place = events.c.trace_id == name, events.c.trace_seq
        first_young = sa.select(sa.func.min(place)).where(mine, events.c.ts >= cutoff)
        with database.read() as connection:
            young = connection.execute(first_young).scalar()
            front = sa.and_(mine, place < young) if young is not None else mine
            removed, through = connection.execute(
                sa.select(sa.func.count(), sa.func.max(place)).where(front)
            ).one()
        if removed:
            yield Pruned(name, removed, through)


def prune(
    database: Database,
    key: bytes,
    *,
    older_than: datetime,
    keep: int = 0,
    spare: Collection[str] = (),
    redactor: Redacts | None = None,
) -> list[Pruned]:
    """Take out events older than a moment, but nothing of the `keep` newest traces or of those to `spare`.

    Only the front of a trace can go: up to the first event that is young enough. What went is told in a trace of its
    own. Safe to interrupt.
    """
    # Never later than now: retention's own events must not become its next prey.
    cutoff = to_micros(min(older_than, datetime.now(UTC)))
    done: list[Pruned] = []
    for name in list(_candidates(database, cutoff, keep)):
        if name in spare:
            continue
        removed = 0
        while one := _prune_chunk(database, key, name, cutoff, redactor or _Plain()):
            removed += one.removed
            done_through = one.through_trace_seq
        if removed:
            done.append(Pruned(name, removed, done_through))
    return done


_newest = (
    sa.select(
        trace_heads.c.trace_id,
        trace_heads.c.first_seq,
        trace_heads.c.started,
        (trace_heads.c.count - sa.func.coalesce(trace_tombstones.c.removed, 0)).label("left"),
    )
    .select_from(
        trace_heads.outerjoin(trace_tombstones, trace_tombstones.c.trace_id == trace_heads.c.trace_id)
    )
    .where(trace_heads.c.trace_id != "")
    .order_by(trace_heads.c.first_seq.desc())
)


def _candidates(database: Database, cutoff: int, keep: int) -> Iterator[str]:
    """Names of traces that began before the moment, newest first, after the ones to keep."""
    before: int | None = None
    skip = keep
    while True:
        query = _newest.limit(_PAGE)
        if before is not None:
            query = query.where(trace_heads.c.first_seq < before)
        with database.read() as connection:
            found = connection.execute(query).fetchall()
        yield from (row.trace_id for row in found[skip:] if row.started < cutoff and row.left)
        skip = max(0, skip - len(found))
        if len(found) < _PAGE:
            return
        before = found[-1].first_seq


def _prune_chunk(database: Database, key: bytes, name: str, cutoff: int, redactor: Redacts) -> Pruned | None:
    with database.write() as connection:
        lock_log(connection, key)
        head = read_heads(connection, {name}, key)[name]
        through = _through(connection, name, cutoff)
        if through is None:
            return None
        stone = _checked(connection, head, through, key)
        _bury(connection, stone, key)
        before = events.delete().where(events.c.trace_id == name, events.c.trace_seq <= through)
        removed = connection.execute(before).rowcount
        details = {"trace_id": name, "removed": removed, "through_trace_seq": through}
        append_in(
            connection, [Draft(RETENTION_TRACE, "trace_pruned", details=details)], key=key, redactor=redactor
        )
    return Pruned(name, removed, through)


def _through(connection: sa.Connection, name: str, cutoff: int) -> int | None:
    """The last place of the front that may go now; None when there is none."""
    mine = events.c.trace_id == name
    first = connection.execute(sa.select(sa.func.min(events.c.trace_seq)).where(mine)).scalar()
    if first is None:
        return None
    chunk = sa.select(events.c.trace_seq, events.c.ts).where(mine, events.c.trace_seq >= first)
    through: int | None = None
    for place, ts in connection.execute(chunk.order_by(events.c.trace_seq).limit(_CHUNK)):
        if ts >= cutoff:
            break
        through = place
    return through


def _checked(connection: sa.Connection, head: Head, through: int, key: bytes) -> Tombstone:
    report, stone, last = verify_prefix(connection, head, through)
    if stone is not None and not stone.sealed(key):
        raise IntegrityError(
            what=f"The tombstone of trace {head.trace_id}", reason="it does not carry our seal"
        )
    if not report.ok:
        raise IntegrityError(what=f"Trace {head.trace_id}", reason=report.problems[0].message)
    return Tombstone(head.trace_id, through, last, through)


def _bury(connection: sa.Connection, stone: Tombstone, key: bytes) -> None:
    table = trace_tombstones
    values = {
        "through_trace_seq": stone.through_trace_seq,
        "through_hash": stone.through_hash,
        "removed": stone.removed,
        "mac": stone.seal(key),
    }
    mine = table.c.trace_id == stone.trace_id
    if connection.execute(table.update().where(mine).values(values)).rowcount == 0:
        connection.execute(table.insert().values(trace_id=stone.trace_id, **values))
