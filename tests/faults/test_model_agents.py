"""The seeds' four API agents as workers of the real supervisor, against the scripted model server: done, killed, asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.app import App
from proctor.config import load_settings
from proctor.engine import client
from proctor.engine.tasks import NewTask
from proctor.gate.approvals import answer_approval
from proctor.protocol.ports import SystemClock
from proctor.protocol.states import TASK, TaskState
from proctor.store.tables import approvals, attempts, calls, task_history
from proctor.testing.model_server import ModelServer
from proctor.trace.verify import verify
from tests.faults.conftest import until
from tests.support.rows import rows_of
from tests.support.supervisors import stop_supervisor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SETTINGS = """
[agents.SOLACE.api]
base_url = "{url}/v1"
[agents.FORGE.api]
base_url = "{url}"
[agents.ARCHITECT.api]
base_url = "{url}"
[agents.SENTINEL.api]
base_url = "{url}"
"""


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """Models that follow the prompt's script."""
    with ModelServer() as running:
        yield running


@pytest.fixture
def app(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: ModelServer) -> Iterator[App]:
    """A repository whose four agents ask the scripted server; no supervisor is left at the end."""
    repository = tmp_path / "repo"
    repository.mkdir()
    (repository / "proctor.toml").write_text(SETTINGS.format(url=models.url))
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=repository, check=True, timeout=60)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-simulated-0001")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-simulated-0002")
    made = App(load_settings())
    yield made
    stop_supervisor()
    made.close()


def script(*steps: dict[str, Any]) -> str:
    """A prompt for the scripted models."""
    return f"Please do it. FAKE:{json.dumps({'steps': steps})}"


def call(name: str, **args: Any) -> dict[str, Any]:
    """A step that calls a tool."""
    return {"call": {"name": name, "args": args}}


def add(app: App, agent: str, prompt: str) -> str:
    """Put a task for this repository into the queue."""
    return app.tasks.add(NewTask(prompt, agent=agent, workspace=str(Path.cwd()))).task_id


def ended(app: App, *tasks: str) -> Callable[[], bool]:
    """Whether all of them have."""
    return lambda: all(app.tasks.get(task).status in TASK.terminal for task in tasks)


def on_branch(task_id: str, path: str) -> str:
    """A file as the task's branch has it."""
    words = ["git", "show", f"proctor/{task_id}:{path}"]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def test_each_of_the_four_completes_a_queued_task_with_tools(app: App, models: ModelServer) -> None:
    """OpenAI, Anthropic and Ollama agents read and write in a worktree of their own; tokens go into the history.

    Bug 10: what a tool gave goes back to the model, in the queue as in the chat.
    """
    agents = ("SOLACE", "FORGE", "ARCHITECT", "SENTINEL")
    tasks = {
        agent: add(
            app,
            agent,
            script(
                call("list_directory", path="."),
                call("write_file", path=f"{agent}.txt", content=f"by {agent}\n"),
                {"text": f"{agent} wrote it"},
            ),
        )
        for agent in agents
    }
    client.ensure(app.settings)
    until(ended(app, *tasks.values()), 100)
    for agent, task in tasks.items():
        found = app.tasks.get(task)
        assert (found.status, found.error) == (TaskState.COMPLETED, None), found
        assert on_branch(task, f"{agent}.txt") == f"by {agent}\n"
        assert not Path(f"{agent}.txt").exists()
        (row,) = rows_of(app.database, sa.select(task_history).where(task_history.c.task_id == task))
        assert (row["success"], row["cost_tokens"]) == (True, 3 * (1200 + 200 + 34))
        (attempt,) = rows_of(app.database, sa.select(attempts).where(attempts.c.task_id == task))
        assert attempt["input_tokens"] == 3 * 1400
        last = [told for _, body in models.requests if f"{agent} wrote it" in (told := json.dumps(body))][-1]
        assert "proctor.toml" in last  # the listing
        assert "File written successfully" in last
    assert verify(app.database, app.key).ok


def test_kill_9_in_the_middle_goes_on_once(app: App, models: ModelServer) -> None:
    """The command ran before the death and not again after it; the second supervisor asks from there on."""
    slow = {**call("execute_command", command="echo two >> ledger.txt"), "delay": 4, "times": 1}
    task = add(
        app,
        "FORGE",
        script(call("execute_command", command="echo one >> ledger.txt"), slow, {"text": "both"}),
    )
    first = client.ensure(app.settings)
    until(lambda: len(models.requests) >= 2, 60)
    os.kill(first.pid, signal.SIGKILL)
    client.ensure(app.settings)
    until(ended(app, task), 100)
    assert app.tasks.get(task).status is TaskState.COMPLETED
    assert on_branch(task, "ledger.txt") == "one\ntwo\n"
    ran = rows_of(app.database, sa.select(calls).where(calls.c.tool_name == "execute_command"))
    assert [row["state"] for row in ran] == ["ended", "ended"]


def test_a_tasks_question_is_one_row_and_its_answer_lets_the_call_run_once(app: App) -> None:
    """What leaves the sandbox asks; the agent waits, a person says yes, and the same attempt goes on."""
    step = call("add_architecture_rule", feature_type="billing", rules_description="ask first")
    task = add(app, "SENTINEL", script(step, {"text": "added"}))
    client.ensure(app.settings)
    until(lambda: len(rows_of(app.database, sa.select(approvals))) == 1, 60)
    (question,) = rows_of(app.database, sa.select(approvals))
    assert (question["task_id"], question["tool_name"]) == (task, "add_architecture_rule")
    now = SystemClock().now()
    app.writer.transact(
        lambda c: answer_approval(c, question["approval_id"], approved=True, by="david", reason="", now=now)
    )
    client.wake(app.settings.paths)
    until(ended(app, task), 60)
    assert app.tasks.get(task).status is TaskState.COMPLETED
    assert len(rows_of(app.database, sa.select(approvals))) == 1
    (ran,) = rows_of(app.database, sa.select(calls).where(calls.c.tool_name == "add_architecture_rule"))
    assert (ran["state"], ran["error"]) == ("ended", None)


def test_a_key_that_is_refused_ends_the_task_with_the_cure(app: App) -> None:
    """The task fails and says which variable to look at; it is not tried for ever."""
    task = add(app, "SOLACE", script({"http": 401}))
    client.ensure(app.settings)
    until(ended(app, task), 60)
    found = app.tasks.get(task)
    assert found.status is TaskState.FAILED
    assert "OPENAI_API_KEY" in str(found.error)
