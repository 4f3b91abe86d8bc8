"""Leases: who lives, who is dead, and that a lost life stays lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import sqlalchemy as sa

from proctor.engine import liveness
from proctor.engine.liveness import FlockLease, LeaseKeeper, TableLease, open_lease
from proctor.protocol.errors import StoreUnavailableError
from proctor.protocol.ids import ExecutorId
from proctor.store.database import Database
from proctor.store.tables import executors
from tests.support.rows import rows_of


def test_a_lease_fits_its_database(database: Database, tmp_path: Path) -> None:
    """SQLite: the kernel's lock; PostgreSQL: a row."""
    lease = open_lease(database, tmp_path, kind="test")
    assert type(lease) is (FlockLease if database.dialect == "sqlite" else TableLease)


def test_the_living_are_not_dead_and_the_released_are(database: Database, tmp_path: Path) -> None:
    """Alive from take to release; who never lived is dead; nobody counts itself."""
    one, two = (open_lease(database, tmp_path, kind="test") for _ in range(2))
    one.take()
    two.take()
    assert one.dead({one.executor_id, two.executor_id, "never"}) == {"never"}
    assert one.renew()
    two.release()
    assert one.dead({two.executor_id}) == {two.executor_id}
    assert [row["executor_id"] for row in rows_of(database, sa.select(executors))] == [one.executor_id]
    one.release()
    assert rows_of(database, sa.select(executors)) == []


def test_a_flock_is_free_when_its_holder_is_gone(sqlite_database: Database, tmp_path: Path) -> None:
    """The kernel frees it at once, whatever the row says; file and row are cleared away."""
    import os

    gone, looker = (FlockLease(sqlite_database, tmp_path, kind="test") for _ in range(2))
    gone.take()
    looker.take()
    assert looker.dead({gone.executor_id}) == set()
    assert gone._file is not None
    os.close(gone._file)
    assert looker.dead({gone.executor_id}) == {gone.executor_id}
    assert not (tmp_path / f"{gone.executor_id}.lock").exists()
    looker.release()


@pytest.mark.postgres
def test_an_expired_lease_stays_lost(postgres_database: Database) -> None:
    """Past its end it cannot be renewed, also when nobody has looked yet; others see it dead."""
    late, looker = (TableLease(postgres_database, kind="test", ttl=30) for _ in range(2))
    late.take()
    looker.take()
    assert looker.dead({late.executor_id}) == set()
    with postgres_database.write() as connection:
        past = sa.func.clock_timestamp() - sa.text("interval '1 millisecond'")
        connection.execute(
            executors.update().where(executors.c.executor_id == late.executor_id).values(expires_at=past)
        )
    assert not late.renew()
    assert looker.dead({late.executor_id}) == {late.executor_id}
    assert not late.renew()


@pytest.mark.postgres
def test_who_was_stopped_knows_it_without_asking(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valid for as long as nobody can have taken over; not any more when the process slept beyond that."""
    lease = TableLease(postgres_database, kind="test", ttl=30)
    assert not lease.valid()
    lease.take()
    assert lease.valid()
    then = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: then + 31)
    assert not lease.valid()
    assert lease.renew()
    assert lease.valid()


@pytest.mark.postgres
def test_a_jump_of_our_clock_changes_nothing(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day forth or back on this machine: the lease lives by the database's clock."""
    one, two = (TableLease(postgres_database, kind="test", ttl=30) for _ in range(2))
    one.take()
    two.take()
    for jump in (86_400.0, -86_400.0):
        wall = time.time
        monkeypatch.setattr(time, "time", lambda jump=jump, wall=wall: wall() + jump)
        assert one.renew()
        assert one.dead({two.executor_id}) == set()
        ends = [
            row["expires_at"].timestamp() - wall() for row in rows_of(postgres_database, sa.select(executors))
        ]
        assert all(0 < end <= 31 for end in ends)
        monkeypatch.undo()


class Script:
    """A lease that does what the test says."""

    executor_id = ExecutorId("exec-script")

    def __init__(self, answers: Iterable[bool | None], ttl: float = 0.3) -> None:
        self.ttl = ttl
        self._answers = iter(answers)
        self.renewed = 0
        self.released = threading.Event()

    def take(self) -> None:
        """Begin."""

    def renew(self) -> bool:
        """Say the next answer; None means that the database is away."""
        self.renewed += 1
        answer = next(self._answers, True)
        if answer is None:
            raise StoreUnavailableError(place="x", reason="away", cure="Wait.")
        return answer

    def valid(self) -> bool:
        """Always."""
        return True

    def release(self) -> None:
        """End."""
        self.released.set()

    def dead(self, executor_ids: Iterable[str]) -> set[str]:
        """Nobody."""
        return set()


def test_a_keeper_says_when_the_lease_is_lost() -> None:
    """One refusal is enough, and it is said once."""
    lost = threading.Event()
    keeper = LeaseKeeper(Script([True, False]), lost.set)
    keeper.begin()
    assert lost.wait(10)
    keeper.end()


def test_a_keeper_gives_up_before_others_may_take_over() -> None:
    """A database that is away for two thirds of the lease: stop now, while the row still counts."""
    lost, script = threading.Event(), Script([None] * 100)
    keeper = LeaseKeeper(script, lost.set)
    keeper.begin()
    assert lost.wait(10)
    assert 1 <= script.renewed <= 2  # the second is left out when the first came late
    keeper.end()
    assert script.released.is_set()


def test_a_keeper_does_not_wait_for_a_database_that_says_nothing() -> None:
    """A renewal that hangs beyond the lease is as bad as a refusal."""
    lost, hang = threading.Event(), threading.Event()

    class Silent(Script):
        def renew(self) -> bool:
            return hang.wait(20)

    keeper = LeaseKeeper(Silent([]), lost.set)
    keeper.begin()
    assert lost.wait(10)
    assert not hang.is_set()
    hang.set()
    keeper.end()


def test_a_keeper_bears_a_short_absence() -> None:
    """One failed renewal does not end an executor."""
    lost, script = threading.Event(), Script([None, True], ttl=2.4)
    keeper = LeaseKeeper(script, lost.set)
    keeper.begin()
    deadline = time.monotonic() + 60
    while script.renewed < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    keeper.end()
    assert script.renewed >= 3
    assert not lost.is_set()


def test_every_executor_has_an_id_of_its_own(sqlite_database: Database, tmp_path: Path) -> None:
    """DBOS's default id is the same for all, and two with one id steal each other's work."""
    names = {open_lease(sqlite_database, tmp_path, kind="t").executor_id for _ in range(20)}
    assert len(names) == 20
    assert liveness.DEFAULT_TTL == 15.0
