"""`proctor status` as a user types it: first steps, what needs you, evidence, next commands, and nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import main
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from proctor.store.tables import attempts, controls
from tests.support.rows import add_task, insert

NOW = datetime.now(UTC)
LIGHT = """
import sys
from proctor.cli.main import main
code = main([])
heavy = {"sqlalchemy", "alembic", "dbos", "pydantic", "rich", "fastapi", "psycopg"}
print("LOADED", sorted(heavy & set(sys.modules)))
sys.exit(code)
"""


@pytest.fixture
def repository(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to stand in."""
    place = tmp_path / "repo"
    (place / ".git").mkdir(parents=True)
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def state(home: Path) -> Database:
    """The user's database, made and open."""
    return open_database(sqlite_url(home / "state" / "proctor" / "proctor.db"))


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["status", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_beginners_hear_what_to_do_next(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outside a repository, in one without settings, and in one that is ready; nothing is created by looking."""
    monkeypatch.chdir(home)
    assert "proctor init" in _text(capsys)
    (home / ".git").mkdir()
    assert "`proctor init` writes proctor.toml" in _text(capsys)
    (home / "proctor.toml").write_text('profile = "standard"\n')
    assert "proctor tasks add" in _text(capsys, "status")
    assert list((home / "state").iterdir()) == []


def test_bare_proctor_loads_nothing_heavy(repository: Path, state: Database) -> None:
    """The answer is quick because neither engine nor SQLAlchemy is loaded."""
    add_task(state)
    state.close()
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED []"
    assert "1 pending" in done.stdout


def test_needs_you_comes_first_and_finished_names_the_next_command(
    repository: Path, state: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Order of the sections, reasons, and a command to copy for each finished task."""
    here = str(repository)
    add_task(state, task_id="stuck", status="blocked", error_log="it depends on x", workspace=here)
    add_task(state, task_id="good", status="completed", completed_at=NOW, attempt=1, workspace="/other/app")
    insert(state, attempts, task_id="good", attempt=1, agent_name="a", owner="o", branch="proctor/good")
    add_task(state, task_id="bad", status="failed", completed_at=NOW, error_log="no network", workspace=here)
    insert(state, controls, scope="session:s 1", paused=True, changed_by="ann")
    state.close()
    text = _text(capsys)
    assert text.index("Needs you") < text.index("Waiting") < text.index("Finished")
    assert "stuck  d: it depends on x  → proctor tasks show stuck" in text
    assert "proctor resume --session 's 1'" in text
    assert "→ proctor tasks retry bad" in text
    assert "(app)  → git -C /other/app diff HEAD...proctor/good" in text
    found = _json(capsys)
    assert [row["next"] for row in found["finished"]["rows"]] == [
        "proctor tasks retry bad",
        "git -C /other/app diff HEAD...proctor/good",
    ]


def test_running_task_of_a_dead_supervisor_is_not_called_alive(
    repository: Path, state: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status says what it can prove: no executor row, no life, and how to go on."""
    add_task(state, task_id="t", status="in_progress", owner="exec_gone", attempt=2)
    began = datetime.now(UTC) - timedelta(minutes=5)
    insert(state, attempts, task_id="t", attempt=2, agent_name="claude", owner="x", started_at=began)
    state.close()
    text = _text(capsys)
    assert "claude  attempt 2  running for 5 min  [no event yet, its supervisor is gone]" in text
    assert "`proctor supervisor start`" in text
    assert _json(capsys)["needs_you"]["nobody_executes"] is True


def test_long_lists_say_how_much_is_left_out(
    repository: Path, state: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten are shown; --all shows the rest."""
    for number in range(13):
        add_task(state, task_id=f"t{number}", status="completed", completed_at=NOW)
    state.close()
    assert "… and 3 more" in _text(capsys)
    assert len(_json(capsys)["finished"]["rows"]) == 10
    assert len(_json(capsys, "--all")["finished"]["rows"]) == 13


def test_unknown_flag_is_wrong_usage(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    assert main(["status", "--sessions"]) == 2
    assert "No such option" in capsys.readouterr().err
