"""The quick lane: a change whose statements are known beforehand, each of which must touch exactly so many rows.

All of it or nothing, durable when `commit` returns True. SQLite: one kept connection, whose driver keeps the statements
prepared. PostgreSQL: all steps are one prepared statement, which is a transaction of its own, so that one trip does it
and no lock waits for the client. What does not fit is for the ordinary way, which finds out why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from proctor.store.database import Database
from proctor.store.faults import explain

__all__ = ["Lane", "Step"]

# After this long without use, ask whether the server still knows us; a lost connection is then opened anew.
PING_SECONDS: Final = 5.0
_UNFIT: Final = "22012"  # division by zero: how the one statement says that a step did not fit
_AGAIN: Final = ("40001", "40P01")  # serialization failure, deadlock: undone, and worth another try


class Step(NamedTuple):
    """One statement with its values, in order, and how many rows it must touch."""

    text: str
    values: Sequence[Any]
    rows: int = 1


class Lane:
    """One thread's own connection, opened at the first use."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dialect = database.engine.dialect
        self._kept: sa.Connection | None = None
        self._cursor: Any = None
        self._used = 0.0
        self._run = self._one_by_one if database.dialect == "sqlite" else self._all_at_once

    def commit(self, steps: Sequence[Step]) -> bool:
        """Make the change durable; False: a step did not fit, and nothing was changed."""
        watch = self._database.watch or _unwatched
        try:
            self._ready()
            fits = self._run(steps, watch)
        except self._dialect.loaded_dbapi.Error as error:
            return self._undone(error)
        except BaseException:
            self.close()  # in the middle of who knows what
            raise
        self._used = time.monotonic()
        return fits

    def close(self) -> None:
        """Let the connection go, and with it whatever was not committed."""
        kept, self._kept, self._cursor = self._kept, None, None
        if kept is not None:
            kept.close()

    def _ready(self) -> None:
        quiet = time.monotonic() - self._used > PING_SECONDS
        if self._kept is not None and quiet and self._database.dialect == "postgresql":
            try:
                self._cursor.execute("SELECT 1")
            except self._dialect.loaded_dbapi.Error:
                self.close()
        if self._kept is None:
            self._kept = self._database.own()
            bare: Any = self._kept.connection.dbapi_connection
            if self._database.dialect == "postgresql":
                bare.autocommit = True
            self._cursor = bare.cursor()

    def _one_by_one(self, steps: Sequence[Step], watch: Callable[[str], None]) -> bool:
        cursor = self._cursor
        watch("BEGIN")
        cursor.execute("BEGIN IMMEDIATE")
        for text, values, rows in steps:
            watch(text)
            if cursor.execute(text, values).rowcount != rows:
                cursor.execute("ROLLBACK")
                return False
        watch("COMMIT")
        cursor.execute("COMMIT")
        watch("committed")
        return True

    def _all_at_once(self, steps: Sequence[Step], watch: Callable[[str], None]) -> bool:
        text = _joined(tuple([(step.text, step.rows) for step in steps]))
        values = [value for step in steps for value in step.values]
        watch(text)
        self._cursor.execute(text, values)
        watch("committed")
        return True

    def _undone(self, error: Exception) -> bool:
        """What an error of the driver means: another try the ordinary way, or a place that cannot serve."""
        state = getattr(error, "sqlstate", None)
        if state == _UNFIT or state in _AGAIN:
            return False
        bare: Any = self._kept.connection.dbapi_connection if self._kept is not None else None
        lost = bool(self._dialect.is_disconnect(error, bare, self._cursor))  # type: ignore[arg-type]  # the driver's
        made: Any = sa.exc.DBAPIError.instance(
            "a change of the quick lane",
            None,
            error,
            self._dialect.loaded_dbapi.Error,
            connection_invalidated=lost,
            dialect=self._dialect,
        )
        self.close()
        sentence = explain(made, self._database.place)
        if sentence is not None:
            raise sentence from made
        return False


def _unwatched(_moment: str) -> None:
    """Nobody looks."""


@lru_cache(maxsize=256)
def _joined(parts: tuple[tuple[str, int], ...]) -> str:
    """One statement of several: each must have touched its rows, else its last part fails and undoes them all.

    The conditions are looked at from the left, and with them the parts run: the first takes the lock that orders writers.
    """
    named = ", ".join(f"s{place} AS ({_counted(text)})" for place, (text, _) in enumerate(parts))
    fits = " AND ".join(f"(SELECT count(*) FROM s{place}) = {rows}" for place, (_, rows) in enumerate(parts))
    return f"WITH {named} SELECT 1 / ({fits})::int"


def _counted(text: str) -> str:
    return text if text.startswith("SELECT") else f"{text} RETURNING 1"
