"""A glance: plain SELECTs on one snapshot for commands that must answer at once.

On SQLite it uses Python's own driver, because importing SQLAlchemy alone would take longer than the whole answer may.
Anything unusual (another schema, a refused file, PostgreSQL) goes the long way, which knows every sentence and cure.
Statements are SQL that both databases understand, with `:name` for values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from proctor.store.revisions import REVISIONS, VERSION_TABLE

__all__ = ["Glance", "as_moment", "glance"]

BUSY_SECONDS = 30
_SQLITE = "sqlite:///"


class Glance(Protocol):
    """One consistent look at the data."""

    def rows(self, sql: str, values: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Run one SELECT and give its rows; limit it in the statement."""
        ...


@contextmanager
def glance(url: str) -> Iterator[Glance | None]:
    """Look at a database; None when it is an SQLite file that is not there yet. Never makes one."""
    if not url.startswith(_SQLITE):
        with _long_way(url) as found:
            yield found
        return
    path = Path(unquote(url.removeprefix(_SQLITE).partition("?")[0]))
    quick = _open(path)
    if quick is not None:
        with closing(quick):
            yield _Sqlite(quick)
    elif _is_missing(path):
        yield None
    else:
        with _long_way(url) as found:
            yield found


def _is_missing(path: Path) -> bool:
    try:
        return not path.exists()
    except OSError:
        return False  # the long way says why it cannot be looked at


def _open(path: Path) -> sqlite3.Connection | None:
    """Open a file that is as we expect it, at one snapshot; None for everything else."""
    try:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
    except sqlite3.Error:
        return None
    try:
        connection.execute("BEGIN")
        found = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    except sqlite3.Error:
        found = None
    if found is None or found[0] != REVISIONS[-1]:
        connection.close()
        return None
    return connection


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        try:
            cursor = self._connection.execute(
                sql, {name: _bound(value) for name, value in (values or {}).items()}
            )
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        except sqlite3.DatabaseError as fault:
            sentence = _explained(fault, self._connection, sql)
            if sentence is None:
                raise
            raise sentence from fault


def _bound(value: object) -> object:
    """A moment as our column type writes it (see `types.UtcDateTime`); everything else as it is."""
    if not isinstance(value, datetime):
        return value
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _explained(fault: sqlite3.DatabaseError, connection: sqlite3.Connection, sql: str) -> Exception | None:
    import sqlalchemy as sa

    from proctor.store.faults import explain

    place = connection.execute("PRAGMA database_list").fetchone()[2]
    return explain(sa.exc.DatabaseError(sql, None, fault), place)


@contextmanager
def _long_way(url: str) -> Iterator[Glance]:
    from proctor.store.schema import open_database

    database = open_database(url)
    try:
        with database.read() as connection:
            yield _Text(connection)
    finally:
        database.close()


class _Text:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        import sqlalchemy as sa

        return [dict(row) for row in self._connection.execute(sa.text(sql), values or {}).mappings()]


def as_moment(value: Any) -> datetime | None:
    """Read a moment as either database gives it: a datetime, or ISO 8601 text of any program; else None."""
    if value is None:
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
