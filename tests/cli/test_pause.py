"""`proctor pause` and `resume`: row and event together, the right scope, and work that really waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.cli.main import main
from proctor.config import load_settings
from proctor.engine import client
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from proctor.store.tables import controls, events
from tests.support.rows import add_task, rows_of


@pytest.fixture
def state(home: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """The user's database, made and open, outside any repository."""
    monkeypatch.chdir(home)
    return open_database(sqlite_url(home / "state" / "proctor" / "proctor.db"))


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _told(state: Database) -> list[tuple[str, str]]:
    query = sa.select(events.c.event, events.c.details).where(events.c.trace_id == "controls")
    return [(row["event"], json.loads(row["details"])["scope"]) for row in rows_of(state, query)]


def test_pause_and_resume_everything(state: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """Once each: the second pause changes nothing and tells no event; status shows it meanwhile."""
    assert _json(capsys, "pause") == {"scopes": ["all"], "changed": ["all"], "paused": ["all"]}
    assert _json(capsys, "pause")["changed"] == []
    (shown,) = _json(capsys, "status")["needs_you"]["paused"]["rows"]
    assert shown["scope"] == "all"
    assert _json(capsys, "resume") == {"scopes": ["all"], "changed": ["all"], "paused": []}
    assert main(["resume"]) == 0
    assert capsys.readouterr().out == "all: was not paused.\n"
    assert _told(state) == [("paused", "all"), ("resumed", "all")]
    assert [row["paused"] for row in rows_of(state, controls.select())] == [False]


def test_scopes_are_checked_and_named_as_the_queue_names_them(
    state: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent in any case, a session that has tasks; both at once; unknown ones are exit code 4."""
    add_task(state, session_id="s-1", status="completed")
    found = _json(capsys, "pause", "--session", "s-1", "--agent", "CLAUDE")
    assert found["changed"] == ["session:s-1", "agent:claude"]
    assert main(["pause", "--agent", "nobody"]) == 4
    assert "Known agents" in capsys.readouterr().err
    assert main(["pause", "--session", "nothing"]) == 4
    assert main(["pause", "--agent", ""]) in {2, 4}
    capsys.readouterr()
    assert main(["resume", "--agent", "claude"]) == 0
    assert "Still paused: session:s-1." in capsys.readouterr().out


def test_pausing_starts_no_supervisor(state: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing runs without one, so none is needed; nor to resume when nothing waits."""
    add_task(state)
    assert main(["pause"]) == 0
    assert client.greet(load_settings().paths) is None
    state.close()


def test_unknown_flag_is_wrong_usage(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    assert main(["pause", "--task", "x"]) == 2
    assert main(["resume", "--everything"]) == 2
    assert "No such option" in capsys.readouterr().err
