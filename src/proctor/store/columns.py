"""What all tables share: the metadata with its naming, and the columns that recur."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from proctor.store.types import NewKey, UtcDateTime, UtcNow

__all__ = ["created", "json_column", "key", "metadata", "moment"]

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def json_column(name: str, default: str | None = None) -> sa.Column[Any]:
    """A JSON value; with a default it is never null."""
    if default is None:
        return sa.Column(name, sa.JSON(none_as_null=True))
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=False, server_default=sa.text(f"'{default}'"))


def moment(name: str, kind: type[UtcDateTime] = UtcDateTime) -> sa.Column[Any]:
    """A moment that may be missing."""
    return sa.Column(name, kind())


def created(name: str = "created_at", kind: type[UtcDateTime] = UtcDateTime) -> sa.Column[Any]:
    """When the row was made, by the database's clock if nobody says."""
    return sa.Column(name, kind(), nullable=False, server_default=UtcNow())


def key(name: str) -> sa.Column[Any]:
    """A primary key that the database makes if nobody gives one."""
    return sa.Column(name, sa.String(64), primary_key=True, server_default=NewKey())
