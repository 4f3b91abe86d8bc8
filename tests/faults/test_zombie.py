"""Stopped processes, lost leases and two machines on one PostgreSQL, with real processes and real children."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from proctor.agents.identity import ProcessIdentity, survivors
from proctor.engine.tasks import NewTask, Tasks
from proctor.protocol.states import TaskState
from proctor.store.database import Database
from proctor.store.tables import attempts, events, executors
from proctor.trace.redact import Redactor
from proctor.trace.verify import verify
from proctor.trace.writer import TraceWriter
from tests.engine.conftest import KEY
from tests.faults.conftest import order_on, until
from tests.faults.victim import Order, kill, start
from tests.support.rows import rows_of

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


@pytest.fixture
def zombie_order(postgres_database: Database, tmp_path: Path) -> Order:
    """Victims with real agents on PostgreSQL, with a lease that a busy machine does not make them lose."""
    return replace(order_on(postgres_database, tmp_path), scripted=True, ttl=5.0)


@pytest.fixture
def shared(postgres_database: Database) -> Iterator[Tasks]:
    """The queue on it."""
    with TraceWriter(postgres_database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        yield Tasks(postgres_database, writer)


def slow_task(ledger: Path, seconds: float) -> str:
    """One effect, a pause, and the end."""
    steps = [{"run": f"echo done >> '{ledger}'"}, {"sleep": seconds}, {"write": "a.txt", "content": "a"}]
    return f"x\nSCRIPT:{json.dumps({'steps': steps})}"


def test_a_stopped_process_changes_nothing_when_it_wakes(
    postgres_database: Database, zombie_order: Order, shared: Tasks, tmp_path: Path
) -> None:
    """SIGSTOP beyond the lease, takeover by another, SIGCONT: the zombie writes nothing, ends its agents and leaves."""
    ledger = tmp_path / "ledger"
    task = shared.add(NewTask(slow_task(ledger, 2.0), agent="a"))
    zombie = start(zombie_order)
    assert zombie.pid is not None
    until(lambda: ledger.exists() and ledger.read_text() == "done\n")
    os.kill(zombie.pid, signal.SIGSTOP)
    other = start(replace(zombie_order, home=tmp_path / "other-home", ttl=30.0))
    try:
        until(lambda: shared.get(task.task_id).status is TaskState.COMPLETED)
        before = rows_of(postgres_database, sa.select(events).where(events.c.task_id == task.task_id))
        os.kill(zombie.pid, signal.SIGCONT)
        zombie.join(30)
        assert zombie.exitcode == 0
    finally:
        kill(zombie)
        other.terminate()
        other.join(20)
    after = rows_of(postgres_database, sa.select(events).where(events.c.task_id == task.task_id))
    extra = [(row["event"], row["actor_name"], row["details"]) for row in after[len(before) :]]
    assert extra == []
    assert after == before
    assert [row["event"] for row in after].count("task_completed") == 1
    assert [row["event"] for row in after].count("takeover") == 1
    assert ledger.read_text() == "done\n"
    (row,) = rows_of(postgres_database, sa.select(attempts))
    assert row["outcome"] == "succeeded"
    assert survivors(ProcessIdentity.decode(row["identity"])) == []
    assert verify(postgres_database, KEY).ok


def test_a_lost_lease_ends_the_agents(
    postgres_database: Database, zombie_order: Order, shared: Tasks, tmp_path: Path
) -> None:
    """The row of a living executor is removed, as a takeover elsewhere would: its agents die within the lease."""
    task = shared.add(NewTask(slow_task(tmp_path / "ledger", 60.0), agent="a"))
    victim = start(zombie_order)
    try:
        until((tmp_path / "ledger").exists)
        identity = ProcessIdentity.decode(rows_of(postgres_database, sa.select(attempts))[0]["identity"])
        assert survivors(identity)
        with postgres_database.write() as connection:
            connection.exec_driver_sql("DELETE FROM executors")
        until(lambda: survivors(identity) == [], 15)
        victim.join(20)
        assert victim.exitcode == 0
    finally:
        kill(victim)
    assert shared.get(task.task_id).status is TaskState.IN_PROGRESS


def test_two_machines_that_start_at_once_both_come_up(
    postgres_database: Database, zombie_order: Order, shared: Tasks, tmp_path: Path
) -> None:
    """On a database where DBOS has no tables yet, first launches wait for each other without standing still."""
    plain = replace(zombie_order, scripted=False, work_s=0.2, workers=2, ttl=15.0)
    machines = [start(replace(plain, home=tmp_path / f"home-{number}")) for number in range(3)]
    try:
        until(lambda: len(rows_of(postgres_database, sa.select(executors))) == len(machines))
        ids = shared.add_many([NewTask(str(n), agent="abc"[n % 3]) for n in range(24)])
        until(lambda: len(shared.list(status=["completed"], limit=100)) == len(ids))
    finally:
        for machine in machines:
            machine.terminate()
        for machine in machines:
            machine.join(20)
    assert [machine.exitcode for machine in machines] == [0, 0, 0]
    owners = {row["owner"] for row in rows_of(postgres_database, sa.select(attempts))}
    assert len(owners) >= 2
    lines = (tmp_path / "effects").read_text().splitlines()
    assert sorted(line.split()[1] for line in lines) == sorted(ids)
