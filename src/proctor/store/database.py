"""One engine factory for both databases, and the two kinds of transaction we use.

SQLite: WAL, synchronous FULL, 30 s busy time-out; `write()` begins IMMEDIATE, because a deferred transaction
that reads and then writes is not serializable there (measured: 20 of 10 budget reservations were granted).
PostgreSQL: psycopg 3, READ COMMITTED; what must be serial takes a row lock or a conditional UPDATE.
`read()` is one snapshot on both and refuses to write.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proctor.protocol.errors import ConfigError
from proctor.store.faults import explain
from proctor.store.types import read_json

__all__ = ["IDLE_SECONDS", "Database", "sqlite_url"]

BUSY_SECONDS = 30
# After one huge transaction the WAL shrinks back to this; otherwise it would keep its size for ever.
WAL_BYTES = 64 * 1024 * 1024
# A process that is stopped in the middle of a transaction must not hold its locks against all others.
IDLE_SECONDS = 8
_IDLE = f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_SECONDS * 1000}"
# Inside a pipelined batch the server does not count a client as idle; only this limit, since 17, ends that.
_WITHIN = "; SET LOCAL transaction_timeout = {}"
_MODE = "proctor_mode"
_READ_ONLY: dict[str, dict[str, Any]] = {
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
}
# Not on SQLite: SQLAlchemy would give the connection back with Python's own implicit BEGIN switched on.
_OUTSIDE: dict[str, dict[str, Any]] = {"postgresql": {"isolation_level": "AUTOCOMMIT"}}
# A peer that vanished without a word must not hold a caller for the hours TCP would wait.
_POSTGRES = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def sqlite_url(path: Path) -> str:
    """Name an SQLite file as a URL, whatever characters its path has."""
    return sa.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


class Database:
    """A pool of connections to one database; cheap to make, opens nothing until it is used."""

    def __init__(self, url: str, *, synchronous: str = "FULL", pool_size: int = 10) -> None:
        self.url = _parse(url)
        self.dialect: str = self.url.get_backend_name()
        shown = self.url.set(drivername=self.dialect)
        self.place = str(shown.database) if self.dialect == "sqlite" else shown.render_as_string()
        make = _sqlite if self.dialect == "sqlite" else _postgres
        self.engine = make(self.url, pool_size, synchronous)
        # Told of every moment of a quick lane (`store.lane`), so that a test can pull the plug or count there.
        self.watch: Callable[[str], None] | None = None

    @contextmanager
    def write(self, *, within: float | None = None) -> Iterator[sa.Connection]:
        """One transaction that may write; commits at the end, rolls back on any error.

        `within` bounds it in seconds where others wait for the locks it takes (PostgreSQL 17 and later).
        """
        with self._guard(), self.engine.connect() as bare:
            connection = bare.execution_options(**{_MODE: "write"})
            with connection.begin():
                if self.dialect == "postgresql":
                    connection.exec_driver_sql(self._limits(within))
                yield connection

    def _limits(self, within: float | None) -> str:
        known = self.engine.dialect.server_version_info or (0,)
        return _IDLE + (_WITHIN.format(int(within * 1000)) if within and known >= (17,) else "")

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """One consistent look at the data; never waits for a writer and cannot write."""
        with self._guard(reading=True), self.engine.connect() as bare:
            connection = bare.execution_options(**{_MODE: "read"}, **_READ_ONLY.get(self.dialect, {}))
            with connection.begin():
                yield connection

    @contextmanager
    def bare(self) -> Iterator[sa.Connection]:
        """A connection outside any transaction, for upkeep that cannot run in one (SQLite's VACUUM)."""
        with self._guard(), self.engine.connect() as connection:
            yield connection.execution_options(**{_MODE: "bare"}, **_OUTSIDE.get(self.dialect, {}))

    def own(self) -> Any:
        """The driver's own connection, out of the pool: its user begins, ends and closes it by itself."""
        with self._guard():
            connection = self.engine.connect()
            connection.detach()
            return connection.connection.dbapi_connection

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()

    @contextmanager
    def _guard(self, *, reading: bool = False) -> Iterator[None]:
        """Turn the driver's words into one sentence with the cure; a caller's mistake stays as it is."""
        try:
            yield
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            sentence = explain(error, self.place, reading=reading)
            if sentence is None:
                raise
            raise sentence from error


def _parse(url: str) -> sa.URL:
    allowed = "Use sqlite:////absolute/path/proctor.db or postgresql://user@host/name."
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise ConfigError(
            where="database URL", problem="it cannot be read as a URL", allowed=allowed
        ) from error
    backend = parsed.get_backend_name()
    if backend in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise ConfigError(where="database URL", problem=f"{backend!r} is not supported", allowed=allowed)
    if parsed.database in {None, "", ":memory:"}:
        raise ConfigError(
            where="database URL", problem="a database in memory forgets everything", allowed=allowed
        )
    return parsed


def _postgres(url: sa.URL, pool_size: int, _synchronous: str) -> sa.Engine:
    # Bounds waiting for a lock as SQLite's busy time-out does; what the user's URL says goes first.
    options = {} if "options" in url.query else {"options": f"-c lock_timeout={BUSY_SECONDS}s"}
    arguments = {name: value for name, value in (_POSTGRES | options).items() if name not in url.query}
    return sa.create_engine(
        url, pool_size=pool_size, max_overflow=pool_size, pool_pre_ping=True, connect_args=arguments
    )


def _sqlite(url: sa.URL, pool_size: int, synchronous: str) -> sa.Engine:
    engine = sa.create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        json_deserializer=read_json,
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS},
    )

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, see _begin
        _use_wal(connection)
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        mode = connection.get_execution_options().get(_MODE)
        if mode == "read":
            connection.exec_driver_sql("PRAGMA query_only=ON")
        if mode != "bare":
            connection.exec_driver_sql("BEGIN IMMEDIATE" if mode == "write" else "BEGIN")

    @sa.event.listens_for(engine, "checkin")
    def _give_back(connection: sqlite3.Connection | None, _record: Any) -> None:
        if connection is not None:
            connection.execute("PRAGMA query_only=OFF")

    return engine


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL; SQLite does not call its busy handler for that, so two first openers wait here."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
