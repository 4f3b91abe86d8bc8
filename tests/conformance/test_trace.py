"""The trace behaves the same on SQLite and PostgreSQL: places, chain, tampering, retention, group commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest
import sqlalchemy as sa

from proctor.protocol.errors import IntegrityError
from proctor.protocol.events import Draft, Event
from proctor.store.database import Database
from proctor.trace.chain import SealError
from proctor.trace.log import append_in
from proctor.trace.reader import find_trace, last_events, stream, trace_events, traces
from proctor.trace.retention import RETENTION_TRACE, prune
from proctor.trace.verify import verify
from proctor.trace.writer import TraceWriter
from tests.trace.support import KEY, REDACTOR, draft, put

OLD = datetime(2020, 1, 1, tzinfo=UTC)


def _fill(database: Database) -> list[Event]:
    """Three traces of five events, woven into each other."""
    drafts = [draft(f"trace_{name}", details={"n": n}) for n in range(5) for name in "abc"]
    return put(database, drafts[:7]) + put(database, drafts[7:])


def _sql(database: Database, *statements: str) -> None:
    with database.write() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_places_are_given_out_in_order_without_gaps(database: Database) -> None:
    """`seq` counts the log and `trace_seq` each trace, from 1, and readers see what writers were told."""
    written = _fill(database)
    assert [event.seq for event in written] == list(range(1, 16))
    assert [event.trace_seq for event in written if event.trace_id == "trace_b"] == [1, 2, 3, 4, 5]
    assert list(stream(database, batch=4)) == written
    assert list(stream(database, "trace_c", batch=2)) == [e for e in written if e.trace_id == "trace_c"]


def test_a_rolled_back_transaction_leaves_no_gap(database: Database) -> None:
    """Places that were never committed are given out again."""
    put(database, [draft()])

    def interrupted() -> None:
        with database.write() as connection:
            append_in(connection, [draft(), draft()], key=KEY, redactor=REDACTOR)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert [event.seq for event in put(database, [draft()])] == [2]
    assert verify(database, KEY).ok


def test_redaction_comes_before_hashing_and_storing(database: Database) -> None:
    """A known secret stands nowhere in the database, and the chain holds over the redacted text."""
    (event,) = put(database, [draft(details={"text": "the password is hunter2-very-secret"})])
    assert "hunter2-very-secret" not in event.details["text"]
    with database.read() as connection:
        stored = connection.exec_driver_sql("SELECT details FROM events").scalar()
    assert "hunter2-very-secret" not in str(stored)
    assert verify(database, KEY).ok


def test_hostile_text_is_stored_and_verifies(database: Database) -> None:
    """NUL, lone surrogates, bytes, NaN and unknown objects in details break neither database."""
    details = {"nul": "a\0b", "half": "x\ud800y", "raw": b"\xff\xfe", "nan": float("nan"), "thing": object()}
    put(database, [draft(details=details), draft(details={"deep": [[[[{"a": 1}]]]]}, tool_name="t\0" * 200)])
    first, second = stream(database)
    assert first.details["nul"] == "a\0b"
    assert second.tool_name is not None
    assert len(second.tool_name) == 100
    assert verify(database, KEY).ok


TAMPERING: dict[str, tuple[str, tuple[str, ...]]] = {
    "an edited detail": ("edited", ("UPDATE events SET details = '{\"n\":99}' WHERE seq = 5",)),
    "an edited status": ("edited", ("UPDATE events SET status = 'error' WHERE seq = 5",)),
    "an edited time": ("edited", ("UPDATE events SET ts = ts + 1 WHERE seq = 5",)),
    "an edited hash": (
        "edited",
        ("UPDATE events SET hash = (SELECT hash FROM events WHERE seq = 1) WHERE seq = 5",),
    ),
    "a dropped event": ("dropped", ("DELETE FROM events WHERE seq = 5",)),
    "a dropped first event": ("dropped", ("DELETE FROM events WHERE seq = 2",)),
    "reordered events": (
        "reordered",
        (
            "UPDATE events SET trace_seq = 99 WHERE seq = 5",
            "UPDATE events SET trace_seq = 2 WHERE seq = 8",
            "UPDATE events SET trace_seq = 3 WHERE seq = 5",
        ),
    ),
    "a cut tail": ("truncated", ("DELETE FROM events WHERE trace_id = 'trace_b' AND trace_seq > 3",)),
    "an emptied trace": ("truncated", ("DELETE FROM events WHERE trace_id = 'trace_b'",)),
    "a dropped trace": (
        "missing_trace",
        (
            "DELETE FROM events WHERE trace_id = 'trace_b'",
            "DELETE FROM trace_heads WHERE trace_id = 'trace_b'",
        ),
    ),
    "a dropped head": ("no_head", ("DELETE FROM trace_heads WHERE trace_id = 'trace_b'",)),
    "a forged head": (
        "head",
        (
            "DELETE FROM events WHERE trace_id = 'trace_b' AND trace_seq > 3",
            "UPDATE trace_heads SET count = 3, last_seq = 8, hash = (SELECT hash FROM events WHERE seq = 8)"
            " WHERE trace_id = 'trace_b'",
        ),
    ),
    "a head of the log put back": (
        "log",
        ("UPDATE trace_heads SET count = 9, last_seq = 9 WHERE trace_id = ''",),
    ),
    "a dropped head of the log": ("log", ("DELETE FROM trace_heads WHERE trace_id = ''",)),
    "a forged tombstone": (
        "tombstone",
        (
            "INSERT INTO trace_tombstones (trace_id, through_trace_seq, through_hash, removed, mac)"
            " SELECT 'trace_b', 2, hash, 2, hash FROM events WHERE trace_id = 'trace_b' AND trace_seq = 2",
            "DELETE FROM events WHERE trace_id = 'trace_b' AND trace_seq <= 2",
        ),
    ),
    "an added event": (
        "added",
        (
            "INSERT INTO events (seq, trace_id, trace_seq, ts, kind, event, status, actor, actor_name, details, hash)"
            " SELECT 16, trace_id, 6, ts, kind, event, status, actor, actor_name, details, hash"
            " FROM events WHERE seq = 14",
        ),
    ),
}


@pytest.mark.parametrize("how", TAMPERING)
def test_tampering_is_found(database: Database, how: str) -> None:
    """Whatever is done to the tables without the key is found and named."""
    _fill(database)
    assert verify(database, KEY).ok
    kind, statements = TAMPERING[how]
    _sql(database, *statements)
    report = verify(database, KEY)
    assert kind in {problem.kind for problem in report.problems}


def test_the_first_bad_event_is_named(database: Database) -> None:
    """One edit is one problem at its own place, not a cascade over all that follows."""
    _fill(database)
    _sql(database, "UPDATE events SET actor_name = 'someone' WHERE seq = 8")
    (problem,) = verify(database, KEY).problems
    assert (problem.kind, problem.trace_id, problem.seq, problem.trace_seq) == ("edited", "trace_b", 8, 3)
    assert verify(database, KEY, "trace_a").ok
    assert not verify(database, KEY, "trace_b").ok


def test_a_trace_put_back_to_an_older_state_is_found(database: Database) -> None:
    """An old head with its old, valid seal does not fit the sum in the head of the log."""
    put(database, [draft("trace_a"), draft("trace_b")])
    with database.read() as connection:
        old = connection.exec_driver_sql(
            "SELECT last_seq, count, hash, mac FROM trace_heads WHERE trace_id = 'trace_a'"
        ).one()
    put(database, [draft("trace_a"), draft("trace_b")])
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM events WHERE seq = 3")
        back = sa.text(
            "UPDATE trace_heads SET last_seq=:l, count=:c, hash=:h, mac=:m WHERE trace_id='trace_a'"
        )
        connection.execute(back, {"l": old[0], "c": old[1], "h": bytes(old[2]), "m": bytes(old[3])})
    assert "missing_trace" in {problem.kind for problem in verify(database, KEY).problems}


def test_another_key_neither_verifies_nor_appends(database: Database) -> None:
    """A head without our seal is never built upon: a fresh seal would hide what was done."""
    _fill(database)
    assert not verify(database, b"x" * 32).ok
    with pytest.raises(SealError), database.write() as connection:
        append_in(connection, [draft()], key=b"x" * 32, redactor=REDACTOR)


def test_a_forged_head_is_not_sealed_anew(database: Database) -> None:
    """Appending after a forgery is refused, so the forgery stays visible."""
    _fill(database)
    _sql(database, "UPDATE trace_heads SET count = 4 WHERE trace_id = 'trace_b'")
    with pytest.raises(SealError):
        put(database, [draft("trace_b")])
    assert not verify(database, KEY).ok
    assert put(database, [draft("trace_a")])[0].seq == 16


def test_pruned_traces_leave_a_tombstone_and_the_rest_verifies(database: Database) -> None:
    """Old events go from the front, the young rest and whole log still verify, and the trace says so."""
    put(database, [draft("trace_old", ts=OLD) for _ in range(5)])
    put(database, [draft("trace_mixed", ts=OLD) for _ in range(3)] + [draft("trace_mixed") for _ in range(2)])
    done = prune(database, KEY, older_than=datetime.now(UTC) - timedelta(days=30))
    assert {(one.trace_id, one.removed) for one in done} == {("trace_old", 5), ("trace_mixed", 3)}
    report = verify(database, KEY)
    assert report.ok
    assert (report.events, report.pruned) == (4, 8)
    assert [event.event for event in stream(database, RETENTION_TRACE)] == ["trace_pruned", "trace_pruned"]
    assert [event.trace_seq for event in stream(database, "trace_mixed")] == [4, 5]
    assert put(database, [draft("trace_old")])[0].trace_seq == 6
    assert verify(database, KEY).ok
    assert prune(database, KEY, older_than=datetime.now(UTC) - timedelta(days=30)) == []


def test_tampering_after_pruning_is_found(database: Database) -> None:
    """Tombstones do not become a place to hide: a further drop, or a dropped tombstone, shows."""
    put(database, [draft("trace_a", ts=OLD) for _ in range(4)] + [draft("trace_a") for _ in range(3)])
    prune(database, KEY, older_than=datetime.now(UTC) - timedelta(days=30))
    _sql(database, "DELETE FROM events WHERE trace_id = 'trace_a' AND trace_seq = 5")
    assert [problem.kind for problem in verify(database, KEY).problems] == ["dropped"]
    _sql(database, "DELETE FROM trace_tombstones")
    assert not verify(database, KEY).ok


def test_altered_events_are_not_pruned_away(database: Database) -> None:
    """Retention refuses to remove the evidence of an alteration."""
    put(database, [draft("trace_a", ts=OLD) for _ in range(4)])
    _sql(database, "UPDATE events SET details = '{}' WHERE seq = 2")
    with pytest.raises(IntegrityError):
        prune(database, KEY, older_than=datetime.now(UTC))
    assert len(list(stream(database, "trace_a"))) == 4


def test_the_newest_traces_are_kept(database: Database) -> None:
    """`keep` protects the newest traces whatever their age."""
    put(database, [draft(f"trace_{n}", ts=OLD) for n in range(5)])
    done = prune(database, KEY, older_than=datetime.now(UTC), keep=2)
    assert sorted(one.trace_id for one in done) == ["trace_0", "trace_1", "trace_2"]


def test_traces_are_listed_newest_first_and_found_by_prefix(database: Database) -> None:
    """The list tells counts and the last event; a unique beginning names a trace."""
    _fill(database)
    listed = traces(database, limit=2)
    assert [one.trace_id for one in listed] == ["trace_c", "trace_b"]
    assert listed[0].events == 5
    assert listed[0].last_event == "message"
    assert find_trace(database, "trace_b") == "trace_b"
    put(database, [draft("other_1")])
    assert find_trace(database, "oth") == "other_1"
    with pytest.raises(Exception, match="3 traces begin with"):
        find_trace(database, "trace")
    with pytest.raises(Exception, match="There is no trace"):
        find_trace(database, "trace%")
    with database.read() as connection:
        newest, total = last_events(connection, "trace_a", limit=2)
        assert ([event.trace_seq for event in newest], total) == ([4, 5], 5)
        assert len(trace_events(connection, "trace_a", after=3)) == 2


def test_many_writers_share_commits_and_the_chain_holds(database: Database) -> None:
    """Threads through two writers at once: every event once, in order for each caller, all verified."""
    with (
        TraceWriter(database, key=KEY, redactor=REDACTOR) as one,
        TraceWriter(database, key=KEY, redactor=REDACTOR) as two,
    ):

        def work(writer: TraceWriter, name: str) -> None:
            for n in range(10):
                writer.append([draft(name, details={"n": n})])

        threads = [Thread(target=work, args=(w, f"trace_{i % 4}")) for i, w in enumerate([one, two] * 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [event.seq for event in stream(database)] == list(range(1, 121))
    assert verify(database, KEY).ok


def test_rows_and_events_of_a_change_stand_or_fall_together(database: Database) -> None:
    """`transact` commits a caller's rows with its events; an error undoes only its own."""

    def add(name: str, *, fail: bool = False) -> Callable[[sa.Connection], tuple[str, list[Draft]]]:
        def change(connection: sa.Connection) -> tuple[str, list[Draft]]:
            row = sa.text("INSERT INTO task_queue (task_id, description) VALUES (:name, 'x')")
            connection.execute(row, {"name": name})
            if fail:
                raise KeyError(name)
            return name, [draft(f"trace_{name}")]

        return change

    with TraceWriter(database, key=KEY, redactor=REDACTOR) as writer:
        failures: list[str] = []

        def work(n: int) -> None:
            try:
                writer.transact(add(f"t{n}", fail=n % 3 == 0))
            except KeyError as error:
                failures.append(str(error))

        threads = [Thread(target=work, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(sa.exc.IntegrityError):
            writer.transact(add("t1"))
    assert len(failures) == 4
    with database.read() as connection:
        rows = set(connection.exec_driver_sql("SELECT task_id FROM task_queue").scalars())
    assert rows == {f"t{n}" for n in range(12) if n % 3}
    assert {event.trace_id for event in stream(database)} == {f"trace_{name}" for name in rows}
    assert verify(database, KEY).ok
