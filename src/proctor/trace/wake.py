"""Waking readers: one watcher per database and process tells all its cursors how far the log has come.

A writer in this process says so at commit. What other processes write is seen on SQLite by PRAGMA
data_version on one own connection every 12 ms, on PostgreSQL by LISTEN with a slow look as a belt. The thread
lives only while somebody waits; a database that is away is tried again until it is back.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from proctor.protocol.errors import ProctorError
from proctor.store.database import Database
from proctor.trace.log import CHANNEL

__all__ = ["Watcher", "watcher_of"]

_POLL = (
    0.012  # SQLite: a look costs some microseconds, so the price of 80 a second is a few promille of a core
)
_BELT = 1.0
_AGAIN = 0.5
_NAME = "proctor-trace-watch"
_LAST = "SELECT last_seq FROM trace_heads WHERE trace_id = ''"

_watchers: weakref.WeakValueDictionary[tuple[int, str], Watcher] = weakref.WeakValueDictionary()
_registry = threading.Lock()


def watcher_of(database: Database) -> Watcher:
    """The watcher that all users of this database in this process share; a forked child gets its own."""
    name = (os.getpid(), database.url.render_as_string(hide_password=False))
    with _registry:
        found = _watchers.get(name)
        if found is None:
            found = _watchers[name] = Watcher(database)
        return found


class Watcher:
    """Knows the highest committed `seq` it has heard of, and calls those who wait for more."""

    def __init__(self, database: Database) -> None:
        self.latest = 0
        # An own engine: it must outlive the Database object that happened to come first.
        self._database = Database(database.url.render_as_string(hide_password=False), pool_size=1)
        self._lock = threading.Lock()
        self._waiting: set[Callable[[], None]] = set()
        self._subscribers = 0
        self._stop = threading.Event()

    def publish(self, seq: int) -> None:
        """Say that the log has come to `seq`; called after commit."""
        with self._lock:
            if seq <= self.latest:
                return
            self.latest = seq
            calls = list(self._waiting)
        for call in calls:
            call()

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Keep the thread alive while inside."""
        self.subscribe()
        try:
            yield
        finally:
            self.unsubscribe()

    def subscribe(self) -> None:
        """Begin to look, if nobody looks yet."""
        with self._lock:
            self._subscribers += 1
            if self._subscribers == 1:
                self._stop = threading.Event()
                thread = threading.Thread(target=self._run, args=(self._stop,), name=_NAME, daemon=True)
                thread.start()

    def unsubscribe(self) -> None:
        """Stop to look when the last one goes."""
        with self._lock:
            self._subscribers -= 1
            if self._subscribers == 0:
                self._stop.set()

    @contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """Have `call` called (from any thread, quickly) at every advance while inside."""
        with self._lock:
            self._waiting.add(call)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.discard(call)

    def wait(self, after: int, timeout: float) -> bool:
        """Wait until the log has come past `after`; False when the time is over."""
        woken = threading.Event()
        until = time.monotonic() + timeout
        with self.calling(woken.set):
            while self.latest <= after:
                left = until - time.monotonic()
                if left <= 0 or not woken.wait(left):
                    return self.latest > after
                woken.clear()
        return True

    def _run(self, stop: threading.Event) -> None:
        look = self._look_sqlite if self._database.dialect == "sqlite" else self._look_postgres
        while not stop.is_set():
            try:
                look(stop)
            except (ProctorError, sa.exc.SQLAlchemyError, OSError):
                stop.wait(_AGAIN)  # away or busy: nothing is lost, the next look finds all
        self._database.close()

    def _look_sqlite(self, stop: threading.Event) -> None:
        with self._database.engine.connect() as connection:
            cursor: Any = connection.connection.cursor()
            version = None
            while not stop.is_set():
                now = cursor.execute("PRAGMA data_version").fetchone()[0]
                if now != version:
                    version = now
                    self._heard(cursor.execute(_LAST).fetchone())
                stop.wait(_POLL)

    def _look_postgres(self, stop: threading.Event) -> None:
        import psycopg

        address = self._database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            with psycopg.connect(
                address, autocommit=True, connect_timeout=10, application_name=_NAME
            ) as connection:
                connection.execute(f"LISTEN {CHANNEL}")
                self._heard(connection.execute(_LAST).fetchone())
                while not stop.is_set():
                    for notice in connection.notifies(timeout=_BELT, stop_after=1):
                        self._heard((int(notice.payload),))
                    self._heard(connection.execute(_LAST).fetchone())
        except psycopg.Error as error:
            raise OSError(str(error)) from error

    def _heard(self, row: Any) -> None:
        if row is not None:
            self.publish(int(row[0]))
