"""The table of agents follows roster and health, on both databases, and the seeds' view says what is so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from proctor.agents.health import Health
from proctor.agents.roster import Agent
from proctor.config import load_settings
from proctor.engine.agents_table import BUSY_SECONDS, IDLE_SECONDS, UNKNOWN, Census, sync
from proctor.engine.book import SettingsBook
from proctor.store.database import Database
from proctor.store.tables import agent_status, agents, attempts
from tests.support.rows import add_task, insert, rows_of

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
GOOD = Health(True, "ready", present=True)
BAD = Health(False, "claude is not on PATH", "Install it.")
CLAUDE = Agent("claude", "claude", capabilities=("coding",))


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        """The wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that the test chose."""
        return self.seconds


def _sync(database: Database, roster: list[Agent], health: dict[str, Health], **more: object) -> None:
    at = more.pop("at", NOW)
    with database.write() as connection:
        sync(connection, roster, health, at, **more)  # type: ignore[arg-type]  # the test names them


def _status(database: Database) -> dict[str, str]:
    query = sa.select(agent_status.c.agent_name, agent_status.c.status)
    return {row["agent_name"]: row["status"] for row in rows_of(database, query)}


def _reasons(database: Database) -> dict[str, str | None]:
    query = sa.select(agents.c.agent_name, agents.c.offline_reason)
    return {row["agent_name"]: row["offline_reason"] for row in rows_of(database, query)}


def test_status_of_the_view_follows_the_facts(database: Database) -> None:
    """Offline with the cure, idle when it can work, busy while an attempt is open; the id stays."""
    _sync(database, [CLAUDE], {"claude": BAD})
    assert _reasons(database) == {"claude": "claude is not on PATH. Install it."}
    assert _status(database) == {"claude": "offline"}
    (before,) = rows_of(database, sa.select(agents))
    _sync(database, [CLAUDE], {"claude": GOOD})
    assert _status(database) == {"claude": "idle"}
    add_task(database)
    insert(database, attempts, task_id="task-1", attempt=1, agent_name="claude", owner="exec")
    assert _status(database) == {"claude": "busy"}
    (after,) = rows_of(database, sa.select(agents))
    assert (after["agent_id"], after["capabilities"]) == (before["agent_id"], ["coding"])


def test_agent_that_nobody_names_any_more_is_offline(database: Database) -> None:
    """It keeps its row, because its history counts, and says why it cannot work."""
    _sync(database, [CLAUDE], {"claude": GOOD})
    _sync(database, [], {})
    assert _reasons(database) == {"claude": UNKNOWN}
    _sync(database, [CLAUDE], {"claude": GOOD})
    assert _reasons(database) == {"claude": None}


def test_machine_that_can_run_an_agent_outweighs_one_that_cannot(database: Database) -> None:
    """Among machines an offline report counts only when no fresh online one stands against it."""
    grace = timedelta(seconds=90)
    _sync(database, [CLAUDE], {"claude": GOOD})
    _sync(database, [CLAUDE], {"claude": BAD}, at=NOW + timedelta(seconds=30), grace=grace)
    _sync(database, [], {}, at=NOW + timedelta(seconds=31), grace=grace)
    assert _status(database) == {"claude": "idle"}
    _sync(database, [CLAUDE], {"claude": BAD}, at=NOW + timedelta(seconds=91), grace=grace)
    assert _status(database) == {"claude": "offline"}


@pytest.fixture
def scripted(home: Path, tmp_path: Path) -> Path:
    """A workspace with a scripted agent of its own."""
    place = tmp_path / "repo"
    place.mkdir()
    (place / "proctor.toml").write_text('[agents.robin]\ndriver = "scripted"\n')
    return place


def test_census_finds_agents_of_workspaces_in_use(database: Database, scripted: Path) -> None:
    """The built-in ones always, those of a workspace when it has tasks; broken settings take nobody else down."""
    book = SettingsBook(lambda workspace: load_settings(workspace or Path("/")))
    census = Census(database, book)
    assert census()
    assert "robin" not in _status(database)
    assert {"claude", "SOLACE"} <= set(_status(database))
    add_task(database, workspace=str(scripted))
    broken = scripted.parent / "broken"
    broken.mkdir()
    (broken / "proctor.toml").write_text("profil = 1\n")
    add_task(database, task_id="task-2", workspace=str(broken))
    assert Census(database, book)()
    assert _status(database)["robin"] == "idle"


def test_census_looks_only_when_it_is_time(database: Database, home: Path) -> None:
    """Every half minute while work is open, seldom otherwise: looking starts programs."""
    clock = Clock()
    census = Census(database, SettingsBook(lambda _: load_settings(Path("/"))), clock)
    assert [census(), census()] == [True, False]
    clock.seconds += BUSY_SECONDS + 1
    assert not census()
    add_task(database)
    assert census()
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE task_queue SET status = 'completed'")
    clock.seconds += IDLE_SECONDS - 1
    assert not census()
    clock.seconds += 2
    assert census()
