"""The quick lane: a change whose statements are known beforehand, each of which must touch exactly so many rows.

All of it or nothing, durable when `commit` returns True. SQLite: one kept connection, whose driver keeps the statements
prepared. PostgreSQL: all steps are one prepared statement, which is a transaction of its own, so that one trip does it
and no lock waits for the client. What does not fit is for the ordinary way, which finds out why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from proctor.store.database import Database
from proctor.store.faults import explain

__all__ = ["Lane", "Step"]

_NAME: Final = "a change of the quick lane"
# Division by zero is how the one statement says that a step did not fit; after a serialization failure or a deadlock
# it is undone as well, and worth another try.
_UNFIT: Final = ("22012", "40001", "40P01")


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
        self._bare: Any = None
        self._cursor: Any = None
        self._run = self._one_by_one if database.dialect == "sqlite" else self._all_at_once

    def commit(self, steps: Sequence[Step]) -> bool | None:
        """Make the change durable; False: a step did not fit, and nothing was changed.

        None: the server was lost on the way, so that only the database itself can tell, when it is back.
        """
        watch = self._database.watch or _unwatched
        try:
            self._ready()
            return self._run(steps, watch)
        except self._dialect.loaded_dbapi.Error as error:
            return self._undone(error)
        except BaseException:
            self.close()  # in the middle of who knows what
            raise

    def close(self) -> None:
        """Let the connection go, and with it whatever was not committed."""
        bare, self._bare, self._cursor = self._bare, None, None
        if bare is not None:
            bare.close()

    def _ready(self) -> None:
        if self._bare is None:
            self._bare = bare = self._database.own()
            self._cursor = bare.cursor() if self._database.dialect == "sqlite" else _raw_cursor(bare)

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

    def _undone(self, error: Any) -> bool | None:
        """What an error of the driver means: another try the ordinary way, or a place that cannot serve."""
        driver = self._dialect.loaded_dbapi
        if isinstance(error, driver.IntegrityError) or getattr(error, "sqlstate", None) in _UNFIT:
            self._bare.rollback()
            return False
        lost = bool(self._dialect.is_disconnect(error, self._bare, self._cursor))
        self.close()
        if lost:
            return None
        made: Any = sa.exc.DBAPIError.instance(_NAME, None, error, driver.Error, dialect=self._dialect)
        sentence = explain(made, self._database.place)
        if sentence is not None:
            raise sentence from made
        return False


def _raw_cursor(connection: Any) -> Any:
    """A cursor for statements with numbered places: the driver would read the others letter by letter each time."""
    from psycopg import RawCursor

    connection.autocommit = True
    return RawCursor(connection)


def _unwatched(_moment: str) -> None:
    """Nobody looks."""


@lru_cache(maxsize=256)
def _joined(parts: tuple[tuple[str, int], ...]) -> str:
    """One statement of several: each must have touched its rows, else its last part fails and undoes them all.

    The conditions are looked at from the left, and with them the parts run: the first takes the lock that orders writers.
    """
    named = ", ".join(f"s{place} AS ({_counted(text)})" for place, (text, _) in enumerate(parts))
    fits = " AND ".join(f"(SELECT count(*) FROM s{place}) = {rows}" for place, (_, rows) in enumerate(parts))
    return _numbered(f"WITH {named} SELECT 1 / ({fits})::int")


def _numbered(text: str) -> str:
    first, *others = text.split("%s")
    return "".join([first, *(f"${place}{part}" for place, part in enumerate(others, 1))]).replace("%%", "%")


def _counted(text: str) -> str:
    return text if text.startswith("SELECT") else f"{text} RETURNING 1"
