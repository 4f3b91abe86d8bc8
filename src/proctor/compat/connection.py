"""A connection as the seeds' code holds one: cursors, rows as dictionaries that JSON takes. It reads and cannot write.

Rows change only through the front doors (queue, gate, plans), each with its event; a statement that would write is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

import sqlalchemy as sa
from loguru import logger

from proctor.protocol.errors import RefusedError, UsageError
from proctor.store.database import Database

__all__ = ["Cursor", "ReadConnection", "ReadOnlyError"]

MOST_ROWS: Final = 10_000
_MARK: Final = re.compile(r"%(?:%|s|\((\w+)\)s)")
_READ_ONLY: Final = re.compile(r"read-?only", re.IGNORECASE)
Parameters = Sequence[Any] | Mapping[str, Any] | None


class ReadOnlyError(RefusedError):
    """Refused: this connection only reads. Change tasks through AgentCoordinator or `proctor tasks`: the trace tells it."""

    code = "read_only"


class Cursor:
    """Runs statements, each on a snapshot of its own; at most 10,000 rows, and `truncated` says when there were more."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows: list[dict[str, Any]] = []
        self.truncated = False
        self.rowcount = -1

    def execute(self, sql: str, parameters: Parameters = None) -> None:
        """Run one statement with `%s` or `%(name)s` for values, on either database."""
        text = sql if self._database.dialect == "postgresql" else _for_sqlite(sql, parameters)
        given = _given(parameters)
        with self._database.read() as connection:
            try:
                found = connection.exec_driver_sql(text, given)
                rows = found.mappings().fetchmany(MOST_ROWS + 1) if found.returns_rows else []
            except sa.exc.DBAPIError as error:
                if _READ_ONLY.search(str(error.orig)):
                    raise ReadOnlyError from None
                raise UsageError(message=f"The statement cannot be run: {error.orig}") from None
        self.truncated = len(rows) > MOST_ROWS
        if self.truncated:
            logger.warning("a query gave more than {} rows and was cut", MOST_ROWS)
        self._rows = [{name: _plain(value) for name, value in row.items()} for row in rows[:MOST_ROWS]]
        self.rowcount = len(self._rows)

    def fetchone(self) -> dict[str, Any] | None:
        """The next row, or None."""
        return self._rows.pop(0) if self._rows else None

    def fetchmany(self, size: int = 1) -> list[dict[str, Any]]:
        """The next rows."""
        taken, self._rows = self._rows[:size], self._rows[size:]
        return taken

    def fetchall(self) -> list[dict[str, Any]]:
        """All rows that are left."""
        return self.fetchmany(len(self._rows))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (row := self.fetchone()) is not None:
            yield row

    def close(self) -> None:
        """Forget the rows."""
        self._rows = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ReadConnection:
    """Gives cursors; commit and rollback have nothing to do and do nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.closed = False

    def cursor(self, **_factory: Any) -> Cursor:
        """A cursor; rows are dictionaries whatever `cursor_factory` says."""
        if self.closed:
            raise UsageError(message="The connection is closed. Open another with connect_db().")
        return Cursor(self._database)

    def commit(self) -> None:
        """Nothing was written."""

    def rollback(self) -> None:
        """Nothing was written."""

    def close(self) -> None:
        """Give no more cursors."""
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _for_sqlite(sql: str, parameters: Parameters) -> str:
    if parameters is None:
        return sql

    def mark(found: re.Match[str]) -> str:
        return "%" if found[0] == "%%" else f":{found[1]}" if found[1] else "?"

    return _MARK.sub(mark, sql)


def _given(parameters: Parameters) -> Any:
    if parameters is None or isinstance(parameters, Mapping):
        return parameters
    return tuple(parameters)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
