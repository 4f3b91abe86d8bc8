"""The watcher wakes cursors for other processes' writes, survives a lost connection, and rests when unused."""

from __future__ import annotations

import threading
import time

import pytest

from proctor.store.database import Database
from proctor.trace.cursor import Cursor
from proctor.trace.wake import watcher_of
from tests.trace.support import draft, put


def _watching() -> bool:
    return any(thread.name == "proctor-trace-watch" for thread in threading.enumerate())


def test_one_watcher_serves_all_cursors_and_rests_without_them(sqlite_database: Database) -> None:
    """The thread begins with the first wait and ends after the last cursor is closed."""
    one, two = Cursor(sqlite_database), Cursor(sqlite_database)
    assert one._watcher is two._watcher is watcher_of(sqlite_database)
    one.read(0.01)
    two.read(0.01)
    one.close()
    one.close()
    put(sqlite_database, [draft()])
    assert [event.seq for event in two.read(20)] == [1]
    two.close()
    until = time.monotonic() + 20
    while _watching() and time.monotonic() < until:
        time.sleep(0.01)
    assert not _watching()


def test_a_second_time_begins_anew(sqlite_database: Database) -> None:
    """A watcher that rested looks again when somebody waits again."""
    for n in range(1, 4):
        with Cursor(sqlite_database, n - 1) as cursor:
            assert cursor.read(0.01) == []
            put(sqlite_database, [draft()])
            assert [event.seq for event in cursor.read(20)] == [n]


@pytest.mark.postgres
def test_a_lost_listener_comes_back(postgres_database: Database) -> None:
    """When the server ends the listening connection, the cursor still gets what is written afterwards."""
    end = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'proctor-trace-watch'"
    )
    ended, until = 0, time.monotonic() + 60
    with Cursor(postgres_database) as cursor:
        while not ended and time.monotonic() < until:  # it may not listen yet
            assert cursor.read(0.2) == []
            with postgres_database.write() as connection:
                ended = connection.exec_driver_sql(end).scalar_one()
        put(postgres_database, [draft()])
        assert [event.seq for event in cursor.read(20)] == [1]
    assert ended == 1


def test_a_missing_database_is_tried_again_until_it_is_there(sqlite_database: Database) -> None:
    """The watcher itself never dies of a database that is away."""
    watcher = watcher_of(sqlite_database)
    failures = iter([OSError("away"), OSError("away")])
    real = watcher._look_sqlite

    def look(stop: threading.Event) -> None:
        for failure in failures:
            raise failure
        real(stop)

    watcher._look_sqlite = look  # type: ignore[method-assign]
    with watcher.subscribed():
        put(sqlite_database, [draft()])
        assert watcher.wait(0, 20)
    assert watcher.latest == 1
