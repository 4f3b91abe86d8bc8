"""kill at sampled points of a lease and of an approval: nothing leaked, nothing charged twice, no answer used twice."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.gate.calls import reap_dead
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from proctor.store.tables import leases
from proctor.trace.verify import verify
from tests.conftest import TEMPLATE
from tests.faults.gate_victim import EXITED, Order, start, tell
from tests.gate.world import KEY, World
from tests.support.postgres import PostgresServer

POINTS = 50
REMOTE_POINTS = 16


def _die(url: str, home: Path, story: str, point: int | None) -> int | None:
    home.mkdir(exist_ok=True)
    victim = start(Order(url, home, story, point))
    victim.join(60)
    return victim.exitcode


def _survive(database: Database, home: Path, story: str) -> None:
    """Finish the story and look at everything that could have been lost or doubled."""
    world = World(database, home)
    try:
        world.writer.transact(lambda c: reap_dead(c, world.clock.now()))
        results = asyncio.run(tell(world, story))
        assert all(result.ok for result in results), results
        assert len(world.calls) == len(results)
        _check(world, len(results))
    finally:
        world.close()
    assert verify(database, KEY).ok


def _check(world: World, calls: int) -> None:
    held = world.rows(leases)
    assert {lease["outcome"] for lease in held} <= {"settled", "reaped"}
    assert sum(lease["outcome"] == "settled" for lease in held) <= calls
    for node in ("session:trace_t", "task:task_1"):
        row = world.used(node)
        assert (row["held_calls"], row["held_tokens"], row["held_micro_usd"], row["held_millis"]) == (
            0,
            0,
            0,
            0,
        )
        assert row["used_calls"] == len(held)
        assert row["used_tokens"] == sum(lease["tokens"] for lease in held)
    effects = (world.workspace.parent / "effects").read_text().split()
    started = [event.tool_name for event in world.events("tool_call_start")]
    for tool in set(effects):
        assert effects.count(tool) <= started.count(tool)
    answered = [row for row in world.questions if row["status"] == "approved"]
    assert len([row for row in answered if row["used_at"] is not None]) == len(answered)
    # Each run of what cannot be taken back stands on an answer of its own.
    assert effects.count("send") <= len(answered)


@pytest.fixture
def place(tmp_path: Path, sqlite_template: Path) -> Iterator[Path]:
    """Where each victim gets a database of its own."""
    yield tmp_path
    shutil.rmtree(tmp_path / "victims", ignore_errors=True)


def _fresh(place: Path, template: Path, number: int) -> tuple[str, Path]:
    home = place / "victims" / str(number)
    (home / "state").mkdir(parents=True)
    shutil.copy(template, home / "state" / "proctor.db")
    return sqlite_url(home / "state" / "proctor.db"), home


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", ["lease", "approval"])
def test_death_at_any_point_leaks_and_doubles_nothing(place: Path, sqlite_template: Path, story: str) -> None:
    """Fifty deaths over all statements and commits of the story; each survivor finishes it correctly."""
    url, home = _fresh(place, sqlite_template, 0)
    assert _die(url, home, story, None) == 0
    total = int((home / "points").read_text())
    assert total > POINTS
    assert int((home / "quick").read_text()) >= (5 if story == "lease" else 1)  # some die in the quick lane
    died = 0
    for number in range(1, POINTS + 1):
        url, home = _fresh(place, sqlite_template, number)
        died += _die(url, home, story, 1 + (number - 1) * (total - 1) // (POINTS - 1)) == EXITED
        database = open_database(url)
        _survive(database, home, story)
        database.close()
    assert died >= POINTS - 2  # the count of statements may differ by a look or two


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", ["lease", "approval"])
def test_death_on_postgresql_leaks_and_doubles_nothing(
    postgres_server: PostgresServer, tmp_path: Path, story: str
) -> None:
    """The same on a server: what the dead had not committed is gone, the rest is finished."""
    total, died = 0, 0
    for number in range(REMOTE_POINTS + 1):
        point = None if number == 0 else 1 + (number - 1) * (total - 1) // (REMOTE_POINTS - 1)
        with postgres_server.fresh(TEMPLATE) as url:
            home = tmp_path / str(number)
            died += _die(url, home, story, point) == EXITED
            total = total or int((home / "points").read_text())
            database = open_database(url)
            _survive(database, home, story)
            database.close()
    assert died >= REMOTE_POINTS - 2
