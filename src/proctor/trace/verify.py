"""Verification: trusts nothing but the key, and names what is not as it was written.

Found are edited, dropped, reordered and added events, a cut tail, a dropped trace, forged or rolled-back
heads and tombstones. One snapshot, one page in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import sqlalchemy as sa
from pydantic_core import PydanticSerializationError

from proctor.store.database import Database
from proctor.store.tables import events, trace_heads, trace_tombstones
from proctor.trace.chain import GENESIS, Head, Tombstone, link, sum_seals
from proctor.trace.log import read_log
from proctor.trace.rows import COLUMNS

__all__ = ["Problem", "Report", "verify", "verify_prefix"]

MAX_PROBLEMS = 100
_PAGE = 1000
_ROW = [events.c[name] for name in COLUMNS]
_HEAD = [trace_heads.c[name] for name in Head.__slots__]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it was written; `trace_id` is empty when it concerns the whole log."""

    kind: str  # edited, dropped, reordered, added, truncated, head, tombstone, missing_trace, no_head, log
    message: str
    trace_id: str = ""
    seq: int | None = None
    trace_seq: int | None = None


@dataclass(slots=True)
class Report:
    """What verification found."""

    events: int = 0
    traces: int = 0
    pruned: int = 0
    problems: list[Problem] = field(default_factory=list)
    truncated: bool = False

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        return not self.problems

    @property
    def first_bad(self) -> Problem | None:
        """The first problem that names an event, else the first at all."""
        named = (problem for problem in self.problems if problem.seq is not None)
        return next(named, self.problems[0] if self.problems else None)

    def add(self, problem: Problem) -> None:
        """Keep a problem, up to a cap."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.truncated = True

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        first = self.first_bad
        return {"ok": self.ok, **asdict(self), "first_bad": None if first is None else asdict(first)}


def verify(database: Database, key: bytes, trace_id: str | None = None) -> Report:
    """Check one trace or all of them, and in both cases that heads and log belong together."""
    report = Report()
    with database.read() as connection:
        total, stored = _check_log(connection, key, report)
        for head in _heads(connection):
            total = sum_seals(total, minus=head.mac)
            if trace_id is None or head.trace_id == trace_id:
                _check_trace(connection, head, key, report)
        if total != GENESIS:
            message = "the heads of the traces do not add up: one was dropped or put back to an older state"
            report.add(Problem("missing_trace", message))
        _check_strangers(connection, report)
        if trace_id is None and report.ok and report.events + report.pruned != stored:
            message = f"{stored} events were written, {report.events} are here and {report.pruned} pruned"
            report.add(Problem("log", message))
    return report


def _check_log(connection: sa.Connection, key: bytes, report: Report) -> tuple[bytes, int]:
    """Check the log's own head; returns the sum of seals and the count it claims."""
    log = read_log(connection)
    if log is None:
        if connection.execute(sa.select(events.c.seq).limit(1)).first() is not None:
            report.add(Problem("log", "the head of the whole log is gone"))
        return GENESIS, 0
    if not log.sealed(key):
        message = "the head of the whole log does not carry our seal: altered, or sealed with another key"
        report.add(Problem("log", message))
    highest = connection.execute(sa.select(sa.func.max(events.c.seq))).scalar() or 0
    if highest > log.last_seq or log.last_seq != log.count:
        message = f"the log ends at {highest}, its head says {log.last_seq}"
        report.add(Problem("log", message, seq=highest))
    return log.hash, log.count


def _heads(connection: sa.Connection) -> Iterator[Head]:
    after = ""
    while True:
        query = sa.select(*_HEAD).where(trace_heads.c.trace_id > after).order_by(trace_heads.c.trace_id)
        found = [Head(*row) for row in connection.execute(query.limit(_PAGE))]
        yield from found
        if len(found) < _PAGE:
            return
        after = found[-1].trace_id


def _check_trace(connection: sa.Connection, head: Head, key: bytes, report: Report) -> None:
    report.traces += 1
    name = head.trace_id
    if not head.sealed(key):
        message = "the head does not carry our seal: altered, or sealed with another key"
        report.add(Problem("head", message, name))
    stone = _tombstone(connection, name)
    if stone is not None and not (stone.sealed(key) and stone.removed == stone.through_trace_seq):
        report.add(Problem("tombstone", "the tombstone does not carry our seal", name))
        stone = None
    walk = _Walk(name, report, stone)
    for row in _rows(connection, name):
        walk.step(row)
    walk.end(head)


def _tombstone(connection: sa.Connection, trace_id: str) -> Tombstone | None:
    t = trace_tombstones.c
    query = sa.select(t.trace_id, t.through_trace_seq, t.through_hash, t.removed, t.mac)
    row = connection.execute(query.where(t.trace_id == trace_id)).first()
    return None if row is None else Tombstone(*row)


def _rows(connection: sa.Connection, trace_id: str) -> Iterator[Sequence[Any]]:
    """All rows of a trace in order, also any that should not be there."""
    after = -1
    while True:
        query = sa.select(*_ROW).where(events.c.trace_id == trace_id, events.c.trace_seq > after)
        found = connection.execute(query.order_by(events.c.trace_seq).limit(_PAGE)).fetchall()
        yield from found
        if len(found) < _PAGE:
            return
        after = found[-1][2]


class _Walk:
    """Goes along one trace and compares each event with the one before it."""

    def __init__(self, trace_id: str, report: Report, stone: Tombstone | None = None) -> None:
        self.trace_id, self.report = trace_id, report
        self.next = 1 if stone is None else stone.through_trace_seq + 1
        self.hash: bytes | None = GENESIS if stone is None else bytes(stone.through_hash)
        self.seq = 0
        report.pruned += 0 if stone is None else stone.removed

    def step(self, row: Sequence[Any]) -> None:
        """Take the next stored row."""
        seq, trace_seq, stored = row[0], row[2], bytes(row[15])
        self.report.events += 1
        if trace_seq < self.next:
            self._say("added", f"event {trace_seq} stands where retention or another event was", row)
            return
        if trace_seq > self.next:
            missing = f"{self.next}" if trace_seq == self.next + 1 else f"{self.next} to {trace_seq - 1}"
            self._say("dropped", f"event {missing} is gone", row, trace_seq=self.next)
            self.hash = None  # what the next one hung on is unknown
        if seq <= self.seq:
            self._say("reordered", f"event {trace_seq} stands before one that was written earlier", row)
        elif self.hash is not None and _link(self.hash, row) != stored:
            self._say("edited", f"event {trace_seq} is not as it was written", row)
        self.seq, self.next, self.hash = max(seq, self.seq), trace_seq + 1, stored

    def end(self, head: Head) -> None:
        """Compare where the events end with where the sealed head says they do."""
        last = self.next - 1
        if last < head.count:
            message = f"events {last + 1} to {head.count} are gone from the end"
            self.report.add(Problem("truncated", message, self.trace_id, None, last + 1))
        elif last > head.count:
            message = f"the trace has {last} events, its head says {head.count}"
            self.report.add(Problem("added", message, self.trace_id, self.seq, last))
        elif self.hash is not None and self.hash != bytes(head.hash):
            message = "the last event is not the one the head was sealed with"
            self.report.add(Problem("head", message, self.trace_id, self.seq or None, last))

    def _say(self, kind: str, message: str, row: Sequence[Any], trace_seq: int | None = None) -> None:
        place = row[2] if trace_seq is None else trace_seq
        self.report.add(Problem(kind, message, self.trace_id, row[0], place))


def _link(previous: bytes, row: Sequence[Any]) -> bytes | None:
    """The hash a row should have; None when it holds what the log never writes."""
    try:
        return link(previous, tuple(row[:14]), row[14].encode())
    except (PydanticSerializationError, AttributeError, ValueError, TypeError):
        return None


def _check_strangers(connection: sa.Connection, report: Report) -> None:
    """Events whose trace has no head: the head was dropped, or they were put in."""
    query = (
        sa.select(events.c.trace_id, sa.func.min(events.c.seq))
        .where(~sa.exists().where(trace_heads.c.trace_id == events.c.trace_id))
        .group_by(events.c.trace_id)
        .limit(MAX_PROBLEMS)
    )
    for trace_id, seq in connection.execute(query):
        report.add(Problem("no_head", f"trace {trace_id!r} has events but no head", trace_id, seq))


def verify_prefix(
    connection: sa.Connection, head: Head, through: int
) -> tuple[Report, Tombstone | None, bytes]:
    """Check a trace up to a place, before retention takes it out; also returns what to hang the rest on."""
    report = Report()
    stone = _tombstone(connection, head.trace_id)
    walk = _Walk(head.trace_id, report, stone)
    for row in _rows(connection, head.trace_id):
        if row[2] > through:
            break
        walk.step(row)
    if walk.next != through + 1:
        report.add(Problem("dropped", f"event {walk.next} is gone", head.trace_id, None, walk.next))
    if through == head.count:
        walk.end(head)
    return report, stone, walk.hash or GENESIS
