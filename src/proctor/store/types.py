"""Column types and server defaults that mean the same on both databases; tables and migrations share them.

Once a migration has used one of these, its SQL must not change: add a new one instead.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

__all__ = ["GivenDateTime", "NewKey", "Unreadable", "UsdAmount", "UtcDateTime", "UtcNow", "read_json"]

_MILLIONTH = Decimal("0.000001")


class Unreadable(str):
    """What another program left in a column that is not of the column's kind; SQLite keeps anything anywhere."""

    __slots__ = ()


def read_json(text: str) -> Any:
    """Read a JSON column; what is no JSON comes as it is, because one row must not hide all the others."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return Unreadable(text)


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A moment in UTC: timestamptz on PostgreSQL, ISO 8601 text that sorts on SQLite."""

    impl = sa.String(32)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Choose the native type where there is one."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.String(32))

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        """Refuse a moment without a zone; write the rest in UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a datetime without a time zone cannot be stored; use datetime.now(UTC)")
        moment = value.astimezone(UTC)
        # Not strftime: it writes years before 1000 without leading zeros, and those would not sort.
        return (
            moment
            if dialect.name == "postgresql"
            else f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        )

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        """Read back in UTC; rows put in by other programs may carry any ISO form."""
        if value is None:
            return None
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


class GivenDateTime(UtcDateTime):
    """A moment in a row that other programs put in; one that cannot be read comes as `Unreadable`."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        """Read what can be read."""
        try:
            return super().process_result_value(value, dialect)
        except (ValueError, OverflowError):
            return Unreadable(value)


class UsdAmount(sa.types.TypeDecorator[Decimal]):
    """Dollars to the millionth: numeric on PostgreSQL; a real on SQLite, whose 15 digits hold all our 12."""

    impl = sa.Numeric(12, 6)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Choose the exact type where there is one."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.Numeric(12, 6))
        return dialect.type_descriptor(sa.Float())

    def process_bind_param(self, value: Decimal | None, dialect: sa.Dialect) -> Any:
        """Write what both databases can hold exactly."""
        if value is None:
            return None
        exact = Decimal(value).quantize(_MILLIONTH)
        return exact if dialect.name == "postgresql" else float(exact)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Decimal | None:
        """Read back to the millionth."""
        return None if value is None else Decimal(str(value)).quantize(_MILLIONTH)


class UtcNow(FunctionElement[datetime]):
    """The database's own clock as a column default."""

    inherit_cache = True
    type = UtcDateTime()


class NewKey(FunctionElement[str]):
    """A random key made by the database, for rows that other programs put in."""

    inherit_cache = True
    type = sa.String(64)


@compiles(UtcNow, "sqlite")
def _utc_now_sqlite(element: UtcNow, compiler: Any, **kw: Any) -> str:
    return "(strftime('%Y-%m-%dT%H:%M:%f000Z','now'))"


@compiles(UtcNow, "postgresql")
def _utc_now_postgresql(element: UtcNow, compiler: Any, **kw: Any) -> str:
    return "clock_timestamp()"


@compiles(NewKey, "sqlite")
def _new_key_sqlite(element: NewKey, compiler: Any, **kw: Any) -> str:
    return "(lower(hex(randomblob(16))))"


@compiles(NewKey, "postgresql")
def _new_key_postgresql(element: NewKey, compiler: Any, **kw: Any) -> str:
    return "gen_random_uuid()::text"
