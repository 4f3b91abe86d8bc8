"""The real Claude Code, Codex and Gemini CLI use Proctor through what `proctor integrate` wrote, with scripted models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.agents.slash import COMMANDS
from proctor.gate.task_tokens import VARIABLE, hash_of, new_token
from proctor.store.database import sqlite_url
from proctor.store.schema import open_database
from proctor.store.tables import attempts, calls, task_queue
from proctor.testing.model_server import ModelServer
from tests.agents.conftest import (
    claude_program,  # noqa: F401 - fixtures
    codex_program,  # noqa: F401
    fetched,
    models,  # noqa: F401
    node_path,
)
from tests.support.rows import insert, rows_of
from tests.support.supervisors import stop_supervisor, until_task

pytestmark = [pytest.mark.agents, pytest.mark.timeout(300)]
# The first step comes again until the agent has told of the server: a scripted model is faster than its start.
TOLD = {"claude": ["mcp__proctor__", "list_backups"], "codex": ["Proctor's ", "governed tools"]}
WAIT = {
    name: {"tool": "shell", "command": "python3 -c 'import time; time.sleep(1)'", "until_told": told}
    for name, told in TOLD.items()
}
READ = {"call": {"name": "mcp__proctor__read_file", "args": {"path": "a.txt"}}}
WRITE = {"call": {"name": "mcp__proctor__write_file", "args": {"path": "made.txt", "content": "made"}}}
SECRET = "the word is quince"


@pytest.fixture
def repo(home: Path, tmp_path: Path) -> Path:
    """A repository with one file."""
    place = tmp_path / "repo"
    place.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=place, check=True, timeout=60)
    (place / "a.txt").write_text(SECRET)
    return place


def _prompt(*steps: dict[str, Any]) -> str:
    return "FAKE:" + json.dumps({"steps": [*steps, {"text": "done"}]})


def _integrate(agent: str, repo: Path, *words: str) -> None:
    command = [sys.executable, "-m", "proctor", "integrate", agent, *words]
    subprocess.run(command, cwd=repo, check=True, capture_output=True, timeout=60)


def _claude(program: Path, server: ModelServer, repo: Path, prompt: str, **env: str) -> list[dict[str, Any]]:
    own = {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "sk-ant-simulated",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
        "PATH": node_path(),
    }
    command = [
        str(program),
        "-p",
        prompt,
        "--output-format",
        "stream-json",
        "--verbose",
        "--model",
        "claude-sonnet-4-5",
    ]
    command += ["--allowedTools", "mcp__proctor,Bash"]
    return _lines(command, repo, {**os.environ, **own, **env})


def _configure(server: ModelServer, repo: Path) -> None:
    config = Path(os.environ["CODEX_HOME"]) / "config.toml"
    ours = config.read_text() if config.exists() else ""
    config.write_text(
        f'model = "gpt-5.5"\nmodel_provider = "sim"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n'
        f'[model_providers.sim]\nname = "Sim"\nbase_url = "{server.url}/v1"\nwire_api = "responses"\n'
        f'env_key = "SIM_KEY"\nrequest_max_retries = 1\nstream_max_retries = 1\n'
        f'[projects."{repo}"]\ntrust_level = "trusted"\n' + ours
    )


def _codex(program: Path, server: ModelServer, repo: Path, prompt: str, **env: str) -> list[dict[str, Any]]:
    _configure(server, repo)
    command = [str(program), "exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access", prompt]
    return _lines(command, repo, {**os.environ, "SIM_KEY": "sk-simulated", "PATH": node_path(), **env})


def _lines(command: list[str], repo: Path, env: dict[str, str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        command, cwd=repo, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _calls(home: Path) -> list[dict[str, Any]]:
    database = open_database(sqlite_url(home / "state" / "proctor" / "proctor.db"))
    try:
        return rows_of(database, sa.select(calls).order_by(calls.c.requested_at))
    finally:
        database.close()


def _said(server: ModelServer) -> str:
    return json.dumps([body for _, body in server.requests])


def _at_work(home: Path, repo: Path) -> tuple[Path, str]:
    """A running attempt of a task, as the engine writes it down: its worktree and its token."""
    worktree, token = home / "wt", new_token("task-1", 1)
    worktree.mkdir()
    (worktree / "a.txt").write_text(SECRET + " of the worktree")
    database = open_database(sqlite_url(home / "state" / "proctor" / "proctor.db"))
    task = {"task_id": "task-1", "description": "d", "attempt": 1, "trace_id": "trace-1"}
    insert(database, task_queue, **task, status="in_progress", workspace=str(repo))
    tried = {"task_id": "task-1", "attempt": 1, "agent_name": "forge", "owner": "x"}
    insert(database, attempts, **tried, worktree=str(worktree), token_hash=hash_of(token))
    database.close()
    return worktree, token


RUN = {"claude": _claude, "codex": _codex}


@pytest.fixture(params=["claude", "codex"])
def agent(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """One of them, with a home of its own outside TMPDIR, as Codex wants it."""
    (home / "tmp").mkdir()
    (home / "codex").mkdir()
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    monkeypatch.setenv("CODEX_HOME", str(home / "codex"))
    program: Path = request.getfixturevalue(f"{request.param}_program")
    return request.param, program


@pytest.mark.parametrize("scope", ["user", "project"])
def test_a_real_agent_calls_proctors_tools(
    agent: tuple[str, Path],
    scope: str,
    home: Path,
    repo: Path,
    models: ModelServer,  # noqa: F811
) -> None:
    """What the tool read reaches the model, what it wrote is there, and both are an agent's calls in one trace."""
    name, program = agent
    _integrate(name, repo, "--scope", scope)
    if name == "claude" and scope == "project":
        (repo / ".claude" / "settings.local.json").write_text('{"enabledMcpjsonServers": ["proctor"]}')
    env = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{node_path()}"}
    RUN[name](program, models, repo, _prompt(WAIT[name], READ, WRITE), **env)
    assert SECRET in _said(models)
    assert (repo / "made.txt").read_text() == "made"
    rows = _calls(home)
    assert [(row["tool_name"], row["state"], row["error"]) for row in rows] == [
        ("read_file", "ended", None),
        ("write_file", "ended", None),
    ]
    assert {row["actor"] for row in rows} == {"agent"}
    assert name in rows[0]["actor_name"]
    assert len({row["trace_id"] for row in rows}) == 1


def test_a_real_agent_with_a_tasks_token_calls_as_that_task(
    agent: tuple[str, Path],
    home: Path,
    repo: Path,
    models: ModelServer,  # noqa: F811
) -> None:
    """The token passes through the agent's own environment to the server it starts: its calls act in the worktree."""
    name, program = agent
    _integrate(name, repo)
    worktree, token = _at_work(home, repo)
    RUN[name](program, models, repo, _prompt(WAIT[name], READ, WRITE), **{VARIABLE: token})
    assert "of the worktree" in _said(models)
    assert (worktree / "made.txt").read_text() == "made"
    assert not (repo / "made.txt").exists()
    found = {(row["actor_name"], row["task_id"], row["attempt"], row["trace_id"]) for row in _calls(home)}
    assert found == {("forge", "task-1", 1, "trace-1")}


def test_an_agent_of_a_task_calls_with_the_token_its_attempt_was_given(
    agent: tuple[str, Path],
    home: Path,
    repo: Path,
    models: ModelServer,  # noqa: F811
) -> None:
    """The whole way: queue, supervisor, agent, its MCP server, gate; the file is in the task's commit and nowhere else."""
    name, program = agent
    (repo / "proctor.toml").write_text(
        SETTINGS[name].format(program=program, url=models.url, home=home / "codex")
    )
    _commit(repo)
    _integrate(name, repo)
    if name == "codex":
        _configure(models, repo)
    words = ["tasks", "add", _prompt(WAIT[name], READ, WRITE), "--agent", name, "--json"]
    try:
        task = _proctor(repo, *words)["task_id"]
        until_task(task, "completed", "failed", seconds=200)
        shown = _proctor(repo, "tasks", "show", task, "--json")
    finally:
        stop_supervisor()
    assert shown["status"] == "completed", shown
    rows = [row for row in _calls(home) if row["tool_name"] in {"read_file", "write_file"}]
    assert [(row["actor_name"], row["task_id"], row["attempt"], row["error"]) for row in rows] == [
        (name, task, 1, None)
    ] * 2
    assert {row["trace_id"] for row in rows} == {shown["trace_id"]}
    made = subprocess.run(
        ["git", "show", f"{shown['result']['commit']}:made.txt"], cwd=repo, capture_output=True, timeout=60
    )
    assert made.stdout == b"made"
    assert not (repo / "made.txt").exists()


SETTINGS = {
    "claude": """
[agents.claude]
command = ["{program}"]
model = "claude-sonnet-4-5"
env = {{ ANTHROPIC_BASE_URL = "{url}", ANTHROPIC_API_KEY = "sk-ant-simulated", CLAUDE_CODE_MAX_RETRIES = "1" }}
""",
    "codex": """
[agents.codex]
command = ["{program}"]
env = {{ CODEX_HOME = "{home}", SIM_KEY = "sk-simulated", PROCTOR_CODEX_SANDBOX = "danger-full-access" }}
""",
}


def _commit(repo: Path) -> None:
    for words in (
        ["add", "-A"],
        ["-c", "user.name=T", "-c", "user.email=t@localhost", "commit", "-qm", "Begin"],
    ):
        subprocess.run(["git", *words], cwd=repo, check=True, timeout=60)


def _proctor(repo: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "proctor", *words], cwd=repo, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_claude_code_shows_and_expands_the_slash_commands(
    home: Path,
    repo: Path,
    models: ModelServer,  # noqa: F811
    claude_program: Path,  # noqa: F811
) -> None:
    """All six are listed at its start; one that is typed becomes its text with what stood behind it."""
    _integrate("claude", repo)
    events = _claude(claude_program, models, repo, "/orch-status the quince task")
    init = next(one for one in events if one.get("subtype") == "init")
    assert set(COMMANDS) <= set(init["slash_commands"])
    said = _said(models)
    assert "Call Proctor's tool `get_status`" in said
    assert "the quince task" in said


def test_gemini_cli_calls_the_tools_and_expands_the_commands(
    home: Path,
    repo: Path,
    models: ModelServer,  # noqa: F811
) -> None:
    """By its own names for the tools, as the task whose token it was given; a command becomes its text."""
    program = fetched("gemini")
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    auth = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
    }
    settings.write_text(json.dumps({**auth, "general": {"enableAutoUpdate": False, "maxAttempts": 2}}))
    _integrate("gemini", repo)
    worktree, token = _at_work(home, repo)
    read = {"call": {"name": "mcp_proctor_read_file", "args": {"path": "a.txt"}}}
    _gemini(program, models, repo, _prompt(read), **{VARIABLE: token})
    assert "of the worktree" in _said(models)
    assert {(row["actor_name"], row["task_id"]) for row in _calls(home)} == {("forge", "task-1")}
    _gemini(program, models, repo, "/orch-status the quince task")
    assert "Call Proctor's tool `get_status`" in _said(models)
    assert worktree.exists()


def _gemini(program: Path, server: ModelServer, repo: Path, prompt: str, **env: str) -> None:
    own = {
        "GEMINI_API_KEY": "simulated",
        "GOOGLE_GEMINI_BASE_URL": server.url,
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    command = [str(program), "-p", prompt, "-o", "stream-json", "-m", "gemini-2.5-pro"]
    command += ["--approval-mode", "yolo", "--skip-trust"]
    _lines(command, repo, {**os.environ, **own, "PATH": node_path(), **env})


def test_codex_lists_the_commands_as_skills(
    home: Path,
    repo: Path,
    models: ModelServer,  # noqa: F811
    codex_program: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its model is told of all six, with the place where each stands."""
    (home / "codex").mkdir()
    monkeypatch.setenv("CODEX_HOME", str(home / "codex"))
    monkeypatch.setenv("TMPDIR", str(repo))
    _integrate("codex", repo)
    _codex(codex_program, models, repo, "$orch-status the quince task")
    said = _said(models)
    for command in COMMANDS.values():
        assert f"{command.name}: {command.summary}. Only when" in said
