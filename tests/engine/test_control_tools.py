"""Proctor's own controls as tools: through the gate like all others, and an agent at work stays within its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.app import App
from proctor.config import load_settings
from proctor.engine.claims import MAX_DELEGATIONS
from proctor.protocol.errors import SupervisorUnavailableError
from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Actor, Call, CallResult
from proctor.store.tables import attempts, controls, events, task_queue
from tests.support.rows import insert, rows_of

AGENT = Actor(ActorKind.AGENT, "claude-code")


@dataclass
class Desk:
    """An app with a queue, and nobody who executes."""

    app: App
    workspace: Path
    woken: list[int] = field(default_factory=list)

    async def call(self, tool: str, inputs: dict[str, Any] | None = None, **more: Any) -> CallResult:
        """One call of an agent in the workspace."""
        given: dict[str, Any] = {"actor": AGENT, "workspace": self.workspace, **more}
        return await self.app.gate.run(Call(tool=tool, inputs=inputs or {}, **given))

    async def output(self, tool: str, inputs: dict[str, Any] | None = None, **more: Any) -> Any:
        """What it gave."""
        result = await self.call(tool, inputs, **more)
        assert result.ok, result.error
        return result.output

    def rows(self, table: sa.Table) -> list[dict[str, Any]]:
        """All of them."""
        return rows_of(self.app.database, sa.select(table))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A repository with one configured agent."""
    workspace = tmp_path / "work"
    (workspace / ".git").mkdir(parents=True)
    (workspace / "proctor.toml").write_text('[agents.mason]\ndriver = "scripted"\n')
    made = Desk(App(load_settings(workspace, {"HOME": str(tmp_path), "PATH": "/bin"})), workspace)
    made.app.wake = lambda: made.woken.append(1)
    yield made
    made.app.close()


async def test_a_task_is_added_listed_shown_and_stopped(desk: Desk) -> None:
    """By the agent's own name, in this workspace; whoever executes is told each time."""
    first = await desk.output(
        "add_task", {"description": "mend it", "agent": "Mason", "files": ["a.py"], "priority": 7}
    )
    name = first["task"]["task_id"]
    second = await desk.output("add_task", {"description": "then this", "after": [name[:-1]]})
    listed = await desk.output("list_tasks", {"limit": 1})
    shown = await desk.output("show_task", {"task": name})
    row = next(row for row in desk.rows(task_queue) if row["task_id"] == name)
    assert (row["assigned_to_agent"], row["created_by"], row["priority"]) == ("mason", "claude-code", 7)
    assert (row["workspace"], row["file_paths"]) == (str(desk.workspace), ["a.py"])
    assert [one["task_id"] for one in listed["tasks"]] == [second["task"]["task_id"]]
    assert listed["truncated"] is True
    assert (shown["task"]["status"], shown["attempts"]) == ("pending", [])
    stopped = await desk.output("stop_tasks", {"task": name})
    assert [one["status"] for one in stopped["tasks"]] == ["cancelled"]
    assert [one["status"] for one in (await desk.output("stop_tasks"))["tasks"]] == ["cancelled"]
    assert len(desk.woken) == 4
    told = [row for row in desk.rows(events) if row["event"] in {"task_added", "task_cancelled"}]
    assert {(row["actor"], row["actor_name"]) for row in told} == {("agent", "claude-code")}


async def test_pausing_and_going_on_says_where(desk: Desk) -> None:
    """Everywhere or for one agent; status shows it."""
    paused = await desk.output("pause_work")
    again = await desk.output("pause_work")
    one = await desk.output("pause_work", {"agent": "MASON"})
    status = await desk.output("get_status")
    assert (paused["changed"], again["changed"], one["changed"]) == (["all"], [], ["agent:mason"])
    assert sorted(status["paused"]) == ["agent:mason", "all"]
    left = await desk.output("resume_work")
    assert left["paused"] == ["agent:mason"]
    assert {row["changed_by"] for row in desk.rows(controls)} == {"claude-code"}


async def test_status_says_what_needs_the_person(desk: Desk) -> None:
    """Open work that nobody executes, with the command to type."""
    await desk.output("add_task", {"description": "mend it"})
    status = await desk.output("get_status")
    assert status["waiting"] == {"pending": 1}
    assert "proctor supervisor start" in " ".join(status["needs_you"])


@pytest.mark.parametrize(
    ("tool", "inputs", "code"),
    [
        ("add_task", {"description": "x", "agent": "nobody"}, "not_found"),
        ("add_task", {"description": "  "}, "usage"),
        ("add_task", {"description": "x", "after": ["task_none"]}, "not_found"),
        ("show_task", {"task": "task_none"}, "not_found"),
        ("stop_tasks", {"task": "task_none"}, "not_found"),
        ("pause_work", {"agent": "nobody"}, "not_found"),
    ],
)
async def test_what_does_not_exist_is_said(desk: Desk, tool: str, inputs: dict[str, Any], code: str) -> None:
    """One sentence with the cure, and nothing has changed."""
    result = await desk.call(tool, inputs)
    assert result.error is not None
    assert result.error.code == code
    assert desk.rows(task_queue) == desk.rows(controls) == []


async def test_a_supervisor_that_does_not_come_is_said_and_the_task_is_kept(desk: Desk) -> None:
    """What was asked for is on disk."""

    def fail() -> None:
        raise SupervisorUnavailableError(reason="it does not start", log=desk.workspace)

    desk.app.wake = fail
    added = await desk.output("add_task", {"description": "x"})
    assert "it does not start" in added["message"]
    assert len(desk.rows(task_queue)) == 1


# ── an agent at work ──────────────────────────────────────────────────────────────────────────────────────────────


def _at_work(desk: Desk, depth: int = 0) -> dict[str, Any]:
    task = {
        "task_id": "task-1",
        "description": "d",
        "attempt": 1,
        "trace_id": "trace-1",
        "status": "in_progress",
    }
    insert(desk.app.database, task_queue, **task, context={"delegation_depth": depth}, owner="x")
    insert(desk.app.database, attempts, task_id="task-1", attempt=1, agent_name="forge", owner="x")
    forge = Actor(ActorKind.AGENT, "forge")
    return {
        "actor": forge,
        "task_id": "task-1",
        "attempt": 1,
        "trace_id": "trace-1",
        "worktree_of": desk.workspace,
    }


async def test_an_agent_at_work_does_not_stop_pause_or_resume_anything(desk: Desk) -> None:
    """Looking is free; the controls are for whoever started it."""
    work = _at_work(desk)
    for tool in ("pause_work", "resume_work", "stop_tasks"):
        result = await desk.call(tool, **work)
        assert result.error is not None
        assert result.error.code == "not_yours"
    assert (await desk.output("list_tasks", **work))["tasks"]
    assert desk.rows(controls) == []
    assert [row["status"] for row in desk.rows(task_queue)] == ["in_progress"]


async def test_an_agent_at_work_hands_on_a_little_work_in_its_own_trace(desk: Desk) -> None:
    """As many and as deep as a delegation may be, and no more."""
    work = _at_work(desk)
    for number in range(MAX_DELEGATIONS):
        await desk.output("add_task", {"description": f"part {number}"}, **work)
    refused = await desk.call("add_task", {"description": "one too many"}, **work)
    assert refused.error is not None
    assert "at most" in refused.error.message
    handed = [row for row in desk.rows(task_queue) if row["task_id"] != "task-1"]
    assert {(row["trace_id"], row["created_by"], row["workspace"]) for row in handed} == {
        ("trace-1", "forge", str(desk.workspace))
    }
    assert {row["context"]["delegated_from"] for row in handed} == {"task-1"}


async def test_work_is_not_handed_on_without_end(desk: Desk) -> None:
    """A task at the deepest level hands on nothing."""
    refused = await desk.call("add_task", {"description": "deeper"}, **_at_work(desk, depth=MAX_DELEGATIONS))
    assert refused.error is not None
    assert len(desk.rows(task_queue)) == 1


async def test_careful_asks_before_a_task_is_added(desk: Desk) -> None:
    """They are tools like all others: the profile decides."""
    asked = await desk.call("add_task", {"description": "x"}, profile="careful")
    looked = await desk.call("list_tasks", profile="careful")
    assert asked.waiting
    assert looked.ok
    assert desk.rows(task_queue) == []
