"""DBOS behind our small class: what its defects would do to us, and that they do not."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from dbos._core import execute_dequeued_workflow

from proctor.engine import runtime as module
from proctor.engine.runtime import APPLICATION_VERSION, Job, engine_database
from proctor.engine.tasks import NewTask
from proctor.protocol.errors import UnavailableError
from proctor.protocol.states import TaskState
from tests.engine.conftest import House


def _records(house: House) -> list[dict[str, Any]]:
    """DBOS's own rows."""
    engine = engine_database(house.engine_url)
    table = "dbos.workflow_status" if engine.dialect.name == "postgresql" else "workflow_status"
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY created_at").mappings()
        found = [dict(row) for row in rows]
    engine.dispose()
    return found


async def test_a_claim_that_never_began_is_begun_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """DBOS marks a job as running before it starts it; when starting fails it would stay so for ever."""
    broken = threading.Semaphore(3)

    def fail_at_first(*arguments: Any) -> Any:
        if broken.acquire(blocking=False):
            raise RuntimeError("the database went away between claim and start")
        return execute_dequeued_workflow(*arguments)

    monkeypatch.setattr(module, "execute_dequeued_workflow", fail_at_first)
    async with house.running():
        ids = house.tasks.add_many([NewTask(str(n), agent="instant") for n in range(3)])
        done = await house.ended(*ids, seconds=30)
    assert {(task.status, task.attempt) for task in done} == {(TaskState.COMPLETED, 1)}


async def test_the_version_is_fixed_and_arguments_are_json(house: House) -> None:
    """Not a hash of sources, which strands runs at every edit; not pickle, which runs code for who can write rows."""
    async with house.running() as executor:
        task = house.tasks.add(NewTask("x", agent="instant"))
        await house.ended(task.task_id)
        name = executor.executor_id
    (row,) = [row for row in _records(house) if row["workflow_uuid"] == f"{task.task_id}:1"]
    assert (row["application_version"], row["executor_id"]) == (APPLICATION_VERSION, name)
    assert "json" in str(row["serialization"]).lower()
    assert row["priority"] == 6


async def test_enqueuing_twice_is_harmless(house: House) -> None:
    """The same attempt has the same id; the second time changes nothing and runs nothing."""
    async with house.running() as executor:
        task = house.tasks.add(NewTask("x", agent="instant"))
        await house.ended(task.task_id)
        job = Job(task.task_id, 1)
        await executor._runtime.enqueue([job, job])
        await executor._runtime.enqueue([job])
    assert len([row for row in _records(house) if row["workflow_uuid"] == job.workflow_id]) == 1
    assert len(house.tasks.show(task.task_id).history) == 1


async def test_a_job_of_nobodys_task_does_no_harm(house: House) -> None:
    """A row put into DBOS's queue by hand runs nothing and blocks nobody."""
    async with house.running() as executor:
        await executor._ready.wait()
        await executor._runtime.enqueue([Job("ghost", 1, priority=10)])
        task = house.tasks.add(NewTask("x", agent="instant"))
        await house.ended(task.task_id)
        await house.until(lambda: [row["status"] for row in _records(house)] == ["SUCCESS", "SUCCESS"])
    assert [task.status for task in house.tasks.list(status=["completed"])] == ["completed"]


async def test_threads_are_capped_under_a_burst(house: House) -> None:
    """200 tasks through 64 workers do not make a thread each."""
    before = threading.active_count()
    most = 0
    house.slots = 64
    async with house.running(workers=64):
        ids = house.tasks.add_many([NewTask(str(n), agent="instant") for n in range(200)])

        def done() -> bool:
            nonlocal most
            most = max(most, threading.active_count())
            return not house.tasks.list()

        await house.until(done, seconds=60)
    assert len(house.tasks.list(status=["completed"], limit=1000)) == len(ids)
    assert most - before <= module.MAX_THREADS + 20


@pytest.mark.parametrize("damage", ["half made", "not a database", "empty"])
async def test_an_unusable_engine_database_is_put_aside(house: House, damage: str) -> None:
    """Killed while DBOS made its tables, or damaged: begun anew from our own rows instead of failing for ever."""
    if house.database.dialect != "sqlite":
        return  # a server looks after its own files
    path = house.root / "engine.db"
    if damage == "half made":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE workflow_status (workflow_uuid TEXT)")
        connection.close()
    else:
        path.write_bytes(b"no database at all" * 500 if damage == "not a database" else b"")
    task = house.tasks.add(NewTask("x", agent="instant"))
    async with house.running():
        (ended,) = await house.ended(task.task_id)
    assert ended.status is TaskState.COMPLETED
    assert path.with_name("engine.db.broken").exists() is (damage != "empty")


def test_another_process_that_prepares_the_tables_for_ever_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop stands still meanwhile, so the wait has an end."""
    monkeypatch.setattr(module, "LAUNCH_SECONDS", 0.1)
    engine = engine_database(f"sqlite:///{tmp_path}/engine.db")
    with module._alone(engine), pytest.raises(UnavailableError), module._alone(engine):
        pass
    engine.dispose()


def test_the_sqlite_engine_is_wal_normal_and_knows_old_libraries(tmp_path: Path) -> None:
    """DBOS's default journal starves parallel writers; its unixepoch('subsec') needs SQLite 3.42."""
    engine = engine_database(f"sqlite:///{tmp_path}/engine.db")
    with engine.connect() as connection:
        pragmas = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]
        moment = connection.exec_driver_sql("SELECT unixepoch('subsec')").scalar()
    engine.dispose()
    assert found == ["wal", 1, 30_000, 1]
    assert float(moment or 0) > 1_700_000_000, sqlite3.sqlite_version


@pytest.mark.postgres
def test_the_engine_of_postgresql_ends_what_stands_still(empty_postgres_url: str) -> None:
    """A stopped process must not hold DBOS's rows against a takeover."""
    engine = engine_database(empty_postgres_url)
    with engine.connect() as connection:
        limit = connection.execute(sa.text("SHOW idle_in_transaction_session_timeout")).scalar()
    engine.dispose()
    assert limit == "8s"
