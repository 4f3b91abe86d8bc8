"""Statements for the paths every call takes: compiled once, then given to the driver as text with plain values.

The same SQL and the same types as through SQLAlchemy, at a fifth of the price, with its errors. Values are named; a
list of keys is made by `keys`, one bind each. Runs inside the caller's transaction; who listens to statements hears all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

import sqlalchemy as sa
from pydantic_core import to_json
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import psycopg

from proctor.store.lane import Step

__all__ = ["Quick", "drive", "keys"]

Row = dict[str, Any]
_Process = Callable[[Any], Any]
_MAX_FORMS = 64  # a statement has a handful; more would mean that somebody builds them from data
# For steps of the quick lane, which are put together: their values have places, not names.
_IN_ORDER: Mapping[str, sa.Dialect] = {
    "sqlite": sqlite.dialect(),
    "postgresql": psycopg.dialect(paramstyle="format"),  # type: ignore[no-untyped-call]
}


def drive(connection: sa.Connection, text: str, values: Any = (), *, many: bool = False) -> Any:
    """Run text on the driver's own cursor, which is what this gives; errors come as SQLAlchemy's."""
    if connection.dispatch.before_cursor_execute or connection.dispatch.after_cursor_execute:
        return connection.exec_driver_sql(text, values or None)
    bare: Any = connection.connection.dbapi_connection
    cursor = bare.cursor()
    try:
        (cursor.executemany if many else cursor.execute)(text, values)
    except connection.dialect.loaded_dbapi.Error as error:
        raise _wrapped(connection, text, values, error, cursor) from error
    return cursor


def _wrapped(connection: sa.Connection, text: str, values: Any, error: Exception, cursor: Any) -> Exception:
    bare: Any = connection.connection.dbapi_connection
    lost = bool(connection.dialect.is_disconnect(error, bare, cursor))  # type: ignore[arg-type]  # it is the driver's
    if lost:
        connection.invalidate(error)
    made: Exception = sa.exc.DBAPIError.instance(
        text,
        values,
        error,
        connection.dialect.loaded_dbapi.Error,
        hide_parameters=connection.engine.hide_parameters,
        connection_invalidated=lost,
        dialect=connection.dialect,
    )
    return made


def keys(count: int) -> list[sa.BindParameter[str]]:
    """Binds `key0`, `key1`, … for an IN of so many."""
    return [sa.bindparam(f"key{number}", type_=sa.String()) for number in range(count)]


def _picker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Take some values out, in order; a row of many columns costs one look."""
    if len(names) < 2:  # itemgetter gives those alone
        return lambda given: [given[name] for name in names]
    pick = itemgetter(*names)
    return lambda given: list(pick(given))


def _as_json(value: Any) -> str | None:
    """Text of a JSON value, as every one of our columns takes it: None is null."""
    if value is None:
        return None
    try:
        return to_json(value).decode()
    except ValueError:  # half a surrogate, which the other writes as an escape
        return json.dumps(value)


class _Form:
    """One statement in one dialect."""

    def __init__(self, statement: Any, dialect: sa.Dialect, columns: Sequence[str] | None) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        self.text = str(compiled)
        binds: Mapping[str, _Process] = compiled._bind_processors
        in_order = compiled.positiontup
        names = list(in_order or compiled.bind_names.values())
        quick = {
            name: _as_json for bind, name in compiled.bind_names.items() if isinstance(bind.type, sa.JSON)
        }
        self._names = None if in_order is not None else names
        self._pick = _picker(names)
        self._read = [
            (place, read) for place, name in enumerate(names) if (read := quick.get(name) or binds.get(name))
        ]
        self._fixed: Row = {
            name: bind.effective_value for bind, name in compiled.bind_names.items() if not bind.required
        }
        self._columns = list(getattr(statement, "selected_columns", ()))
        self._dialect = dialect
        self._results: list[tuple[str, _Process | None]] | None = None

    def values(self, given: Mapping[str, Any]) -> Any:
        """The values as the driver takes them."""
        found = self._pick({**self._fixed, **given} if self._fixed else given)
        for place, read in self._read:
            found[place] = read(found[place])
        return tuple(found) if self._names is None else dict(zip(self._names, found, strict=True))

    def rows(self, cursor: Any) -> list[Row]:
        """The rows of a cursor by their columns' names."""
        if self._results is None:  # before the rows: a cursor at its end may know no types any more
            self._results = self._readers(cursor.cursor if isinstance(cursor, sa.CursorResult) else cursor)
        return [self._row(one) for one in cursor.fetchall()]

    def _row(self, found: Sequence[Any]) -> Row:
        return {
            name: value if read is None or value is None else read(value)
            for (name, read), value in zip(self._results or (), found, strict=True)
        }

    def _readers(self, cursor: Any) -> list[tuple[str, _Process | None]]:
        """How each column is read; that may depend on the driver's own type of it."""
        kinds = [one[1] for one in cursor.description]
        return [
            (column.name, _reader(column.type, self._dialect, kind))
            for column, kind in zip(self._columns, kinds, strict=True)
        ]


def _reader(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect, driver_kind: Any) -> _Process | None:
    return cast("_Process | None", kind.dialect_impl(dialect).result_processor(dialect, driver_kind))


class Quick:
    """A statement whose text does not depend on its values; `make` builds it for a dialect's name and a size."""

    def __init__(self, make: Callable[[str, int], Any], *, inserts: bool = False) -> None:
        self._make, self._inserts = make, inserts
        self._forms: dict[tuple[Any, ...], _Form] = {}

    def _form(self, dialect: sa.Dialect, size: int, given: Mapping[str, Any]) -> _Form:
        columns = tuple(given) if self._inserts else None
        place = (dialect.name, dialect.paramstyle, size, columns)
        form = self._forms.get(place)
        if form is None:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            form = self._forms[place] = _Form(self._make(dialect.name, size), dialect, columns)
        return form

    def step(
        self, dialect: str, given: Mapping[str, Any], keys: Sequence[str] = (), *, rows: int = 1
    ) -> Step:
        """The statement as a step of the quick lane."""
        form = self._form(_IN_ORDER[dialect], len(keys), given)
        return Step(form.text, form.values(_with(given, keys)), rows)

    def run(self, connection: sa.Connection, given: Mapping[str, Any], keys: Sequence[str] = ()) -> int:
        """Change rows; how many."""
        form = self._form(connection.dialect, len(keys), given)
        return int(drive(connection, form.text, form.values(_with(given, keys))).rowcount)

    def rows(
        self, connection: sa.Connection, given: Mapping[str, Any], keys: Sequence[str] = ()
    ) -> list[Row]:
        """Read rows."""
        form = self._form(connection.dialect, len(keys), given)
        return form.rows(drive(connection, form.text, form.values(_with(given, keys))))


def _with(given: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    return {**given, **{f"key{number}": key for number, key in enumerate(keys)}} if keys else given
