"""Statements for the paths every call takes: compiled once, then given to the driver as text with plain values.

The same SQL and the same types as through SQLAlchemy, at a third of the price. Values are named; a list of keys is made
by `keys`, one bind each. Runs inside the caller's transaction, with SQLAlchemy's events and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

__all__ = ["Quick", "keys"]

Row = dict[str, Any]
_Process = Callable[[Any], Any]
_MAX_FORMS = 64  # a statement has a handful; more would mean that somebody builds them from data


def keys(count: int) -> list[sa.BindParameter[str]]:
    """Binds `key0`, `key1`, … for an IN of so many."""
    return [sa.bindparam(f"key{number}", type_=sa.String()) for number in range(count)]


class _Form:
    """One statement in one dialect."""

    def __init__(self, statement: Any, dialect: sa.Dialect, columns: Sequence[str] | None) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        self.text = str(compiled)
        self._order: Sequence[str] | None = compiled.positiontup
        self._names = tuple(compiled.bind_names.values())
        self._fixed: Row = {
            name: bind.effective_value for bind, name in compiled.bind_names.items() if not bind.required
        }
        self._binds: Mapping[str, _Process] = compiled._bind_processors
        found = getattr(statement, "selected_columns", ())
        self._results = [(column.name, _reader(column.type, dialect)) for column in found]

    def values(self, given: Mapping[str, Any]) -> Any:
        """The values as the driver takes them."""
        whole = {**self._fixed, **given} if self._fixed else dict(given)
        for name, process in self._binds.items():
            whole[name] = process(whole[name])
        if self._order is None:
            return {name: whole[name] for name in self._names}
        return tuple([whole[name] for name in self._order])

    def row(self, found: Sequence[Any]) -> Row:
        """A row of the driver by its columns' names."""
        return {
            name: value if read is None or value is None else read(value)
            for (name, read), value in zip(self._results, found, strict=True)
        }


def _reader(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> _Process | None:
    real = kind.dialect_impl(dialect)
    return cast("_Process | None", real.result_processor(dialect, None))


class Quick:
    """A statement whose text does not depend on its values; `make` builds it for a dialect's name and a size."""

    def __init__(self, make: Callable[[str, int], Any], *, inserts: bool = False) -> None:
        self._make, self._inserts = make, inserts
        self._forms: dict[tuple[Any, ...], _Form] = {}

    def _form(self, connection: sa.Connection, size: int, given: Mapping[str, Any]) -> _Form:
        columns = tuple(given) if self._inserts else None
        place = (connection.dialect.name, size, columns)
        form = self._forms.get(place)
        if form is None:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            made = self._make(connection.dialect.name, size)
            form = self._forms[place] = _Form(made, connection.dialect, columns)
        return form

    def run(self, connection: sa.Connection, given: Mapping[str, Any], keys: Sequence[str] = ()) -> int:
        """Change rows; how many."""
        form = self._form(connection, len(keys), given)
        return connection.exec_driver_sql(form.text, form.values(_with(given, keys))).rowcount

    def rows(
        self, connection: sa.Connection, given: Mapping[str, Any], keys: Sequence[str] = ()
    ) -> list[Row]:
        """Read rows."""
        form = self._form(connection, len(keys), given)
        found = connection.exec_driver_sql(form.text, form.values(_with(given, keys))).fetchall()
        return [form.row(one) for one in found]


def _with(given: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    return {**given, **{f"key{number}": key for number, key in enumerate(keys)}} if keys else given
