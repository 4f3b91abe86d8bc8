"""Transactions mean the same on both databases: writers are serial, readers see one moment, errors undo."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.store.database import Database
from proctor.store.tables import task_queue
from tests.support.rows import add_task, rows_of


def _race(callers: int, one: Any) -> list[bool]:
    start = threading.Barrier(callers)

    def run(_: int) -> bool:
        start.wait(30)
        granted: bool = one()
        return granted

    with ThreadPoolExecutor(callers) as pool:
        return list(pool.map(run, range(callers)))


def test_hundred_writers_that_read_and_subtract_get_exactly_what_is_there(database: Database) -> None:
    """Read, decide, subtract: with the row lock the tenth grant is the last, on both databases."""
    add_task(database, retry_count=10)

    def reserve() -> bool:
        with database.write() as connection:
            left = connection.execute(sa.select(task_queue.c.retry_count).with_for_update()).scalar_one()
            if left > 0:
                connection.execute(sa.update(task_queue).values(retry_count=left - 1))
            return bool(left > 0)

    assert sum(_race(100, reserve)) == 10
    assert rows_of(database, sa.select(task_queue.c.retry_count)) == [{"retry_count": 0}]


def test_hundred_conditional_updates_get_exactly_what_is_there(database: Database) -> None:
    """One conditional UPDATE needs no row lock of its own."""
    add_task(database, retry_count=10)
    spend = (
        sa.update(task_queue)
        .where(task_queue.c.retry_count > 0)
        .values(retry_count=task_queue.c.retry_count - 1)
    )

    def reserve() -> bool:
        with database.write() as connection:
            return connection.execute(spend).rowcount == 1

    assert sum(_race(100, reserve)) == 10
    assert rows_of(database, sa.select(task_queue.c.retry_count)) == [{"retry_count": 0}]


def test_error_rolls_everything_back_and_the_connection_is_clean(database: Database) -> None:
    """Nothing of a failed transaction stays, and the next one on the same connection works."""

    def leave_in_the_middle() -> None:
        with database.write() as connection:
            connection.execute(sa.insert(task_queue).values(description="lost"))
            raise LookupError("on purpose")

    with pytest.raises(LookupError, match="on purpose"):
        leave_in_the_middle()
    add_task(database, description="kept")
    assert rows_of(database, sa.select(task_queue.c.description)) == [{"description": "kept"}]


def test_reader_sees_one_moment_while_a_writer_commits(database: Database) -> None:
    """Inside one read() nothing changes; the writer does not wait for it; the next read() sees the change."""
    add_task(database, task_id="before")
    count = sa.select(sa.func.count()).select_from(task_queue)
    with database.read() as connection:
        assert connection.execute(count).scalar_one() == 1
        add_task(database, task_id="meanwhile")
        assert connection.execute(count).scalar_one() == 1
    with database.read() as connection:
        assert connection.execute(count).scalar_one() == 2


def test_reader_cannot_write(database: Database) -> None:
    """read() refuses to write as a defect of the caller, and leaves the connection fit for writers."""
    with pytest.raises(sa.exc.DBAPIError), database.read() as connection:
        connection.execute(sa.insert(task_queue).values(description="sneaked in"))
    add_task(database, description="proper")
    assert rows_of(database, sa.select(task_queue.c.description)) == [{"description": "proper"}]


def test_uncommitted_rows_are_invisible_to_others(database: Database) -> None:
    """Nobody sees a row before its commit."""
    with database.write() as connection:
        connection.execute(sa.insert(task_queue).values(description="not yet"))
        assert rows_of(database, sa.select(task_queue)) == []
    assert len(rows_of(database, sa.select(task_queue))) == 1
