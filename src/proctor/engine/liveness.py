"""Who is alive: a lease per executor, and who holds one no more.

SQLite (one machine): a lock file per executor, held with flock; the kernel frees it at kill -9, and a stopped
process keeps it, so a takeover is never wrong. PostgreSQL (many machines): a row with an end time on the database's
clock; an executor that cannot renew in time must stop its agents, because others will take its work.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa
from loguru import logger

from proctor import __version__
from proctor.protocol.errors import StoreUnavailableError, UnavailableError
from proctor.protocol.ids import ExecutorId, new_id
from proctor.store.database import Database
from proctor.store.tables import executors

__all__ = ["DEFAULT_TTL", "FlockLease", "Lease", "LeaseKeeper", "TableLease", "open_lease"]

DEFAULT_TTL = 15.0


class Lease(Protocol):
    """The right of one process to execute."""

    executor_id: ExecutorId
    ttl: float

    def take(self) -> None:
        """Begin to live."""
        ...

    def renew(self) -> bool:
        """Go on living; False when the lease is lost for good."""
        ...

    def valid(self) -> bool:
        """Whether nobody can have taken over yet, as far as this process can know by itself."""
        ...

    def release(self) -> None:
        """End in order: whatever is left may be taken over at once."""
        ...

    def dead(self, executor_ids: Iterable[str]) -> set[str]:
        """Which of these provably do not execute any more."""
        ...


def open_lease(database: Database, directory: Path, *, kind: str, ttl: float = DEFAULT_TTL) -> Lease:
    """Choose the lease that fits the database."""
    if database.dialect == "sqlite":
        return FlockLease(database, directory, kind=kind)
    return TableLease(database, kind=kind, ttl=ttl)


class FlockLease:
    """A lease on one machine: alive exactly as long as the process."""

    ttl = DEFAULT_TTL

    def __init__(self, database: Database, directory: Path, *, kind: str) -> None:
        self.executor_id = ExecutorId(new_id("exec"))
        self._database = database
        self._directory = directory
        self._kind = kind
        self._file: int | None = None

    def _path(self, executor_id: str) -> Path:
        return self._directory / f"{executor_id}.lock"

    def take(self) -> None:
        """Create and lock the file, then write the row, so that no row ever lacks its lock."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.open(self._path(self.executor_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with self._database.write() as connection:
            connection.execute(_row(self.executor_id, self._kind, "9999-12-31"))

    def renew(self) -> bool:
        """The kernel renews."""
        return self._file is not None

    def valid(self) -> bool:
        """As long as the lock is held."""
        return self._file is not None

    def release(self) -> None:
        """Remove row and file; the work is free at once."""
        if self._file is None:
            return
        with contextlib.suppress(StoreUnavailableError), self._database.write() as connection:
            connection.execute(executors.delete().where(executors.c.executor_id == self.executor_id))
        self._path(self.executor_id).unlink(missing_ok=True)
        os.close(self._file)
        self._file = None

    def dead(self, executor_ids: Iterable[str]) -> set[str]:
        """Those whose lock can be had. Their files and rows are cleared away."""
        gone = {name for name in executor_ids if name != self.executor_id and self._free(name)}
        if gone:
            with self._database.write() as connection:
                connection.execute(executors.delete().where(executors.c.executor_id.in_(gone)))
        return gone

    def _free(self, executor_id: str) -> bool:
        try:
            handle = os.open(self._path(executor_id), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            self._path(executor_id).unlink(missing_ok=True)
            return True
        finally:
            os.close(handle)


class TableLease:
    """A lease among machines, on the database's clock only: a jump of ours changes nothing."""

    def __init__(self, database: Database, *, kind: str, ttl: float = DEFAULT_TTL) -> None:
        self.executor_id = ExecutorId(new_id("exec"))
        self.ttl = ttl
        self._database = database
        self._kind = kind
        self._kept = 0.0

    def _until(self) -> sa.ColumnElement[object]:
        return sa.func.clock_timestamp() + sa.cast(timedelta(seconds=self.ttl), sa.Interval)

    def take(self) -> None:
        """Insert the row."""
        asked = time.monotonic()
        with self._database.write() as connection:
            row = _row(self.executor_id, self._kind, None)
            connection.execute(row.values(expires_at=self._until()))
        self._kept = asked

    def renew(self) -> bool:
        """Push the end on, but only while it has not passed: a lost lease stays lost."""
        asked = time.monotonic()
        with self._database.write() as connection:
            alive = executors.c.expires_at > sa.func.clock_timestamp()
            changed = connection.execute(
                executors.update()
                .where(executors.c.executor_id == self.executor_id, alive)
                .values(expires_at=self._until())
            )
        if changed.rowcount == 1:
            self._kept = asked
        return changed.rowcount == 1

    def valid(self) -> bool:
        """Counted from when we last asked: a process that was stopped knows it at its first step."""
        return time.monotonic() - self._kept < self.ttl

    def release(self) -> None:
        """Remove the row."""
        with contextlib.suppress(StoreUnavailableError), self._database.write() as connection:
            connection.execute(executors.delete().where(executors.c.executor_id == self.executor_id))

    def dead(self, executor_ids: Iterable[str]) -> set[str]:
        """Those without a row or past their end. Expired rows are removed in the same transaction."""
        asked = set(executor_ids) - {self.executor_id}
        if not asked:
            return set()
        with self._database.write() as connection:
            connection.execute(executors.delete().where(executors.c.expires_at < sa.func.clock_timestamp()))
            rows = connection.execute(
                sa.select(executors.c.executor_id).where(executors.c.executor_id.in_(asked))
            )
            return asked - set(rows.scalars())


class LeaseKeeper:
    """Renews a lease from a thread of its own, so that a busy event loop or a slow launch does not lose it.

    A second thread watches the first: a database that does not even refuse must not hold us beyond the lease.
    """

    def __init__(self, lease: Lease, lost: Callable[[], object]) -> None:
        self._lease = lease
        self._lost = lost
        self._ended = threading.Event()
        self._asking = False
        self._kept = 0.0
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._keep, "proctor-lease"), (self._watch, "proctor-lease-watch"))
        ]

    def begin(self) -> None:
        """Take the lease and keep it."""
        self._lease.take()
        self._kept = time.monotonic()
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop keeping and give the lease back."""
        self._ended.set()
        for thread in self._threads:
            thread.join(self._lease.ttl)
        self._lease.release()

    def _in_time(self) -> bool:
        """Whether there is time left to stop the agents before others may take over."""
        return time.monotonic() - self._kept < self._lease.ttl * 2 / 3

    def _keep(self) -> None:
        """Renew three times per life; say so when it is gone, or when it may be gone before we could know."""
        while not self._ended.wait(self._lease.ttl / 3):
            asked, self._asking = time.monotonic(), True
            try:
                alive = self._lease.renew()
            except (UnavailableError, sa.exc.SQLAlchemyError) as error:
                logger.error("the lease could not be renewed: {}", error)
                alive = self._in_time()
            else:
                self._kept = asked if alive else self._kept
            self._asking = False
            if not alive:
                self._say_lost()

    def _watch(self) -> None:
        while not self._ended.wait(self._lease.ttl / 10):
            if self._asking and not self._in_time():
                self._say_lost()

    def _say_lost(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._lost()


def _row(executor_id: str, kind: str, expires: str | None) -> sa.Insert:
    from datetime import UTC, datetime

    from proctor.agents.identity import boot, start_time

    values = {
        "executor_id": executor_id,
        "kind": kind,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_started": start_time(os.getpid()) or 0,
        "boot_id": boot()[:64],
        "version": __version__,
    }
    if expires is not None:
        values["expires_at"] = datetime.fromisoformat(expires).replace(tzinfo=UTC)
    return executors.insert().values(values)
