"""Schema and code agree on both databases, whoever opens first and whatever is found."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from proctor.protocol.errors import ConfigError, SchemaOutdatedError, SchemaTooNewError
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import (
    REVISIONS,
    VERSION_TABLE,
    head_version,
    open_database,
    schema_version,
    upgrade,
)
from proctor.store.tables import AGENT_STATUS_VIEW, metadata

SEEDS = {"agent_api_endpoint", "trading_api_endpoint", "health_monitoring"}
OPEN = """
import sys
from proctor.store.schema import open_database, schema_version
sys.stdin.readline()
print(schema_version(open_database(sys.argv[1])))
"""
HOT = """
import sys
from proctor.store.schema import open_database
open_database(sys.argv[1]).close()
print(sorted(name for name in sys.modules if name in {"alembic", "mako", "proctor.store.tables"}))
"""


def _set_version(database: Database, version: str) -> None:
    with database.write() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = :found"), {"found": version})


def test_migrated_schema_equals_the_tables_in_code(database: Database) -> None:
    """What the migrations make is what `tables.py` says, column by column."""
    with database.read() as connection:
        options = {"compare_type": True, "version_table": VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_migrated_checks_and_view_equal_the_ones_in_code(sqlite_database: Database) -> None:
    """Alembic does not compare checks, defaults and views, so their SQL is compared as SQLite keeps it."""
    fresh = sa.create_engine("sqlite://")
    metadata.create_all(fresh)
    wanted_sql = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    with fresh.connect() as connection:
        wanted = {row.name: row.sql for row in connection.exec_driver_sql(wanted_sql)}
    fresh.dispose()
    with sqlite_database.read() as connection:
        found = {row.name: row.sql for row in connection.exec_driver_sql(wanted_sql)}
        view = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE type = 'view'").scalar_one()
    assert found.pop(VERSION_TABLE)
    assert found == wanted
    assert view.strip() == AGENT_STATUS_VIEW.strip()


def test_revisions_in_code_are_the_migration_files() -> None:
    """The constant that saves importing Alembic names every migration, in order."""
    config = Config()
    config.set_main_option("script_location", "proctor.store:migrations")
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == REVISIONS
    assert scripts.get_current_head() == head_version()


def test_empty_sqlite_migrates_by_itself_once(tmp_path: Path) -> None:
    """Opening makes everything; opening again changes nothing and seeds nothing twice."""
    path = tmp_path / "a b%?#ü" / "proctor.db"
    for _ in range(2):
        database = open_database(sqlite_url(path))
        assert schema_version(database) == head_version()
        with database.read() as connection:
            rules = connection.execute(sa.select(metadata.tables["architecture_rules"].c.feature_type)).all()
        database.close()
        assert {row.feature_type for row in rules} == SEEDS
        assert len(rules) == len(SEEDS)
    assert path.exists()


def test_new_sqlite_database_is_private(tmp_path: Path) -> None:
    """Only the user can read the directory, the file and what SQLite puts beside it."""
    path = tmp_path / "state" / "proctor.db"
    database = open_database(sqlite_url(path))
    modes = {name.name: stat.S_IMODE(name.stat().st_mode) for name in [path.parent, *path.parent.iterdir()]}
    database.close()
    assert modes == {"state": 0o700, "proctor.db": 0o600, "proctor.db-wal": 0o600, "proctor.db-shm": 0o600}


@pytest.mark.postgres
def test_postgresql_migrates_only_on_demand(empty_postgres_url: str) -> None:
    """Opening an empty PostgreSQL is refused with the cure; after the upgrade it opens; again is harmless."""
    with pytest.raises(SchemaOutdatedError, match="Run `proctor db upgrade`"):
        open_database(empty_postgres_url)
    database = Database(empty_postgres_url)
    assert schema_version(database) is None
    assert upgrade(database) == upgrade(database) == head_version()
    database.close()
    opened = open_database(empty_postgres_url)
    assert schema_version(opened) == head_version()
    opened.close()


def test_newer_schema_is_refused_and_left_alone(database: Database) -> None:
    """A database of a newer Proctor is neither opened nor upgraded."""
    _set_version(database, "2999_01_01_future")
    url = database.url.render_as_string(hide_password=False)
    with pytest.raises(SchemaTooNewError, match="2999_01_01_future"):
        open_database(url)
    with pytest.raises(SchemaTooNewError):
        upgrade(database)
    assert schema_version(database) == "2999_01_01_future"


def test_two_processes_open_one_new_file_at_once(tmp_path: Path) -> None:
    """Both wait for each other's migration instead of failing, and the seeds are there once."""
    url = sqlite_url(tmp_path / "state" / "proctor.db")
    command = [sys.executable, "-W", "error", "-c", OPEN, url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    children = [subprocess.Popen(command, text=True, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    for child in children:  # all have imported by the time they read this line
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [child.communicate(timeout=60) for child in children]
    assert answers == [(f"{head_version()}\n", "")] * 3
    database = open_database(url)
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM architecture_rules").scalar_one() == len(
            SEEDS
        )
    database.close()


@pytest.mark.postgres
def test_two_upgrades_of_postgresql_at_once_do_the_work_once(empty_postgres_url: str) -> None:
    """The second waits for the first and finds nothing to do."""
    start = threading.Barrier(3)

    def one(_: int) -> str:
        database = Database(empty_postgres_url)
        start.wait(10)
        try:
            return upgrade(database)
        finally:
            database.close()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(one, range(3))) == [head_version()] * 3


def test_opening_an_up_to_date_file_imports_no_alembic(sqlite_path: Path) -> None:
    """Every CLI call opens the database, so nothing heavy may load when there is nothing to migrate."""
    command = [sys.executable, "-c", HOT, sqlite_url(sqlite_path)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "[]\n"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://host/name", "no url", ""])
def test_url_that_cannot_keep_anything_is_refused(url: str) -> None:
    """A wrong URL is a matter of settings, with what is allowed."""
    with pytest.raises(ConfigError, match="Use sqlite:"):
        open_database(url)


def test_failed_migration_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A migration is one transaction: a table in its way undoes all of it."""
    path = tmp_path / "proctor.db"
    blocked = Database(sqlite_url(path))
    with blocked.write() as connection:
        connection.exec_driver_sql("CREATE TABLE trace_heads (mine TEXT)")
    with pytest.raises(sa.exc.OperationalError, match="already exists"):
        upgrade(blocked)
    with blocked.read() as connection:
        assert sa.inspect(connection).get_table_names() == ["trace_heads"]
    blocked.close()
