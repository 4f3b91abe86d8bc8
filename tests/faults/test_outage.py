"""The database goes away in the middle: a restart, a crash, an absence beyond the lease, a deleted engine.db."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.engine.tasks import NewTask, Tasks
from proctor.store.database import Database
from proctor.store.schema import upgrade
from proctor.trace.redact import Redactor
from proctor.trace.verify import verify
from proctor.trace.writer import TraceWriter
from tests.engine.conftest import KEY
from tests.faults.conftest import order_on, until
from tests.faults.victim import Order, kill, start
from tests.support.postgres import PostgresServer

TASKS = 12


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test's own, to be stopped under everybody."""
    made = PostgresServer(PostgresServer.new_home())
    try:
        made.start()
        yield made
    finally:
        made.remove()


def _fill(database: Database) -> None:
    with TraceWriter(database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        Tasks(database, writer).add_many([NewTask(str(n), agent="abc"[n % 3]) for n in range(TASKS)])


def _count(database: Database, status: str) -> int:
    query = "SELECT count(*) FROM task_queue WHERE status = '" + status + "'"
    with database.read() as connection:
        return int(connection.exec_driver_sql(query).scalar_one())


def _effects(root: Path) -> list[str]:
    path = root / "effects"
    return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("mode", ["fast", pytest.param("immediate", marks=pytest.mark.soak)])
def test_a_restart_of_postgresql_repeats_and_loses_nothing(
    server: PostgresServer, tmp_path: Path, mode: str
) -> None:
    """Within the lease nobody notices: agents go on, their ends are written when the server is back, each ran once."""
    with server.fresh() as url:
        database = Database(url)
        upgrade(database)
        _fill(database)
        victim = start(replace(order_on(database, tmp_path), work_s=0.4, slots=1, ttl=15.0))
        try:
            until(lambda: _count(database, "completed") >= 2)
            database.close()
            server.stop(mode)
            time.sleep(1.0)
            server.start()
            until(lambda: _count(database, "completed") == TASKS)
            victim.terminate()
            victim.join(20)
            assert victim.exitcode == 0
        finally:
            kill(victim)
        ran = _effects(tmp_path)
        assert len(ran) == len(set(ran)) == TASKS
        assert verify(database, KEY).ok
        database.close()


@pytest.mark.soak
@pytest.mark.postgres
def test_an_absence_beyond_the_lease_ends_executors_not_the_supervisor(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Agents are stopped when the lease runs out; the supervisor comes back with a new one and finishes."""
    with server.fresh() as url:
        database = Database(url)
        upgrade(database)
        _fill(database)
        order = replace(order_on(database, tmp_path), work_s=0.4, slots=1, ttl=1.5, supervised=True)
        victim = start(order)
        try:
            until(lambda: _count(database, "completed") >= 2)
            database.close()
            server.stop()
            time.sleep(4.0)
            assert victim.is_alive()
            server.start()
            until(lambda: _count(database, "completed") == TASKS)
            victim.terminate()
            victim.join(20)
            assert victim.exitcode == 0
        finally:
            kill(victim)
        assert len(set(_effects(tmp_path))) == TASKS
        assert verify(database, KEY).ok
        database.close()


@pytest.mark.slow
def test_a_lost_engine_database_loses_no_task(sqlite_database: Database, tmp_path: Path) -> None:
    """Killed in the middle, engine.db deleted: our own rows are enough to go on, and what completed stays completed."""
    _fill(sqlite_database)
    order = replace(order_on(sqlite_database, tmp_path), work_s=0.2, slots=1)
    victim = start(order)
    try:
        until(lambda: _count(sqlite_database, "completed") >= 3)
    finally:
        kill(victim)
    before = set(_effects(tmp_path))
    with sqlite_database.read() as connection:
        done = connection.exec_driver_sql(
            "SELECT task_id FROM task_queue WHERE status = 'completed'"
        ).scalars()
        completed = set(done)
    for path in tmp_path.glob("engine.db*"):
        path.unlink()
    second = start(order)
    try:
        until(lambda: _count(sqlite_database, "completed") == TASKS)
    finally:
        second.terminate()
        second.join(20)
    ran = _effects(tmp_path)
    assert all(ran.count(task) == 1 for task in completed)
    assert len(set(ran)) == TASKS
    assert before <= set(ran)


def _burst(database: Database, order: Order, queue: Tasks, root: Path) -> tuple[list[str], list[str]]:
    """Which tasks there were, and which ran."""
    victim = start(replace(order, slots=20, workers=32, ttl=15.0))
    try:
        ids = queue.add_many([NewTask(str(n), agent="abc"[n % 3], priority=n % 10 + 1) for n in range(500)])
        until(lambda: _count(database, "completed") == len(ids), 90)
    finally:
        victim.terminate()
        victim.join(20)
    return sorted(ids), sorted(_effects(root))


@pytest.mark.slow
def test_five_hundred_tasks_at_once_all_run_once(sqlite_database: Database, tmp_path: Path) -> None:
    """A burst: every task completes, each effect once, and the trace is whole."""
    order = order_on(sqlite_database, tmp_path)
    with TraceWriter(sqlite_database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        wanted, ran = _burst(sqlite_database, order, Tasks(sqlite_database, writer), tmp_path)
    assert ran == wanted
    assert verify(sqlite_database, KEY).ok


@pytest.mark.soak
def test_bursts_on_both_databases(database: Database, order: Order, queue: Tasks, tmp_path: Path) -> None:
    """The same on PostgreSQL."""
    wanted, ran = _burst(database, order, queue, tmp_path)
    assert ran == wanted
    assert verify(database, KEY).ok
