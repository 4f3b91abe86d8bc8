"""Cursors replay and go live across processes: no loss, no doubling, no stealing, on both databases."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from proctor.protocol.errors import UsageError
from proctor.protocol.events import Event, EventKind
from proctor.store.database import Database
from proctor.trace.cursor import Cursor
from proctor.trace.reader import stream
from proctor.trace.verify import verify
from proctor.trace.writer import TraceWriter
from tests.trace.support import KEY, REDACTOR, address, draft, put, script

WRITE = """
import sys
from proctor.store.database import Database
from proctor.trace.writer import TraceWriter
from tests.trace.support import KEY, REDACTOR, draft
database = Database(sys.argv[1])
with TraceWriter(database, key=KEY, redactor=REDACTOR) as writer:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(int(sys.argv[3])):
        writer.append([draft(f"trace_{n % 3}", details={"from": sys.argv[2], "n": n})] * (1 + n % 3))
print("done", flush=True)
"""

READ = """
import sys, json
from proctor.store.database import Database
from proctor.trace.cursor import Cursor
cursor = Cursor(Database(sys.argv[1]), int(sys.argv[2]), batch=7)
print("ready", flush=True)
for event in cursor:
    print(json.dumps([event.seq, event.details["from"], event.details["n"]]), flush=True)
"""


def _ready(child: object) -> None:
    assert child.stdout.readline() == "ready\n"  # type: ignore[attr-defined]


@pytest.mark.slow
def test_several_writers_and_cursors_in_many_processes_lose_and_double_nothing(database: Database) -> None:
    """Writers, a reader that is killed and resumed, cursors early and late: all see all, once."""
    url, rounds = address(database), 40
    total = 3 * sum(1 + n % 3 for n in range(rounds))
    seen: list[int] = []
    mine: list[Event] = []
    with ExitStack() as stack:
        writers = [stack.enter_context(script(WRITE, url, name, f"{rounds}")) for name in "abc"]
        early = stack.enter_context(Cursor(database, batch=11))
        for child in writers:
            _ready(child)
        for child in writers:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        after = 0
        for lines in (
            17,
            23,
            31,
            total,
        ):  # killed three times in mid-read, resumed from the last line handled
            with script(READ, url, str(after)) as reader:
                _ready(reader)
                assert reader.stdout is not None
                for _ in range(min(lines, total - len(seen))):
                    after = json.loads(reader.stdout.readline())[0]
                    seen.append(after)
        while len(mine) < total and (found := early.read(20)):
            mine += found
        assert [event.seq for event in mine] == list(range(1, total + 1))
        for child in writers:
            assert child.stdout is not None
            assert child.stdout.readline() == "done\n"
    assert seen == list(range(1, total + 1))
    with Cursor(database, batch=50) as late:
        assert [event.seq for event in late.events(idle=0)] == seen
    counts = Counter((event.details["from"], event.details["n"]) for event in mine)
    assert counts == {(name, n): 1 + n % 3 for name in "abc" for n in range(rounds)}
    assert verify(database, KEY).ok


def test_a_cursor_replays_then_goes_live(database: Database) -> None:
    """What was there comes first, then what other connections write, without a break."""
    put(database, [draft(details={"n": n}) for n in range(5)])
    with Cursor(database, after=2, batch=2) as cursor:
        assert [e.seq for e in cursor.read()] == [3, 4]
        assert [e.seq for e in cursor.read()] == [5]
        assert cursor.read() == []
        writing = threading.Timer(0.05, put, (database, [draft(), draft()]))
        writing.start()
        got: list[Event] = []
        while len(got) < 2:
            got += cursor.read(wait=20)
        writing.join()
        assert [e.seq for e in got] == [6, 7]
        assert cursor.seq == 7


def test_cursors_do_not_steal_from_each_other(database: Database) -> None:
    """Each of many cursors in one process gets everything."""
    cursors = [Cursor(database) for _ in range(5)]
    got: list[list[int]] = [[] for _ in cursors]

    def follow(n: int) -> None:
        for event in cursors[n]:
            got[n].append(event.seq)
            if event.seq == 30:
                return

    threads = [threading.Thread(target=follow, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    with TraceWriter(database, key=KEY, redactor=REDACTOR) as writer:
        for _ in range(10):
            writer.append([draft()] * 3)
    for thread in threads:
        thread.join(30)
    for cursor in cursors:
        cursor.close()
    assert got == [list(range(1, 31))] * 5


def test_filters_pass_by_what_is_not_wanted_and_resume_behind_it(database: Database) -> None:
    """By trace, by session, by kind; a filtered cursor does not look at the rest again."""
    mixed = [
        draft(f"trace_{n % 2}", session_id=f"s{n % 3}", details={"n": n})
        if n % 5
        else draft(f"trace_{n % 2}", "note", kind=EventKind.SYSTEM, details={"n": n})
        for n in range(40)
    ]
    written = put(database, mixed)
    for after in (0, 13):
        rest = [event for event in written if event.seq > after]
        by_trace = Cursor(database, after, trace_id="trace_1", batch=3)
        assert list(by_trace.events(idle=0)) == [e for e in rest if e.trace_id == "trace_1"]
        by_session = Cursor(database, after, session_id="s2", batch=3)
        assert list(by_session.events(idle=0)) == [e for e in rest if e.session_id == "s2"]
        by_kind = Cursor(database, after, kinds=[EventKind.SYSTEM])
        assert list(by_kind.events(idle=0)) == [e for e in rest if e.kind is EventKind.SYSTEM]
        nothing = Cursor(database, after, trace_id="trace_9")
        assert nothing.read() == []
        assert nothing._scanned == 40
    put(database, [draft("trace_9")])
    assert [e.seq for e in nothing.read()] == [41]


async def test_an_async_cursor_follows_and_survives_cancelled_waits(database: Database) -> None:
    """`async for` gets everything, also when waits are cancelled again and again in between."""
    with TraceWriter(database, key=KEY, redactor=REDACTOR) as writer, Cursor(database, batch=4) as cursor:
        got: list[int] = []

        async def write() -> None:
            for n in range(20):
                await writer.append_async([draft(details={"n": n})] * 2)
                await asyncio.sleep(random.uniform(0, 0.004))

        async def read() -> None:
            until = time.monotonic() + 30
            while len(got) < 40 and time.monotonic() < until:
                try:
                    async with asyncio.timeout(random.uniform(0, 0.01)):
                        got.extend(event.seq for event in await cursor.read_async(wait=5))
                except TimeoutError:
                    continue

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            group.create_task(read())
        assert got == list(range(1, 41))
        late = Cursor(database, after=38)
        assert [event.seq async for event in late.events_async(idle=0)] == [39, 40]


def test_an_iterator_ends_at_close_and_keeps_its_place(sqlite_database: Database) -> None:
    """`seq` is the last event given out, so that a new cursor goes on exactly there."""
    put(sqlite_database, [draft() for _ in range(10)])
    with Cursor(sqlite_database) as cursor:
        for event in cursor:
            if event.seq == 4:
                break
        assert cursor.seq == 4
    assert [e.seq for e in Cursor(sqlite_database, cursor.seq).events(idle=0)] == [5, 6, 7, 8, 9, 10]
    assert list(cursor) == []


def test_a_cursor_outlives_retention(sqlite_database: Database) -> None:
    """What was pruned is not there any more; the cursor goes on with what is."""
    put(sqlite_database, [draft() for _ in range(3)])
    cursor = Cursor(sqlite_database, batch=1)
    assert cursor.read()[0].seq == 1
    with sqlite_database.write() as connection:
        connection.exec_driver_sql("DELETE FROM events WHERE seq <= 2")
    assert [e.seq for e in cursor.read()] == [3]


@pytest.mark.parametrize(("after", "batch"), [(-1, 10), (0, 0), (0, 10_000)])
def test_a_cursor_is_bounded(sqlite_database: Database, after: int, batch: int) -> None:
    """A place before the log or an endless batch is refused."""
    with pytest.raises(UsageError, match="cursor"):
        Cursor(sqlite_database, after, batch=batch)


def test_reading_needs_no_writer_and_an_empty_log_is_empty(database: Database) -> None:
    """Before the first event there is simply nothing."""
    assert Cursor(database).read() == []
    assert list(stream(database)) == []
    assert verify(database, KEY).ok
