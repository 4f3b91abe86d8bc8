"""`proctor gc` as a user types it, with a real supervisor, a real worktree and the engine's own records."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import main
from tests.support.supervisors import stop_supervisor, until_task

SETTINGS = '[agents.robin]\ndriver = "scripted"\n'


@pytest.fixture
def repository(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with a scripted agent; the supervisor is stopped afterwards."""
    place = tmp_path / "repo"
    place.mkdir()
    (place / "proctor.toml").write_text(SETTINGS)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], cwd=place, check=True, timeout=60)
    monkeypatch.chdir(place)
    yield place
    stop_supervisor()


def _proctor(*words: str) -> Any:
    """Run the real command in a process of its own, as the supervisor it may start is its child."""
    command = [sys.executable, "-m", "proctor", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _until_completed(task: str) -> Any:
    until_task(task, "completed")
    return _proctor("tasks", "show", task)


def test_dry_run_on_nothing_makes_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only to look creates neither database nor key."""
    monkeypatch.chdir(home)
    assert main(["gc", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["worktrees"] == []
    assert main(["gc", "--dry-run"]) == 0
    assert list((home / "state").iterdir()) == []


@pytest.mark.slow
def test_finished_task_leaves_and_its_branch_stays(repository: Path) -> None:
    """Run, dry run, collect: worktree, state, events and the engine's record go; task, branch and proof stay."""
    task = _proctor("tasks", "add", "write something", "--agent", "robin")["task_id"]
    shown = _until_completed(task)
    worktree = Path(shown["attempts"][0]["worktree"])
    assert worktree.is_dir()
    assert _proctor("agents", "show", "robin")["success_rate"] == 1.0
    (finished,) = _proctor("status")["finished"]["rows"]
    assert finished["next"] == f"git diff HEAD...{shown['attempts'][0]['branch']}"
    planned = _proctor("gc", "--days", "0", "--keep", "0", "--dry-run")
    assert worktree.is_dir()
    found = _proctor("gc", "--days", "0", "--keep", "0")
    assert found["proofs"]["repositories"] == 0
    assert planned["worktrees"] == found["worktrees"] == [str(worktree)]
    assert (found["kept"], found["states"], found["engine_records"]) == ([], 1, 1)
    assert found["events"] > 0
    assert not worktree.exists()
    branches = subprocess.run(
        ["git", "branch"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert shown["attempts"][0]["branch"] in branches
    assert _proctor("tasks", "show", task)["status"] == "completed"
    assert _proctor("trace", "verify")["ok"] is True


@pytest.mark.slow
def test_pause_holds_the_queue_and_resume_lets_it_go(repository: Path) -> None:
    """A task added while its agent is paused waits and is shown waiting; after resume it runs."""
    assert _proctor("pause", "--agent", "robin")["changed"] == ["agent:robin"]
    task = _proctor("tasks", "add", "later", "--agent", "robin")["task_id"]
    time.sleep(1.5)
    status = _proctor("status")
    assert status["waiting"] == {"pending": 1}
    assert status["needs_you"]["paused"]["rows"][0]["scope"] == "agent:robin"
    assert status["needs_you"]["nobody_executes"] is False
    _proctor("resume", "--agent", "robin")
    assert _until_completed(task)["attempts"][0]["outcome"] == "succeeded"


@pytest.mark.slow
def test_waiting_task_of_an_offline_agent_is_shown_with_the_cure(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor's own look at the agents reaches status: who is waited for, why, and what helps."""
    (repository / "proctor.toml").write_text(
        '[agents.lost]\ndriver = "claude"\ncommand = ["no-such-claude"]\n'
    )
    _proctor("tasks", "add", "something", "--agent", "lost")
    deadline = time.monotonic() + 60
    while not (found := _proctor("status")["needs_you"]["offline_agents"]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert (found[0]["agent"], found[0]["tasks"]) == ("lost", 1)
    assert "no-such-claude is not on PATH. Install it" in found[0]["reason"]


def test_wrong_values_and_flags_are_wrong_usage(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 before anything is touched."""
    for words in (["--days", "-1"], ["--keep", "many"], ["--force"]):
        assert main(["gc", *words]) == 2
    assert list((home / "state").iterdir()) == []
