"""The shape of Proctor's own tables, on SQLite and PostgreSQL alike: columns, keys, indexes. Never a row, never a secret."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field

from proctor.gate.context import Context
from proctor.protocol.errors import NotFoundError
from proctor.protocol.tools import SideEffect, Tool
from proctor.store.database import Database
from proctor.store.tables import agent_status, metadata
from proctor.tools.models import MARK, ToolInput, ToolOutput
from proctor.tools.registry import declare

__all__ = ["SCHEMA_TOOLS", "SchemaOut", "TableSchema"]

# What the seeds' origins call the same tables.
SAME: Final = {"agent_registry": "agent_status", "agent_task_history": "task_history"}
VIEWS: Final = frozenset({agent_status.name})


class SchemaIn(ToolInput):
    """Which table."""

    table_name: str | None = Field(
        default=None, min_length=1, max_length=100, description="One table; without it only the names."
    )


class ColumnSchema(BaseModel):
    """One column."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: str
    nullable: bool
    default: str | None
    primary_key: bool


class ForeignKey(BaseModel):
    """A reference to another table."""

    model_config = ConfigDict(frozen=True)

    columns: list[str]
    referred_table: str
    referred_columns: list[str]


class IndexSchema(BaseModel):
    """One index."""

    model_config = ConfigDict(frozen=True)

    name: str
    columns: list[str]
    unique: bool


class TableSchema(BaseModel):
    """One table or view."""

    model_config = ConfigDict(frozen=True)

    table_name: str
    kind: str
    columns: list[ColumnSchema]
    primary_key: list[str]
    foreign_keys: list[ForeignKey]
    indexes: list[IndexSchema]


class SchemaOut(ToolOutput):
    """The table asked for, and the names of all."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    table_name: str | None
    database: str = Field(description="sqlite or postgresql.")
    table: TableSchema | None = Field(default=None, serialization_alias="schema")
    tables: list[str]


def _names() -> list[str]:
    return sorted({*metadata.tables, *VIEWS})


async def _query(context: Context, call: SchemaIn) -> SchemaOut:
    name = SAME.get(call.table_name or "", call.table_name)
    if name is not None and name not in _names():
        cure = f"There are: {', '.join(_names())}."
        raise NotFoundError(kind="table", name=str(call.table_name), cure=cure)
    found = None if name is None else await asyncio.to_thread(_table, context.database, name)
    return SchemaOut(
        table_name=call.table_name, database=context.database.dialect, table=found, tables=_names()
    )


def _table(database: Database, name: str) -> TableSchema:
    with database.read() as connection:
        look = sa.inspect(connection)
        view = name in VIEWS
        keys = list(look.get_pk_constraint(name)["constrained_columns"]) if not view else []
        return TableSchema(
            table_name=name,
            kind="view" if view else "table",
            columns=[_column(one, keys, connection.dialect) for one in look.get_columns(name)],
            primary_key=keys,
            foreign_keys=[_foreign(one) for one in ([] if view else look.get_foreign_keys(name))],
            indexes=[_index(one) for one in ([] if view else look.get_indexes(name))],
        )


def _column(one: Any, keys: list[str], dialect: sa.Dialect) -> ColumnSchema:
    default = one.get("default")
    return ColumnSchema(
        name=one["name"],
        type=_type(one["type"], dialect),
        nullable=bool(one["nullable"]) and one["name"] not in keys,
        default=None if default is None else str(default),
        primary_key=one["name"] in keys,
    )


def _type(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> str:
    """The type's name; a computed column of a view has none on SQLite."""
    return "" if isinstance(kind, sa.types.NullType) else kind.compile(dialect)


def _foreign(one: Any) -> ForeignKey:
    return ForeignKey(
        columns=list(one["constrained_columns"]),
        referred_table=one["referred_table"],
        referred_columns=list(one["referred_columns"]),
    )


def _index(one: Any) -> IndexSchema:
    columns = [str(name) for name in one["column_names"] if name is not None]
    return IndexSchema(name=str(one["name"]), columns=columns, unique=bool(one["unique"]))


async def _mock(context: Context, call: SchemaIn) -> SchemaOut:
    shape = TableSchema(
        table_name=call.table_name or MARK,
        kind=MARK,
        columns=[],
        primary_key=[],
        foreign_keys=[],
        indexes=[],
    )
    return SchemaOut(
        simulated=True, table_name=call.table_name, database=context.database.dialect, table=shape, tables=[]
    )


SCHEMA_TOOLS: tuple[Tool, ...] = (
    declare(
        name="query_schema",
        summary="Inspect the schema of a database table: columns, keys and indexes.",
        input=SchemaIn,
        output=SchemaOut,
        domain="database",
        side_effect=SideEffect.READ_ONLY,
        handler=_query,
        mock=_mock,
        seconds=60.0,
    ),
)
