"""Rows for tests: put in, read back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from proctor.store.database import Database
from proctor.store.tables import task_queue

__all__ = ["NOON", "add_task", "insert", "rows_of"]

NOON = datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=UTC)


def insert(database: Database, table: sa.Table, **values: Any) -> None:
    """Write one row in a transaction of its own."""
    with database.write() as connection:
        connection.execute(sa.insert(table).values(**values))


def add_task(database: Database, **values: Any) -> None:
    """Write a task, named task-1 unless told otherwise."""
    insert(database, task_queue, **{"task_id": "task-1", "description": "d", **values})


def rows_of(database: Database, statement: sa.Select[Any]) -> list[dict[str, Any]]:
    """Read all rows of a statement as dictionaries."""
    with database.read() as connection:
        return [dict(row) for row in connection.execute(statement).mappings()]
