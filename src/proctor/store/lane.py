"""The quick lane: a change whose statements are known beforehand, each of which must touch exactly so many rows.

All of it or nothing, durable when `settle` returns True. It comes in two halves: `send` says what is to change and waits
for nothing, so that an event loop may do it; `settle` waits for the disk or the server. Whoever must not wait looks at
`prompt` (a disk that was quick lately) or listens on `answers_on` (a server's socket) first. What does not fit is for the
ordinary way, which finds out why.
"""

from __future__ import annotations

import select
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import sqlalchemy as sa

from proctor.store.database import Database
from proctor.store.faults import explain

__all__ = ["Lane", "Step"]

_NAME: Final = "a change of the quick lane"
# Division by zero is how the one statement says that a step did not fit; after a serialization failure or a deadlock
# it is undone as well, and worth another try.
_UNFIT: Final = ("22012", "40001", "40P01")
_MAX_PREPARED: Final = 256
_ANSWER_SECONDS: Final = 60  # twice as long as the server lets a statement wait for a lock
# A disk that answers within the first is not worth a change of threads; one that did not is left to a thread for the second.
_QUICK_SECONDS: Final = 0.002
_SLOW_SECONDS: Final = 0.25
_COMMITS: Final = 64  # after so many the write-ahead log is written back into the file
_TEXT, _BINARY = 0, 1
_EITHER: Final = select.POLLIN | select.POLLOUT


class Step(NamedTuple):
    """One statement with its values, in order, and how many rows it must touch."""

    text: str
    values: Sequence[Any]
    rows: int = 1


_Watch = Callable[[str], None]


class _Hand(Protocol):
    """What writes in one kind of database."""

    def send(self, steps: Sequence[Step], watch: _Watch) -> bool:
        """Say the change; False: a step did not fit, and nothing was changed."""
        ...

    def settle(self, watch: _Watch) -> None:
        """Wait until it is durable."""
        ...

    @property
    def prompt(self) -> bool:
        """Whether that is likely to take less than a change of threads is worth."""
        ...

    @property
    def answers_on(self) -> int | None:
        """The socket on which the answer comes, if it comes on one."""
        ...

    def arrived(self) -> bool:
        """Whether the answer is there; asked when something has come."""
        ...


class Lane:
    """One connection of its own, opened at the first use. Used by one thread at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dialect = database.engine.dialect
        self._bare: Any = None
        self._hand: _Hand | None = None
        self._waiting: Sequence[Step] | None = None  # said before there was a connection
        self._failed: Exception | None = None  # of the driver, while sending

    def send(self, steps: Sequence[Step]) -> bool:
        """Say what is to change; False: a step did not fit, and nothing was changed. After True comes `settle`."""
        self._waiting, self._failed = steps if self._hand is None else None, None
        if self._hand is None:
            return True
        try:
            return self._hand.send(steps, self._database.watch or _unwatched)
        except self._dialect.loaded_dbapi.Error as error:
            self._failed = error
            return True
        except BaseException:
            self.close()  # in the middle of who knows what
            raise

    def settle(self) -> bool | None:
        """Make what was sent durable; False: it did not fit, and nothing was changed.

        None: the server was lost on the way, so that only the database itself can tell, when it is back.
        """
        watch = self._database.watch or _unwatched
        try:
            if self._failed is not None:
                raise self._failed
            hand = self._hand or self._open()
            if self._waiting is not None and not hand.send(self._waiting, watch):
                return False
            hand.settle(watch)
        except self._dialect.loaded_dbapi.Error as error:
            return self._undone(error)
        except BaseException:
            self.close()
            raise
        return True

    @property
    def prompt(self) -> bool:
        """Whether `settle` may be called where others wait: it only has to wait for a disk that was quick lately."""
        return self._hand is not None and self._failed is None and self._hand.prompt

    @property
    def answers_on(self) -> int | None:
        """Where the answer to what was sent comes in; None when it has to be waited for in a thread."""
        return None if self._hand is None or self._failed is not None else self._hand.answers_on

    def arrived(self) -> bool:
        """Whether `settle` would not wait any more; asked whenever something has come in."""
        if self._hand is None:
            return True
        try:
            return self._hand.arrived()
        except self._dialect.loaded_dbapi.Error as error:
            self._failed = error
            return True

    def close(self) -> None:
        """Let the connection go, and with it whatever was not committed."""
        bare, self._bare, self._hand = self._bare, None, None
        if bare is not None:
            bare.close()

    def _open(self) -> _Hand:
        self._bare = self._database.own()
        kind = _OneByOne if self._database.dialect == "sqlite" else _AllAtOnce
        self._hand = made = kind(self._bare)
        return made

    def _undone(self, error: Any) -> bool | None:
        """What an error of the driver means: another try the ordinary way, or a place that cannot serve."""
        driver = self._dialect.loaded_dbapi
        if isinstance(error, driver.IntegrityError) or getattr(error, "sqlstate", None) in _UNFIT:
            self._bare.rollback()
            return False
        lost = bool(self._dialect.is_disconnect(error, self._bare, None))
        self.close()
        if lost:
            return None
        made: Any = sa.exc.DBAPIError.instance(_NAME, None, error, driver.Error, dialect=self._dialect)
        sentence = explain(made, self._database.place)
        if sentence is not None:
            raise sentence from made
        return False


def _unwatched(_moment: str) -> None:
    """Nobody looks."""


# ── SQLite ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _OneByOne:
    """The statements change pages in memory, and only their COMMIT writes; the driver keeps them prepared."""

    def __init__(self, bare: sqlite3.Connection) -> None:
        self._cursor = bare.cursor()
        self._cursor.execute("PRAGMA busy_timeout=0")  # sending waits for nobody: the ordinary way does
        self._cursor.execute("PRAGMA wal_autocheckpoint=0")  # see `settle`
        self._slow_until = 0.0
        self._commits = 0  # since the log was last written back

    @property
    def prompt(self) -> bool:
        return time.monotonic() >= self._slow_until and self._commits < _COMMITS

    @property
    def answers_on(self) -> None:
        return None

    def arrived(self) -> bool:
        return True

    def send(self, steps: Sequence[Step], watch: _Watch) -> bool:
        cursor = self._cursor
        watch("BEGIN")
        if not self._begun():
            return False
        try:
            for text, values, rows in steps:
                watch(text)
                if cursor.execute(text, values).rowcount != rows:
                    cursor.execute("ROLLBACK")
                    return False
        except sqlite3.IntegrityError:
            cursor.execute("ROLLBACK")
            return False
        return True

    def _begun(self) -> bool:
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def settle(self, watch: _Watch) -> None:
        watch("COMMIT")
        began = time.monotonic()
        self._cursor.execute("COMMIT")
        ended = time.monotonic()
        if ended - began > _QUICK_SECONDS:
            self._slow_until = ended + _SLOW_SECONDS
        watch("committed")
        self._commits += 1
        if self._commits > _COMMITS:  # not `prompt`, so in a thread: writing the log back takes its time
            self._cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._commits = 0


# ── PostgreSQL ────────────────────────────────────────────────────────────────────────────────────────────────────


class _AllAtOnce:
    """All steps are one prepared statement, which is a transaction of its own: one trip, and no lock waits for us."""

    def __init__(self, bare: Any) -> None:
        bare.autocommit = True
        self._bare, self._pq = bare, bare.pgconn
        self._ready = select.poll()
        self._ready.register(self._pq.socket, select.POLLIN)
        self._names: dict[str, bytes] = {}
        self._unknown: tuple[str, list[bytes | None], list[int]] | None = None
        self._unsent = False  # more than the socket takes at once

    def send(self, steps: Sequence[Step], watch: _Watch) -> bool:
        text = _joined(tuple([(step.text, step.rows) for step in steps]))
        whole = [value for step in steps for value in step.values]
        if any(type(value) is str and "\0" in value for value in whole):
            return False  # no text there has it, and the driver would end at it
        watch(text)
        name, values = self._names.get(text), [_PLAIN[type(value)](value) for value in whole]
        formats = [_BINARY if type(value) is bytes else _TEXT for value in whole]
        self._unknown = (text, values, formats) if name is None else None
        if name is not None:
            self._pq.send_query_prepared(name, values, formats)
            self._unsent = bool(self._pq.flush())
        return True

    @property
    def prompt(self) -> bool:
        return False  # a server may let us wait for a lock, or for ever

    @property
    def answers_on(self) -> int | None:
        return None if self._unsent or self._unknown is not None else self._pq.socket

    def arrived(self) -> bool:
        self._pq.consume_input()
        return not self._pq.is_busy()

    def settle(self, watch: _Watch) -> None:
        if self._unknown is not None:
            text, values, formats = self._unknown
            self._pq.send_query_prepared(self._prepared(text), values, formats)
        self._check(self._answer())
        watch("committed")

    def _prepared(self, text: str) -> bytes:
        if len(self._names) >= _MAX_PREPARED:
            self._names.clear()
            self._check(self._pq.exec_(b"DEALLOCATE ALL"))
        name = b"proctor_%d" % len(self._names)
        self._check(self._pq.prepare(name, text.encode()))
        self._names[text] = name
        return name

    def _answer(self) -> Any:
        """The statement's one result; the waiting leaves other threads alone."""
        from psycopg import OperationalError

        while (unsent := self._pq.flush()) or self._pq.is_busy():
            self._ready.modify(self._pq.socket, _EITHER if unsent else select.POLLIN)
            if not self._ready.poll(_ANSWER_SECONDS * 1000):
                self._bare.close()  # whether it was done only the log can tell; a late one finds the head moved
                raise OperationalError(f"the server did not answer within {_ANSWER_SECONDS} s")
            self._pq.consume_input()
        found = self._pq.get_result()
        while self._pq.get_result() is not None:
            continue
        return found

    def _check(self, result: Any) -> None:
        from psycopg.errors import error_from_result
        from psycopg.pq import ExecStatus

        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise error_from_result(result)


# Values as the server reads them: each statement says which type it wants.
_PLAIN: Final[Mapping[type, Callable[[Any], bytes | None]]] = {
    type(None): lambda _: None,
    bool: lambda value: b"t" if value else b"f",
    bytes: lambda value: value,
    datetime: lambda value: value.isoformat().encode(),
    float: lambda value: repr(value).encode(),
    int: lambda value: b"%d" % value,
    str: str.encode,
}


@lru_cache(maxsize=_MAX_PREPARED)
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
