"""The group-commit writer: durable before it answers, bounded, and one caller's failure is its own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from proctor.protocol.errors import StoreUnavailableError, UnavailableError, UsageError
from proctor.protocol.events import Draft, Event
from proctor.store.database import Database
from proctor.trace.jobs import AsyncJob
from proctor.trace.log import lock_log
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


async def _threads_of(writer: TraceWriter, database: Database) -> list[tuple[bool, str]]:
    """What one more event does on the database, and whether in this thread."""
    moments: list[tuple[bool, str]] = []
    here = threading.get_ident()
    for _ in range(3):  # the first ones make the log, the lane's connection and its statements
        await writer.append_async([draft()])
        await _at_rest(writer)
    database.watch = lambda moment: moments.append((threading.get_ident() == here, moment))
    await writer.append_async([draft()])
    database.watch = None
    return moments


async def test_a_lone_coroutine_writes_without_a_change_of_threads(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a quick disk it writes by itself; on a server its own loop hears the answer."""
    monkeypatch.setattr("proctor.store.lane._QUICK_SECONDS", 60.0)
    with _writer(database) as writer:
        moments = await _threads_of(writer, database)
    assert moments[-1] == (True, "committed")
    assert {here for here, _ in moments} == {True}
    assert verify(database, KEY).ok


async def test_a_coroutine_that_waited_for_room_is_written_by_the_writer(database: Database) -> None:
    """A full queue is waited for in another thread, and no other thread may touch a loop."""
    places: set[str] = set()
    with _writer(database) as writer:
        for _ in range(3):
            await writer.append_async([draft()])
            await _at_rest(writer)
        job = AsyncJob([draft()])
        database.watch = lambda _: places.add(threading.current_thread().name)
        await asyncio.to_thread(writer._put, job, time.monotonic() + 30)
        await job.future
        database.watch = None
    assert places == {"proctor-trace-writer"}


async def test_a_slow_disk_is_waited_for_in_the_writers_thread(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slow commit, and for a while no loop waits for the disk; telling the database stays its own."""
    monkeypatch.setattr("proctor.store.lane._QUICK_SECONDS", -1.0)
    monkeypatch.setattr("proctor.store.lane._SLOW_SECONDS", 60.0)
    with _writer(sqlite_database) as writer:
        moments = await _threads_of(writer, sqlite_database)
    assert moments[-2:] == [(False, "COMMIT"), (False, "committed")]
    assert {here for here, _ in moments[:-2]} == {True}


async def test_who_writes_again_and_again_lets_others_go_between(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coroutine that never has to wait for the writer still gives every other one its turn."""
    monkeypatch.setattr("proctor.store.lane._QUICK_SECONDS", 60.0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with _writer(sqlite_database) as writer:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(other())
            for _ in range(20):
                await writer.append_async([draft()])
            task.cancel()
    assert turns >= 20


@pytest.mark.postgres
def test_what_is_on_its_way_when_the_loop_ends_is_brought_home(postgres_database: Database) -> None:
    """The server still works on it, its caller and its loop are gone: the writer waits for it before it closes."""
    writer = _writer(postgres_database)
    writer.append([draft()])

    async def leave(lock: sa.Connection) -> None:
        for _ in range(2):
            await writer.append_async([draft()])
            await _at_rest(writer)
        lock_log(lock, KEY)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(writer.append_async([draft(event="finding")]))
            await asyncio.sleep(0.1)
            assert writer._express.flight is not None
            task.cancel()

    with postgres_database.write() as lock:
        asyncio.run(leave(lock))
    writer.close()
    assert [event.event for event in stream(postgres_database)][-1] == "finding"
    assert verify(postgres_database, KEY).ok


@pytest.mark.postgres
async def test_a_writer_closed_by_the_loop_that_listens_waits_itself(postgres_database: Database) -> None:
    """Whoever closes the writer cannot hear the answer meanwhile: the writer's thread waits for it."""
    writer = _writer(postgres_database)
    for _ in range(3):
        await writer.append_async([draft()])
        await _at_rest(writer)
    with postgres_database.write() as lock:
        lock_log(lock, KEY)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(writer.append_async([draft(event="finding")]))
            await asyncio.sleep(0.1)
            assert writer._express.flight is not None
            task.cancel()
    writer.close()
    assert [event.event for event in stream(postgres_database)][-1] == "finding"


@pytest.mark.postgres
@pytest.mark.parametrize("written", [True, False])
async def test_a_server_lost_under_a_flight_costs_nobody_an_event(
    postgres_database: Database, written: bool
) -> None:
    """Before its commit or after it: the one on its way and those who wait behind it are each written once."""

    def lose(moment: str) -> None:
        if moment == "committed":
            postgres_database.watch = None
            writer._express.lane._bare.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    with _writer(postgres_database) as writer:
        for _ in range(3):
            await writer.append_async([draft()])
            await _at_rest(writer)
        async with asyncio.TaskGroup() as group:
            with postgres_database.write() as lock:
                lock_log(lock, KEY)
                task = group.create_task(writer.append_async([draft(event="task")]))
                await asyncio.sleep(0.05)
                assert writer._express.flight is not None
                behind = [writer.submit([draft(event="finding")]) for _ in range(3)]
                pid = writer._express.lane._bare.info.backend_pid
                if written:
                    postgres_database.watch = lose
                else:
                    lock.exec_driver_sql(f"SELECT pg_terminate_backend({pid})")
        assert task.result()[0].event == "task"
        assert [future.result(30)[0].event for future in behind] == ["finding"] * 3
    told = [event.event for event in stream(postgres_database)]
    assert sorted(told[3:]) == ["finding"] * 3 + ["task"]
    assert verify(postgres_database, KEY).ok


@pytest.mark.postgres
async def test_a_loop_that_hangs_holds_nobody_else_up(postgres_database: Database) -> None:
    """Its own event is on its way; others are written past it, and it is found written when the loop comes back."""
    with _writer(postgres_database) as writer:
        for _ in range(3):
            await writer.append_async([draft()])
            await _at_rest(writer)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(writer.append_async([draft(event="task")]))
            await asyncio.sleep(0)
            assert writer._express.flight is not None
            other = threading.Thread(target=writer.append, args=([draft(event="finding")],))
            other.start()
            other.join(30)  # in the loop's own thread: it hangs
            assert not other.is_alive()
        assert task.result()[0].event == "task"
        await writer.append_async([draft(event="progress")])
    assert [event.event for event in stream(postgres_database)][-3:] == ["task", "finding", "progress"]
    assert verify(postgres_database, KEY).ok


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
