"""A backup is complete, checked and never half there; a check finds what is wrong."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from proctor.protocol.errors import NotFoundError, RefusedError, StoreCorruptError, UnavailableError
from proctor.store.backup import backup
from proctor.store.check import check
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from proctor.store.tables import approvals, task_queue
from tests.support.postgres import PostgresServer

# Stands in for pg_dump where only what it is given matters: notes its arguments and the password's file.
PG_DUMP = """
echo "$@" >"$0.args"
for word in "$@"; do case $word in *passfile=*) file=/${word##*passfile=%2F};; esac; done
file=$(echo "$file" | sed s:%2F:/:g)
ls -l "$file" >>"$0.args"
cat "$file" >>"$0.args"
"""


def _add_tasks(database: Database, count: int, text: str = "x") -> None:
    with database.write() as connection:
        connection.execute(sa.insert(task_queue), [{"description": text} for _ in range(count)])


def _count(database: Database) -> int:
    with database.read() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(task_queue)).scalar_one()


def test_backup_is_a_whole_private_database(sqlite_database: Database, tmp_path: Path) -> None:
    """The copy opens as a database of its own, with every row, readable only by the user."""
    _add_tasks(sqlite_database, 500, "y" * 300)
    copy = backup(sqlite_database, tmp_path / "copy.db")
    assert copy.stat().st_mode & 0o777 == 0o600
    restored = open_database(sqlite_url(copy))
    assert _count(restored) == 500
    assert check(restored) == []
    restored.close()


def test_backup_during_writes_is_one_moment(sqlite_database: Database, tmp_path: Path) -> None:
    """Tasks are written in pairs, and no copy ever has half a pair."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.002):
            _add_tasks(sqlite_database, 2)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        copies = [backup(sqlite_database, tmp_path / f"{number}.db") for number in range(5)]
    finally:
        stop.set()
        writer.join()
    for copy in copies:
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("SELECT count(*) % 2 FROM task_queue").fetchone() == (0,)


def test_backup_into_a_directory_gets_a_name_with_the_time(sqlite_database: Database, tmp_path: Path) -> None:
    """Several backups into one directory stand side by side and leave nothing else there."""
    made = {backup(sqlite_database, tmp_path / "new", make_directory=True) for _ in range(2)}
    assert set((tmp_path / "new").iterdir()) == made
    assert len(made) == 2


def test_backup_never_overwrites(sqlite_database: Database, tmp_path: Path) -> None:
    """What is already there stays as it is."""
    target = tmp_path / "mine.txt"
    target.write_text("mine")
    with pytest.raises(RefusedError, match="already there"):
        backup(sqlite_database, target)
    assert target.read_text() == "mine"


def test_backup_to_a_missing_directory_says_the_cure(sqlite_database: Database, tmp_path: Path) -> None:
    """A wrong target is told as such, not as trouble with the database."""
    with pytest.raises(UnavailableError, match=r"The backup .* Choose a place"):
        backup(sqlite_database, tmp_path / "no" / "such" / "copy.db")


def test_backup_of_a_damaged_file_leaves_no_copy(sqlite_path: Path, tmp_path: Path) -> None:
    """A copy of damage must not pass for a backup."""
    _damage(sqlite_path)
    database = Database(sqlite_url(sqlite_path))
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(StoreCorruptError):
        backup(database, target)
    database.close()
    assert list(target.iterdir()) == []


def test_backup_and_check_do_not_make_a_missing_database(tmp_path: Path) -> None:
    """Looking at nothing finds nothing and leaves nothing behind."""
    database = Database(sqlite_url(tmp_path / "none.db"))
    with pytest.raises(NotFoundError):
        check(database)
    with pytest.raises(NotFoundError):
        backup(database, tmp_path / "copy.db")
    database.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.postgres
def test_backup_of_postgresql_restores_elsewhere(
    postgres_database: Database,
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dump of pg_dump brings every row into another database."""
    monkeypatch.setenv("PATH", f"{postgres_server.binaries}{os.pathsep}{os.environ['PATH']}")
    _add_tasks(postgres_database, 7)
    copy = backup(postgres_database, tmp_path)
    assert copy.suffix == ".dump"
    assert copy.stat().st_mode & 0o777 == 0o600
    with postgres_server.fresh() as url:
        postgres_server.restore(copy, url)
        restored = open_database(url)
        assert _count(restored) == 7
        restored.close()


@pytest.mark.postgres
def test_backup_of_postgresql_without_pg_dump_says_the_cure(
    postgres_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pg_dump there is one sentence and no file."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"pg_dump is not available: .* Install"):
        backup(postgres_database, tmp_path / "copy.dump")
    assert list(tmp_path.iterdir()) == []


def test_password_never_stands_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pg_dump gets the password in a private file, which is gone afterwards."""
    program = tmp_path / "pg_dump"
    program.write_text("#!/bin/sh\n" + PG_DUMP)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    database = Database("postgresql://me:s%3Aecret@nowhere.invalid/name")
    backup(database, tmp_path / "copy.dump")
    database.close()
    arguments, listing, passfile = (tmp_path / "pg_dump.args").read_text().splitlines()
    assert "ecret" not in arguments
    assert listing.startswith("-rw-------")
    assert passfile == "*:*:*:*:s\\:ecret"
    assert not Path(listing.split()[-1]).exists()


def test_check_of_a_whole_database_finds_nothing(database: Database) -> None:
    """Nothing wrong, nothing said; also with rows."""
    _add_tasks(database, 3)
    assert check(database) == []


def test_check_finds_rows_that_point_at_nothing(database: Database) -> None:
    """An approval for a task that does not exist is named."""
    with database.write() as connection:
        moment = sa.text("'2026-01-01T00:00:00Z'")
        row = {"trace_id": "t", "task_id": "gone", "action": "a", "tool_name": "x", "risk_level": "low"}
        connection.execute(sa.insert(approvals).values(**row, expires_at=moment))
    assert [(one.subject, one.problem) for one in check(database)] == [
        ("orphans", "1 rows of approvals name a task_id that is not there")
    ]


def test_check_finds_broken_foreign_keys_and_loose_permissions(
    sqlite_database: Database, sqlite_path: Path
) -> None:
    """What another program wrote without foreign keys is named with its table."""
    sqlite_path.chmod(0o644)
    with closing(sqlite3.connect(sqlite_path)) as other:
        other.execute(
            "INSERT INTO attempts (task_id, attempt, agent_name, owner) VALUES ('gone', 1, 'a', 'o')"
        )
        other.commit()
    subjects = [one.subject for one in check(sqlite_database)]
    assert subjects == ["foreign keys", "permissions"]


def test_check_names_an_outdated_schema(tmp_path: Path) -> None:
    """A database without our schema is told to be upgraded."""
    path = tmp_path / "old.db"
    sqlite3.connect(path).close()
    path.touch(mode=0o600)
    database = Database(sqlite_url(path))
    assert [one.cure for one in check(database) if one.subject == "schema"] == ["Run `proctor db upgrade`."]
    database.close()


def test_check_finds_damage(sqlite_path: Path) -> None:
    """Overwritten pages are found: as findings, or, when nothing can be read any more, in one sentence."""
    _damage(sqlite_path)
    database = Database(sqlite_url(sqlite_path))
    with pytest.raises(StoreCorruptError, match="is damaged"):
        check(database)
    database.close()


def _damage(path: Path) -> None:
    """Overwrite every page but the first, as a failing disk would."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
