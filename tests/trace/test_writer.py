"""The group-commit writer: durable before it answers, bounded, and one caller's failure is its own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.protocol.errors import StoreUnavailableError, UnavailableError, UsageError
from proctor.protocol.events import Draft, Event
from proctor.store.database import Database
from proctor.trace.metrics import TraceMetrics
from proctor.trace.reader import stream
from proctor.trace.verify import verify
from proctor.trace.writer import TraceWriter
from tests.trace.support import KEY, REDACTOR, draft


def _writer(database: Database, **rest: Any) -> TraceWriter:
    return TraceWriter(database, key=KEY, redactor=REDACTOR, **rest)


class _Gate:
    """A redactor that holds the writer's thread until it may go on."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()

    def text(self, s: str) -> str:
        return s

    def value(self, v: Any) -> Any:
        self.entered.set()
        assert self.open.wait(30)
        return v


def test_append_returns_what_is_on_disk(sqlite_database: Database) -> None:
    """When append returns, another connection sees the events."""
    with _writer(sqlite_database) as writer:
        written = writer.append([draft(), draft()])
        assert list(stream(sqlite_database)) == written


def test_callers_share_a_commit(sqlite_database: Database) -> None:
    """What comes while a batch is being written goes into one transaction."""
    gate, sizes = _Gate(), []

    class Watch:
        def batch(self, events: Sequence[Event], seconds: float) -> None:
            sizes.append(len(events))

    with TraceWriter(sqlite_database, key=KEY, redactor=gate, observer=Watch()) as writer:
        first = writer.submit([draft()])
        assert gate.entered.wait(10)
        rest = [writer.submit([draft(), draft()]) for _ in range(20)]
        gate.open.set()
        assert first.result(10)[0].seq == 1
        assert [event.seq for future in rest for event in future.result(10)] == list(range(2, 42))
    assert sizes == [1, 40]


def test_a_full_queue_holds_callers_back(sqlite_database: Database) -> None:
    """Back-pressure: beyond the bound a caller waits, and at its deadline hears that nothing was written."""
    gate = _Gate()
    with TraceWriter(sqlite_database, key=KEY, redactor=gate, max_queue=2) as writer:
        futures = [writer.submit([draft()])]
        assert gate.entered.wait(10)
        futures += [writer.submit([draft()]) for _ in range(2)]
        with pytest.raises(UnavailableError, match="queue is full; nothing was written"):
            writer.submit([draft()], deadline=0.05)
        gate.open.set()
        assert [future.result(10)[0].seq for future in futures] == [1, 2, 3]
    assert len(list(stream(sqlite_database))) == 3


def test_a_caller_that_gives_up_in_time_writes_nothing(sqlite_database: Database) -> None:
    """A deadline that passes in the queue takes the job back; one that passes later says so."""
    gate = _Gate()
    with TraceWriter(sqlite_database, key=KEY, redactor=gate) as writer:
        first = writer.submit([draft()])
        assert gate.entered.wait(10)
        with pytest.raises(UnavailableError, match="nothing was written"):
            writer.append([draft("trace_late")], deadline=0.05)
        gate.open.set()
        first.result(10)
    assert {event.trace_id for event in stream(sqlite_database)} == {"trace_a"}


async def test_a_cancelled_coroutine_leaves_the_queue(sqlite_database: Database) -> None:
    """Cancelling before the batch is taken means the events are not written."""
    gate = _Gate()
    with TraceWriter(sqlite_database, key=KEY, redactor=gate) as writer:
        first = writer.submit([draft()])
        assert await asyncio.to_thread(gate.entered.wait, 10)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await writer.append_async([draft("trace_cancelled")])
        gate.open.set()
        await asyncio.wrap_future(first)
        await writer.append_async([draft("trace_b")])
    assert {event.trace_id for event in stream(sqlite_database)} == {"trace_a", "trace_b"}


async def test_coroutines_share_commits(database: Database) -> None:
    """Many coroutines append and change rows at once, and everything is there once."""
    with _writer(database) as writer:

        async def work(n: int) -> None:
            written = await writer.append_async([draft(f"trace_{n % 3}", details={"n": n})])
            assert written[0].details == {"n": n}
            assert await writer.transact_async(lambda _: (n, [draft(details={"n": n})])) == n

        async with asyncio.TaskGroup() as group:
            for n in range(30):
                group.create_task(work(n))
    assert len(list(stream(database))) == 60
    assert verify(database, KEY).ok


async def _at_rest(writer: TraceWriter) -> None:
    async with asyncio.timeout(30):
        while not writer._rests:  # noqa: ASYNC110 - a thread rests, and tells nobody
            await asyncio.sleep(0.001)


async def test_a_lone_coroutine_leaves_only_the_waiting_to_the_writer(database: Database) -> None:
    """It tells the database what to write in its own thread; the disk or the server is waited for in the writer's."""
    moments: list[tuple[bool, str]] = []
    here = threading.get_ident()
    with _writer(database) as writer:
        for _ in range(3):  # the first ones make the log, the lane's connection and its statements
            await _at_rest(writer)
            await writer.append_async([draft()])
        await _at_rest(writer)
        database.watch = lambda moment: moments.append((threading.get_ident() == here, moment))
        await writer.append_async([draft()])
        database.watch = None
    told, (elsewhere, last) = moments[:-1], moments[-1]
    assert (elsewhere, last) == (False, "committed")
    assert {mine for mine, text in told if text != "COMMIT"} == {True}
    assert {mine for mine, text in told if text == "COMMIT"} <= {False}
    assert verify(database, KEY).ok


async def test_a_loop_goes_on_while_somebody_else_holds_the_database(sqlite_database: Database) -> None:
    """A coroutine that must wait for another writer does it in the writer's thread, and is written after it."""
    with _writer(sqlite_database) as writer:
        for _ in range(3):
            await writer.append_async([draft()])
        with sqlite_database.write() as connection:
            connection.exec_driver_sql("CREATE TABLE other (x)")
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(writer.append_async([draft()]))
                await asyncio.sleep(0.2)
                assert not waiting.done()
                connection.commit()
        assert waiting.result()[0].seq == 4
    assert verify(sqlite_database, KEY).ok


async def test_who_is_interrupted_while_telling_leaves_the_database_free(sqlite_database: Database) -> None:
    """Nothing of it is written, nobody is locked out, and the writer goes on."""

    def stop(moment: str) -> None:
        if "INSERT INTO events" in moment:
            raise KeyboardInterrupt

    with _writer(sqlite_database) as writer:
        for _ in range(3):
            await writer.append_async([draft()])
        await _at_rest(writer)
        sqlite_database.watch = stop
        with pytest.raises(KeyboardInterrupt):
            await writer.append_async([draft()])
        sqlite_database.watch = None
        with sqlite_database.write() as connection:
            connection.exec_driver_sql("CREATE TABLE free (x)")
        assert (await writer.append_async([draft()]))[0].seq == 4
    assert verify(sqlite_database, KEY).ok


def test_one_bad_draft_fails_only_its_caller(sqlite_database: Database) -> None:
    """Others in the same batch are written."""
    gate = _Gate()
    with TraceWriter(sqlite_database, key=KEY, redactor=gate) as writer:
        good = [writer.submit([draft()])]
        assert gate.entered.wait(10)
        bad = writer.submit([draft("x" * 65)])
        good.append(writer.submit([draft()]))
        gate.open.set()
        assert [future.result(10)[0].seq for future in good] == [1, 2]
        with pytest.raises(UsageError, match="identifier"):
            bad.result(10)


def test_a_trace_whose_places_are_taken_fails_alone(sqlite_database: Database) -> None:
    """Altered tables stop appends to that trace with a clear error, and nobody else's."""
    gate = _Gate()
    with TraceWriter(sqlite_database, key=KEY, redactor=gate) as writer:
        gate.open.set()
        writer.append([draft("trace_a"), draft("trace_b")])
        with sqlite_database.write() as connection:
            connection.exec_driver_sql("DELETE FROM trace_heads WHERE trace_id = 'trace_a'")
        gate.open.clear()
        gate.entered.clear()
        first = writer.submit([draft("trace_c")])
        assert gate.entered.wait(10)
        bad, good = writer.submit([draft("trace_a")]), writer.submit([draft("trace_b")])
        gate.open.set()
        first.result(10)
        with pytest.raises(Exception, match="trace verify"):
            bad.result(10)
        assert good.result(10)[0].trace_seq == 2


def test_a_failed_commit_fails_every_waiter_and_the_writer_goes_on(sqlite_database: Database) -> None:
    """A full disk is told to all of the batch in one clear sentence; when there is room again, it works."""
    with _writer(sqlite_database) as writer:
        writer.append([draft()])
        with sqlite_database.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()

        @sa.event.listens_for(sqlite_database.engine, "checkout")
        def limit(connection: Any, _record: Any, _proxy: Any) -> None:
            connection.execute(f"PRAGMA max_page_count={allowed}")

        allowed = pages
        big = draft(details={"text": "x" * 60_000})
        futures = [writer.submit([big]) for _ in range(8)]
        for future in futures:
            with pytest.raises(StoreUnavailableError, match="Free some space"):
                future.result(30)
        allowed = 1 << 30
        assert writer.append([draft()])[0].seq == 2
    assert verify(sqlite_database, KEY).ok


def test_close_writes_what_was_handed_over_and_refuses_more(sqlite_database: Database) -> None:
    """Nothing submitted is lost by closing."""
    writer = _writer(sqlite_database)
    futures = [writer.submit([draft()]) for _ in range(50)]
    writer.close()
    assert [future.result(0)[0].seq for future in futures] == list(range(1, 51))
    with pytest.raises(UnavailableError, match="closed"):
        writer.append([draft()])


def test_a_forked_child_is_refused(sqlite_database: Database) -> None:
    """The writer's thread does not live in a child; it must say so and not hang."""
    with _writer(sqlite_database) as writer:
        writer.append([draft()])
        writer._pid = os.getpid() + 1  # as a child after fork would see it
        with pytest.raises(UnavailableError, match="before a fork"):
            writer.append([draft()])
        writer._pid = os.getpid()


def test_an_error_of_a_change_reaches_its_caller_as_it_is(sqlite_database: Database) -> None:
    """Own exceptions come through, also one that is a TimeoutError."""

    def change(_: sa.Connection) -> tuple[None, Sequence[Draft]]:
        raise TimeoutError("mine")

    with _writer(sqlite_database) as writer, pytest.raises(TimeoutError, match="mine"):
        writer.transact(change)


@pytest.mark.parametrize("statement", ["SELECT nothing FROM nowhere", "INSERT INTO trace_heads VALUES (1)"])
def test_a_mistake_in_a_change_fails_its_caller_only(database: Database, statement: str) -> None:
    """Wrong SQL, or an error of the caller's own that looks like a fault, does not fail the others' batch."""
    gate = _Gate()

    def wrong(connection: sa.Connection) -> tuple[None, Sequence[Draft]]:
        connection.exec_driver_sql(statement)
        return None, []

    def unavailable(_: sa.Connection) -> tuple[None, Sequence[Draft]]:
        raise UnavailableError(what="A part of ours", reason="it is busy", cure="Wait.")

    answers: list[str] = []

    def call(change: Any) -> None:
        try:
            writer.transact(change)
        except (sa.exc.DBAPIError, UnavailableError) as error:
            answers.append(type(error).__name__)

    with TraceWriter(database, key=KEY, redactor=gate) as writer:
        first = writer.submit([draft()])
        assert gate.entered.wait(10)
        threads = [threading.Thread(target=call, args=(change,)) for change in (wrong, unavailable)]
        for thread in threads:
            thread.start()
        while len(writer._queue) < 2:
            time.sleep(0.005)
        last = writer.submit([draft()])
        gate.open.set()
        for thread in threads:
            thread.join(20)
        assert [first.result(10)[0].seq, last.result(10)[0].seq] == [1, 2]
    assert len(answers) == 2
    assert "UnavailableError" in answers


def test_metrics_count_batches_with_bounded_labels(sqlite_database: Database) -> None:
    """Events by kind, name and status, latency and batch size; never a trace id."""
    metrics = TraceMetrics()
    with _writer(sqlite_database, observer=metrics) as writer:
        writer.append([draft("trace_secretname"), draft(), draft(event="progress")])
    text = metrics.render().decode()
    assert 'proctor_trace_events_total{event="message",kind="worker",status="success"} 2.0' in text
    assert "proctor_trace_append_seconds_count 1.0" in text
    assert "proctor_trace_batch_events_sum 3.0" in text
    assert "trace_secretname" not in text


def test_a_lone_caller_does_not_wait_for_company(sqlite_database: Database) -> None:
    """After a crowded batch the first lone caller may wait a moment, the next ones do not."""
    with _writer(sqlite_database) as writer:
        for future in [writer.submit([draft()]) for _ in range(100)]:
            future.result(10)
        writer.append([draft()])
        assert writer._crowd == 1
