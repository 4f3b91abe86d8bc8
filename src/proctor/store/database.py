"""One engine factory for both databases, and the two kinds of transaction we use.

SQLite: WAL, synchronous FULL, 30 s busy time-out; `write()` begins IMMEDIATE, because a deferred transaction
that reads and then writes is not serializable there (facts: 20 of 10 budget reservations were granted).
PostgreSQL: psycopg 3, READ COMMITTED; what must be serial takes a row lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proctor.protocol.errors import StoreCorruptError, StoreUnavailableError

__all__ = ["Database", "sqlite_url"]

BUSY_SECONDS = 30
_WRITE = "proctor_write"


def sqlite_url(path: Path) -> str:
    """Name an SQLite file as a URL."""
    return f"sqlite:///{path}"


class Database:
    """A pool of connections to one database; cheap to make, opens nothing until it is used."""

    def __init__(self, url: str, *, synchronous: str = "FULL", pool_size: int = 10) -> None:
        self.url = _with_driver(url)
        self.dialect: str = self.url.get_backend_name()
        self.place = self.url.database if self.dialect == "sqlite" else self.url.render_as_string(hide_password=True)
        self.engine = _sqlite(self.url, synchronous, pool_size) if self.dialect == "sqlite" else _postgres(self.url, pool_size)

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One transaction that may write; commits at the end, rolls back on any error."""
        with self._guard(), self.engine.connect() as bare:
            connection = bare.execution_options(**{_WRITE: True})
            with connection.begin():
                yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """One consistent look at the data; never takes the write lock."""
        with self._guard(), self.engine.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Turn the driver's words into one sentence with the cure."""
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise explain(error, str(self.place)) from error


def explain(error: sa.exc.DBAPIError, place: str) -> Exception:
    """Say in our words what the database said; leave programming errors as they are."""
    text = str(error.orig).strip().splitlines()[0] if error.orig else str(error)
    low = text.lower()
    if "malformed" in low or "not a database" in low or "corrupt" in low:
        return StoreCorruptError(place=place, reason=text)
    cures = {
        "disk is full": "Free some space and run the command again; nothing acknowledged was lost.",
        "readonly": "Make the directory writable or set XDG_STATE_HOME to one that is.",
        "unable to open": "Check that the directory exists and is yours, or set XDG_STATE_HOME.",
        "locked": "Another process holds it; wait for it or see `proctor doctor`.",
        "disk i/o error": "Check the disk; `proctor db check` tests the file.",
    }
    for sign, cure in cures.items():
        if sign in low:
            return StoreUnavailableError(place=place, reason=text, cure=cure)
    if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError) and "sqlite3" not in type(error.orig).__module__:
        return StoreUnavailableError(place=place, reason=text, cure="Check PROCTOR_DATABASE_URL and that the server runs.")
    return error


def _with_driver(url: str) -> sa.URL:
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    return parsed


def _postgres(url: sa.URL, pool_size: int) -> sa.Engine:
    return sa.create_engine(
        url, pool_size=pool_size, max_overflow=pool_size, pool_pre_ping=True, connect_args={"connect_timeout": 10}
    )


def _sqlite(url: sa.URL, synchronous: str, pool_size: int) -> sa.Engine:
    engine = sa.create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS},
    )

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, see _begin
        for pragma in ("journal_mode=WAL", f"synchronous={synchronous}", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(_WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
