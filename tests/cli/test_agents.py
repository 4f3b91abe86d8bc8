"""`proctor agents`: status from facts, the seeds' agents only on request, simulated ones marked."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.agents.identity import boot, start_time
from proctor.cli.main import main
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from proctor.store.tables import attempts, controls, executors, task_history
from tests.support.rows import add_task, insert


@pytest.fixture(autouse=True)
def workspace(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a scripted agent; no other agent's program, key or server is there."""
    place = tmp_path / "repo"
    (place / ".git").mkdir(parents=True)
    (place / "proctor.toml").write_text('[agents.robin]\ndriver = "scripted"\ncapabilities = ["coding"]\n')
    monkeypatch.chdir(place)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.fixture
def state(home: Path) -> Database:
    """The user's database, made and open."""
    return open_database(sqlite_url(home / "state" / "proctor" / "proctor.db"))


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["agents", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_seed_agents_without_a_key_are_listed_only_on_request(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four more with --all; with its key one is there by itself. Looking makes no database."""
    plain = [one["name"] for one in _json(capsys, "list")]
    assert plain == ["claude", "codex", "gemini", "robin"]
    everybody = [one["name"] for one in _json(capsys, "--all")]
    assert set(everybody) - set(plain) == {"SOLACE", "FORGE", "ARCHITECT", "SENTINEL"}
    monkeypatch.setenv("OPENAI_API_KEY", "k" * 20)
    assert "SOLACE" in [one["name"] for one in _json(capsys)]
    assert list((home / "state").iterdir()) == []


def test_offline_agents_say_why_and_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    """In the list and in the health; a scripted one is online and marked simulated."""
    assert main(["agents"]) == 0
    text = capsys.readouterr().out
    assert "claude is not on PATH. Install it with `npm install" in text
    assert "robin (simulated)  idle" in text
    found = {one["name"]: one for one in _json(capsys, "health")}
    assert found["claude"]["online"] is False
    assert "npm install" in found["claude"]["cure"]
    assert found["robin"]["simulated"] is True


def test_totals_rate_and_time_come_from_history(state: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """Three successes of four: 75 %, the mean of all durations."""
    add_task(state)
    for number in range(4):
        insert(
            state,
            task_history,
            agent_name="robin",
            task_id="task-1",
            task_type="task",
            success=number > 0,
            duration_ms=1000 * (number + 1),
            cost_tokens=10,
        )
    state.close()
    found = _json(capsys, "show", "ROBIN")
    assert found["total_tasks_completed"] == 3
    assert (found["success_rate"], found["avg_completion_time_ms"], found["total_tokens"]) == (0.75, 2500, 40)
    assert main(["agents", "show", "robin"]) == 0
    assert "success: 75%" in capsys.readouterr().out


def test_busy_needs_a_living_executor(state: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """An attempt that a dead supervisor left open does not make its agent busy."""
    for task, owner in (("t1", "alive"), ("t2", "dead")):
        add_task(state, task_id=task, status="in_progress", owner=owner)
        agent = "robin" if owner == "alive" else "claude"
        insert(state, attempts, task_id=task, attempt=1, agent_name=agent, owner=owner)
    insert(
        state,
        executors,
        executor_id="alive",
        kind="supervisor",
        host=socket.gethostname(),
        pid=os.getpid(),
        pid_started=start_time(os.getpid()),
        boot_id=boot()[:64],
        version="1",
        expires_at=datetime.now(UTC) + timedelta(hours=1),
    )
    insert(state, controls, scope="agent:robin", paused=True, changed_by="ann")
    state.close()
    found = {one["name"]: one for one in _json(capsys, "list")}
    assert (found["robin"]["status"], found["robin"]["current_task_ids"]) == ("busy", ["t1"])
    assert found["robin"]["paused"] is True
    assert (found["claude"]["status"], found["claude"]["current_task_ids"]) == ("offline", [])


def test_unknown_names_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 4 with the known names; exit code 2 for a flag that does not exist."""
    assert main(["agents", "show", "nobody"]) == 4
    assert "Known agents: claude" in capsys.readouterr().err
    assert main(["agents", "list", "--online"]) == 2
