"""Appending inside the caller's transaction: places, chain and heads are given out under one lock per batch.

The lock (SQLite: the IMMEDIATE transaction; PostgreSQL: the row of the log's own head) is held until commit,
so events become visible in the order of `seq`, without gaps, and `seq > last` never loses one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from proctor.protocol.errors import IntegrityError
from proctor.protocol.events import Draft, Event
from proctor.store.quick import drive
from proctor.trace.chain import GENESIS, LOG, Head, link, sum_seals
from proctor.trace.rows import COLUMNS, Prepared, Redacts, build, prepare

__all__ = [
    "CHANNEL",
    "EVENT",
    "NEW_HEAD",
    "append_in",
    "append_prepared",
    "is_written",
    "lock_log",
    "place",
    "read_heads",
    "read_log",
    "seal",
]

CHANNEL = "proctor_events"
_HEAD = "trace_id, first_seq, last_seq, count, hash, mac, started"
_HASH = sa.text("SELECT hash FROM events WHERE seq = :place")
_LOG_HEAD = f"SELECT {_HEAD} FROM trace_heads WHERE trace_id = ''"


def _insert(mark: str) -> str:
    return f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({', '.join([mark] * len(COLUMNS))})"


def _head_insert(mark: str) -> str:
    return f"INSERT INTO trace_heads ({_HEAD}) VALUES ({', '.join([mark] * 7)})"


_OR_MOVE = (
    " ON CONFLICT (trace_id) DO UPDATE"
    " SET last_seq = excluded.last_seq, count = excluded.count, hash = excluded.hash, mac = excluded.mac"
)
EVENT = {"sqlite": _insert("?"), "postgresql": _insert("%s")}
NEW_HEAD = {"sqlite": _head_insert("?"), "postgresql": _head_insert("%s")}
_HEADS = {
    "sqlite": f"SELECT {_HEAD} FROM trace_heads WHERE trace_id IN (SELECT value FROM json_each(?))",
    "postgresql": f"SELECT {_HEAD} FROM trace_heads WHERE trace_id = ANY(%s)",
}


def append_in(
    connection: sa.Connection, drafts: Sequence[Draft], *, key: bytes, redactor: Redacts
) -> list[Event]:
    """Write events in the caller's write transaction; they are durable when it commits, and not before."""
    return append_prepared(connection, prepare(drafts, redactor), key=key)


def append_prepared(
    connection: sa.Connection,
    drafts: Sequence[Prepared],
    *,
    key: bytes,
    log: Head | None = None,
    heads: dict[str, Head] | None = None,
) -> list[Event]:
    """Write prepared drafts; `log` is the head when the caller has locked it already, `heads` gets those that moved."""
    if not drafts:
        return []
    log = log or lock_log(connection, key)
    heads = {} if heads is None else heads
    heads |= read_heads(connection, {draft.trace_id for draft in drafts}, key)
    before = {name: head.mac for name, head in heads.items()}
    rows, events = place(drafts, log, heads)
    seal(log, heads, before, key)
    dialect = connection.dialect.name
    try:
        drive(connection, EVENT[dialect], rows, many=True)
    except sa.exc.IntegrityError as error:
        raise _collision(heads) from error
    sealed = [head.row() for head in (*heads.values(), log)]
    drive(connection, NEW_HEAD[dialect] + _OR_MOVE, sealed, many=True)
    if dialect == "postgresql":
        drive(connection, "SELECT pg_notify(%s, %s)", (CHANNEL, str(log.last_seq)))
    return events


def place(
    drafts: Sequence[Prepared], log: Head, heads: dict[str, Head]
) -> tuple[list[tuple[Any, ...]], list[Event]]:
    """Give every draft its place and hash; moves the heads along."""
    rows: list[tuple[Any, ...]] = []
    events: list[Event] = []
    seq = log.last_seq
    for trace_id, columns, raw, values in drafts:
        seq += 1
        head = heads.get(trace_id)
        if head is None:
            head = heads[trace_id] = Head(trace_id, seq, 0, 0, GENESIS, b"", columns[0])
        head.count = number = head.count + 1
        head.last_seq = seq
        facts = (seq, trace_id, number, *columns)
        head.hash = digest = link(head.hash, facts, raw)
        rows.append((*facts, raw.decode(), digest))
        values["seq"], values["trace_seq"], values["hash"] = seq, number, digest.hex()
        events.append(build(values))
    log.last_seq = seq
    log.count += len(rows)
    return rows, events


def seal(log: Head, heads: dict[str, Head], before: dict[str, bytes], key: bytes) -> None:
    """Seal the heads that moved; `before` are their seals of before, which leave the log's sum."""
    for name, head in heads.items():
        head.mac = head.seal(key)
        log.hash = sum_seals(log.hash, minus=before.get(name), plus=head.mac)
    log.mac = log.seal(key)


def _collision(heads: Iterable[str]) -> IntegrityError:
    names = ", ".join(sorted(heads)[:5])
    reason = f"the places of new events are taken (traces {names}); see `proctor trace verify`"
    return IntegrityError(what="The trace", reason=reason)


def lock_log(connection: sa.Connection, key: bytes) -> Head:
    """Take the lock that orders all writers and say where the log stands; refuses a head not ours."""
    lock = " FOR UPDATE" if connection.dialect.name == "postgresql" else ""
    row = drive(connection, _LOG_HEAD + lock).fetchone()
    if row is None:
        first = Head(LOG, 1, 0, 0, GENESIS, b"", 0)
        values = {**_as_dict(first), "mac": first.seal(key)}
        _begin_log(connection, values)
        row = connection.exec_driver_sql(_LOG_HEAD + lock).fetchone()
        assert row is not None
    head = _head(row)
    head.check(key)
    return head


def _begin_log(connection: sa.Connection, values: dict[str, Any]) -> None:
    """Write the first head of an empty log; a second writer at that moment waits and finds it there."""
    insert = sa.text(
        f"INSERT INTO trace_heads ({_HEAD}) VALUES"
        " (:trace_id, :first_seq, :last_seq, :count, :hash, :mac, :started) ON CONFLICT (trace_id) DO NOTHING"
    )
    connection.execute(insert, values)


def _as_dict(head: Head) -> dict[str, Any]:
    return {name: getattr(head, name) for name in Head.__slots__}


def _head(row: Sequence[Any]) -> Head:
    return Head(row[0], row[1], row[2], row[3], bytes(row[4]), bytes(row[5]), row[6])


def read_log(connection: sa.Connection) -> Head | None:
    """Where the whole log stands, without lock or check; None before the first event."""
    row = connection.exec_driver_sql(_LOG_HEAD).fetchone()
    return None if row is None else _head(row)


def is_written(connection: sa.Connection, event: Event) -> bool:
    """Whether this very event stands in its place."""
    row = connection.execute(_HASH, {"place": event.seq}).first()
    return row is not None and bytes(row[0]).hex() == event.hash


def read_heads(connection: sa.Connection, names: set[str], key: bytes) -> dict[str, Head]:
    """The heads of some traces, each checked for our seal; a trace without events has none."""
    dialect = connection.dialect.name
    wanted: Callable[[list[str]], Any] = _as_json if dialect == "sqlite" else list
    found = drive(connection, _HEADS[dialect], (wanted(sorted(names)),)).fetchall()
    heads = {row[0]: _head(row) for row in found}
    for head in heads.values():
        head.check(key)
    return heads


def _as_json(names: list[str]) -> str:
    return to_json(names).decode()
