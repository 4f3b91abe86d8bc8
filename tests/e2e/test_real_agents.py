"""The real Claude Code and Codex through the real supervisor: a task becomes a commit, also when everything is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.testing.model_server import ModelServer
from tests.agents.conftest import claude_program, codex_program, models  # noqa: F401 - fixtures
from tests.support.supervisors import stop_supervisor, until_task

pytestmark = [pytest.mark.agents, pytest.mark.timeout(660)]


def _proctor(repo: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "proctor", *words, "--json"],
        cwd=repo,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _repository(root: Path, settings: str) -> Path:
    repo = root / "repo"
    repo.mkdir()
    (repo / "proctor.toml").write_text(settings)
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["-c", "user.name=T", "-c", "user.email=t@localhost", "commit", "-qm", "Begin"],
    ):
        subprocess.run(["git", *words], cwd=repo, check=True, timeout=60)
    return repo


def _claude(program: Path, server: ModelServer, root: Path) -> str:
    return f"""
[agents.claude]
command = ["{program}"]
model = "claude-sonnet-4-5"
env = {{ ANTHROPIC_BASE_URL = "{server.url}", ANTHROPIC_API_KEY = "sk-ant-simulated", CLAUDE_CODE_MAX_RETRIES = "1" }}
"""


def _codex(program: Path, server: ModelServer, root: Path) -> str:
    home = root / "codex-home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'model = "gpt-5.5"\nmodel_provider = "sim"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n'
        f'[model_providers.sim]\nname = "Sim"\nbase_url = "{server.url}/v1"\nwire_api = "responses"\n'
        f'env_key = "SIM_KEY"\nrequest_max_retries = 1\nstream_max_retries = 1\n'
    )
    return f"""
[agents.codex]
command = ["{program}"]
env = {{ CODEX_HOME = "{home}", SIM_KEY = "sk-simulated", PROCTOR_CODEX_SANDBOX = "danger-full-access" }}
"""


def _until(fact: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def _prompt(steps: list[dict[str, object]]) -> str:
    return "Please do it. FAKE:" + json.dumps({"steps": steps})


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_task_becomes_a_commit_also_after_kill_9_of_supervisor_and_agent(
    agent: str,
    request: pytest.FixtureRequest,
    home: Path,
    tmp_path: Path,
    models: ModelServer,  # noqa: F811
) -> None:
    """The first supervisor dies while the model hangs; the next one resumes by the native id and commits the work."""
    program: Path = request.getfixturevalue(f"{agent}_program")
    settings = {"claude": _claude, "codex": _codex}[agent](program, models, tmp_path)
    repo = _repository(tmp_path, settings)
    steps: list[dict[str, object]] = [
        {"tool": "shell", "command": "echo made > made.txt"},
        {"text": "Went on.", "delay": 3},
    ]
    task = _proctor(repo, "tasks", "add", _prompt(steps), "--agent", agent)["task_id"]
    try:
        _until(
            lambda: any(
                a["native_id"] and a["pid"] for a in _proctor(repo, "tasks", "show", task)["attempts"]
            )
        )
        _until(lambda: bool(list((home).rglob("made.txt"))))
        os.kill(_proctor(repo, "supervisor", "status")["pid"], signal.SIGKILL)
        before = _proctor(repo, "tasks", "show", task)["attempts"][0]
        _proctor(repo, "tasks", "add", "wake the next supervisor", "--agent", agent)
        until_task(task, "completed", seconds=200)
        shown = _proctor(repo, "tasks", "show", task)
    finally:
        stop_supervisor()
    assert [a["native_id"] for a in shown["attempts"]] == [before["native_id"]]
    assert [a["simulated"] for a in shown["attempts"]] == [False]
    files = subprocess.run(
        ["git", "show", "--name-only", "--format=", shown["result"]["commit"]],
        cwd=repo,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert files == ["made.txt"]
    assert shown["result"]["branch"] == f"proctor/{task}"
