"""A damaged file is called damaged, in one sentence that names the backup; it is never repaired by overwriting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from proctor.cli.main import main
from proctor.protocol.errors import StoreCorruptError
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from proctor.store.tables import task_queue

PAGE = 4096


def _text(path: Path) -> None:
    path.write_text("This is not a database at all.\n" * 200)


def _header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * 100)


def _pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(b"\xa5" * (path.stat().st_size - PAGE))


DAMAGES = [_text, _header, _pages]


@pytest.fixture(params=DAMAGES, ids=["not a database", "header overwritten", "pages overwritten"])
def damaged(request: pytest.FixtureRequest, sqlite_path: Path) -> Path:
    """A database file with real damage."""
    damage: Callable[[Path], None] = request.param
    damage(sqlite_path)
    return sqlite_path


def test_damaged_file_is_refused_and_left_as_it_is(damaged: Path) -> None:
    """Opening says that it is damaged and what to do, and changes no byte."""
    before = damaged.read_bytes()
    with pytest.raises(StoreCorruptError, match=r"is damaged: .* Restore the newest copy"):
        open_database(sqlite_url(damaged))
    assert damaged.read_bytes() == before


@pytest.mark.parametrize("words", [["db", "check"], ["db", "upgrade"], ["db", "backup"]], ids=" ".join)
def test_damaged_file_is_one_sentence_and_exit_code_six(
    damaged: Path,
    words: list[str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command line says the same and never shows a traceback."""
    monkeypatch.setenv("PROCTOR_DATABASE_URL", sqlite_url(damaged))
    assert main(words) == 6
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(f"proctor: The database {damaged} is damaged: ")
    assert error.count("\n") == 1


def test_damage_in_one_table_is_found_when_it_is_read(sqlite_path: Path) -> None:
    """Rows on a damaged page are never given out as if they were right; other tables still read."""
    database = Database(sqlite_url(sqlite_path))
    with database.write() as connection:
        rows = [{"description": "y" * 2000} for _ in range(200)]
        connection.execute(sa.insert(task_queue), rows)
        root: int = connection.exec_driver_sql(
            "SELECT rootpage FROM sqlite_master WHERE name = 'task_queue'"
        ).scalar_one()
    database.close()
    with sqlite_path.open("r+b") as file:
        file.seek((root - 1) * PAGE)
        file.write(b"\xff" * PAGE)
    again = open_database(sqlite_url(sqlite_path))
    with pytest.raises(StoreCorruptError), again.read() as connection:
        connection.execute(sa.select(task_queue)).all()
    with again.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM architecture_rules").scalar_one() == 3
    again.close()
