"""kill -9 at every event boundary, on both databases: no task lost, no completed task run again, the trace whole."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import sqlalchemy as sa

from proctor.engine.tasks import NewTask, Tasks
from proctor.store.database import Database
from proctor.store.tables import events, task_queue
from proctor.trace.verify import verify
from tests.engine.conftest import KEY
from tests.faults.conftest import until
from tests.faults.victim import EXITED, Order, kill, start

TASKS = 20


@pytest.fixture
def tasks(queue: Tasks) -> Tasks:
    """Twenty tasks in the queue, some waiting for others."""
    _fill(queue)
    return queue


def _fill(queue: Tasks) -> list[str]:
    ids: list[str] = []
    for number in range(TASKS):
        after = [ids[number - 5]] if number >= 5 and number % 3 == 0 else []
        ids.append(queue.add(NewTask(f"{number}", agent="abc"[number % 3], depends_on=after)).task_id)
    return ids


def _all_ended(tasks: Tasks) -> bool:
    return not tasks.list()


def _until_done(order: Order, tasks: Tasks, *, deaths: int) -> int:
    """Start victims until everything has ended; returns how many died on the way."""
    died = 0
    while not _all_ended(tasks):
        assert died <= deaths, "no progress"
        victim = start(order)
        deadline = time.monotonic() + 30
        while victim.is_alive() and not _all_ended(tasks) and time.monotonic() < deadline:
            time.sleep(0.02)
        if victim.is_alive():
            victim.terminate()
        victim.join(20)
        died += victim.exitcode == EXITED
    return died


def _check(database: Database, tasks: Tasks, root: Path) -> None:
    """The guarantees: all completed, none lost, none run after its completion, the trace whole."""
    ended = tasks.list(status=["completed"], limit=1000)
    assert ended
    assert len(ended) % TASKS == 0
    assert not tasks.list(status=["failed", "cancelled"])
    completed = {str(task.task_id): task.completed_at for task in ended}
    for line in (root / "effects").read_text().splitlines():
        moment, task_id, _attempt = line.split()
        done = completed[task_id]
        assert done is not None
        assert float(moment) <= done.timestamp()
    with database.read() as connection:
        query = sa.select(events.c.task_id, sa.func.count()).where(events.c.event == "task_completed")
        counts = {row[0]: row[1] for row in connection.execute(query.group_by(events.c.task_id))}
    assert {name: counts.get(name) for name in completed} == dict.fromkeys(completed, 1)
    assert verify(database, KEY).ok


@pytest.mark.slow
def test_a_death_after_every_few_events_loses_and_repeats_nothing(
    database: Database, order: Order, tasks: Tasks, tmp_path: Path
) -> None:
    """Each executor dies right after its twelfth event is on disk; together they finish the work."""
    died = _until_done(replace(order, exit_after=12), tasks, deaths=60)
    assert died >= 4
    _check(database, tasks, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_death_at_every_event_boundary_loses_and_repeats_nothing(
    database: Database, order: Order, queue: Tasks, tmp_path: Path
) -> None:
    """One round per event: the first executor dies right after it, the second right after its takeover."""
    boundary, died = 0, True
    while died:
        boundary += 1
        _fill(queue)
        died = _one(replace(order, exit_after=boundary), queue)
        _one(replace(order, exit_after=1), queue)
        _until_done(order, queue, deaths=0)
        if boundary % 10 == 1:
            _check(database, queue, tmp_path)
            (tmp_path / "effects").unlink()
            _forget(database)
    assert boundary > TASKS * 4


def _one(order: Order, tasks: Tasks) -> bool:
    """One executor; whether it died as ordered."""
    victim = start(order)
    until(lambda: not victim.is_alive() or _all_ended(tasks))
    if victim.is_alive():
        victim.terminate()
    victim.join(20)
    return victim.exitcode == EXITED


def _forget(database: Database) -> None:
    """Keep the rounds alike: ended tasks leave."""
    with database.write() as connection:
        connection.execute(task_queue.delete())


@pytest.mark.slow
def test_sigkill_at_random_moments_loses_and_repeats_nothing(
    database: Database, order: Order, tasks: Tasks, tmp_path: Path
) -> None:
    """A real SIGKILL at a sample of moments; the lease or the lock frees the work."""
    dice = random.Random(7)
    slow = replace(order, work_s=0.1)
    for _ in range(4):
        victim = start(slow)
        time.sleep(0.3 + dice.random() * 0.7)
        kill(victim)
    _until_done(slow, tasks, deaths=0)
    _check(database, tasks, tmp_path)


@pytest.mark.slow
def test_two_executors_share_the_queue_and_one_dies(
    database: Database, order: Order, tasks: Tasks, tmp_path: Path
) -> None:
    """Two at once never run one attempt twice; when one is killed the other finishes its work."""
    slow = replace(order, work_s=0.1, supervised=True)
    pair: list[BaseProcess] = [start(slow), start(replace(slow, home=_other_home(slow, database)))]
    try:
        until(lambda: len(tasks.list(status=["completed"], limit=TASKS)) >= 3)
        kill(pair[0])
        until(lambda: _all_ended(tasks))
    finally:
        for one in pair:
            one.terminate()
            one.join(20)
    _check(database, tasks, tmp_path)


def _other_home(order: Order, database: Database) -> Path:
    """On PostgreSQL the second worker has a home of its own; on SQLite both are one machine with one state."""
    return order.home if database.dialect == "sqlite" else order.root / "other-home"
