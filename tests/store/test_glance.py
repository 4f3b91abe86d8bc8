"""A glance answers like the long way, makes no file, writes nothing and loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.protocol.errors import SchemaTooNewError, StoreCorruptError
from proctor.store.database import Database, sqlite_url
from proctor.store.glance import as_moment, glance
from tests.support.rows import NOON, add_task

LIGHT = """
import sys
from proctor.store.glance import glance
with glance(sys.argv[1]) as look:
    print(look.rows("SELECT task_id FROM task_queue"))
print(sorted({"sqlalchemy", "alembic", "dbos", "pydantic"} & set(sys.modules)))
"""


def test_both_databases_give_the_same_rows(database: Database) -> None:
    """Text, numbers and moments come back alike, and values are bound, not pasted."""
    add_task(database, task_id="it's", started_at=NOON)
    sql = "SELECT task_id, priority, started_at FROM task_queue WHERE task_id = :name AND started_at <= :noon"
    with glance(database.url.render_as_string(hide_password=False)) as look:
        assert look is not None
        (row,) = look.rows(sql, {"name": "it's", "noon": NOON})
    assert (row["task_id"], row["priority"], as_moment(row["started_at"])) == ("it's", 5, NOON)


def test_glance_loads_nothing_heavy(sqlite_database: Database) -> None:
    """By module name, because milliseconds flake."""
    add_task(sqlite_database)
    url = sqlite_url(Path(sqlite_database.place))
    done = subprocess.run([sys.executable, "-c", LIGHT, url], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["[{'task_id': 'task-1'}]", "[]"], done.stderr


def test_missing_file_stays_missing(tmp_path: Path) -> None:
    """Looking at what is not there gives None and makes nothing."""
    path = tmp_path / "deep" / "proctor.db"
    with glance(sqlite_url(path)) as look:
        assert look is None
    assert list(tmp_path.iterdir()) == []


def test_outdated_file_is_migrated_by_the_long_way(tmp_path: Path) -> None:
    """An empty file gets its schema and then answers."""
    path = tmp_path / "proctor.db"
    path.touch(mode=0o600)
    with glance(sqlite_url(path)) as look:
        assert look is not None
        assert look.rows("SELECT count(*) AS n FROM task_queue") == [{"n": 0}]


def test_newer_schema_is_refused_with_the_cure(sqlite_database: Database) -> None:
    """The sentence is the one every other command gives."""
    with sqlite_database.write() as connection:
        connection.exec_driver_sql("UPDATE proctor_schema SET version_num = '2999_01_01'")
    with (
        pytest.raises(SchemaTooNewError, match="Upgrade Proctor"),
        glance(sqlite_url(Path(sqlite_database.place))),
    ):
        pass


def _count(url: str) -> object:
    with glance(url) as look:
        assert look is not None
        return look.rows("SELECT count(*), max(description) FROM task_queue")


def test_damage_is_one_sentence(sqlite_database: Database, sqlite_path: Path) -> None:
    """A file that is no database says so, and so does one whose rows are damaged behind a good first page."""
    for number in range(200):
        add_task(sqlite_database, task_id=f"t{number}", description="x" * 2000)
    sqlite_database.close()
    whole = sqlite_path.read_bytes()
    at = whole.index(b"x" * 1000)
    sqlite_path.write_bytes(whole[:at] + b"\xff" * (len(whole) - at))
    with pytest.raises(StoreCorruptError, match="proctor db backup"):
        _count(sqlite_url(sqlite_path))
    sqlite_path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StoreCorruptError, match="proctor db backup"):
        _count(sqlite_url(sqlite_path))


def test_moment_without_a_zone_is_utc() -> None:
    """Rows of other programs may lack one."""
    assert as_moment("2026-11-15 12:00:00") == datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert as_moment(None) is None
