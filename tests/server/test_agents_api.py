"""The seeds' agent API: agents and tasks in the seeds' words, from facts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from proctor.store.tables import attempts
from tests.server.conftest import Door

BASE = "/api/v1/agents"
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def _add(door: Door, **more: Any) -> dict[str, Any]:
    answer = door.post(f"{BASE}/tasks", {"task_type": "debug", "description": "find it", **more})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_agents_are_a_plain_list_of_facts(door: Door) -> None:
    """The four of the seeds are there; without a key each is offline with the cure, and nothing is invented."""
    listed = door.get(BASE).json()
    assert isinstance(listed, list)
    solace = next(one for one in listed if one["agent_name"] == "SOLACE")
    assert (solace["agent_type"], solace["status"], solace["current_task_id"]) == ("openai", "offline", None)
    assert "OPENAI_API_KEY" in solace["message"]
    assert (solace["total_tasks_completed"], solace["success_rate"]) == (0, None)
    assert {"FORGE", "ARCHITECT", "SENTINEL"} <= {one["agent_name"] for one in listed}


def test_one_agent_and_its_performance(door: Door) -> None:
    """By name, whatever its case; 404 for one that is not there."""
    assert door.get(f"{BASE}/forge").json()["agent_name"] == "FORGE"
    done = door.get(f"{BASE}/FORGE/performance").json()
    assert done["total_attempts"] == 0
    assert door.get(f"{BASE}/nobody").status_code == 404


def test_task_is_added_shown_and_wakes_the_executor(door: Door) -> None:
    """A task is on disk when it is answered; without SOLACE whoever fits gets it, and the answer says so."""
    before = len(door.woken)
    made = _add(door, priority=9, file_paths=["a.py"], context={"k": [1]})
    assert made["assigned_to"] is None
    assert "SOLACE cannot work" in made["message"]
    assert len(door.woken) == before + 1
    row = door.get(f"{BASE}/tasks/{made['task_id']}").json()
    assert (row["priority"], row["file_paths"], row["context"], row["status"]) == (
        9,
        ["a.py"],
        {"k": [1]},
        "pending",
    )
    assert (row["depends_on_task_ids"], row["created_by"]) == ([], door.front.user)
    assert made["task_id"] in {one["task_id"] for one in door.get(f"{BASE}/tasks/pending").json()}


def test_task_for_a_named_agent_that_depends_on_another(door: Door) -> None:
    """The named agent is kept; a dependency must exist."""
    first = _add(door)["task_id"]
    second = _add(door, agent_name="forge", depends_on_task_ids=[first])
    assert second["assigned_to"] == "FORGE"
    assert door.get(f"{BASE}/tasks/{second['task_id']}").json()["depends_on_task_ids"] == [first]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"task_type": "x"}, 422),
        ({"description": "x"}, 422),
        ({"task_type": "x", "description": "  "}, 400),
        ({"task_type": "x", "description": "y", "priority": 11}, 400),
        ({"task_type": "x", "description": "y", "deadline": "2027-01-01T00:00:00"}, 400),
        ({"task_type": "x", "description": "y", "deadline": "soon"}, 422),
        ({"task_type": "x", "description": "y", "agent_name": "nobody"}, 404),
        ({"task_type": "x", "description": "y", "depends_on_task_ids": ["task_none"]}, 404),
        ([], 422),
    ],
)
def test_wrong_tasks_are_refused(door: Door, body: Any, status: int) -> None:
    """Each with a sentence."""
    answer = door.post(f"{BASE}/tasks", body)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_task_changes_hands(door: Door) -> None:
    """A task that has not begun can be given to another agent; its trace says by whom."""
    task = _add(door)
    answer = door.post(f"{BASE}/tasks/{task['task_id']}/assign", {"agent_name": "sentinel"})
    assert answer.json()["assigned_to"] == "SENTINEL"
    assert door.get(f"{BASE}/tasks/{task['task_id']}").json()["assigned_to_agent"] == "SENTINEL"
    events = door.front.hub.read(0, task["trace_id"])
    assert [(event.event, event.actor.value) for event in events][-1] == ("task_assigned", "human")
    assert door.post(f"{BASE}/tasks/{task['task_id']}/assign", {"agent_name": "x"}).status_code == 404


@pytest.mark.parametrize("name", ["error_log", "error"])
def test_task_is_given_up(door: Door, name: str) -> None:
    """Under both of the seeds' names for the reason; what has ended stays as it ended."""
    task = _add(door)["task_id"]
    answer = door.post(f"{BASE}/tasks/{task}/fail", {name: "no longer wanted"})
    assert (answer.status_code, answer.json()["status"]) == (200, "failed")
    row = door.get(f"{BASE}/tasks/{task}").json()
    assert (row["status"], row["error_log"]) == ("failed", "no longer wanted")
    assert door.post(f"{BASE}/tasks/{task}/fail", {name: "again"}).status_code == 409
    assert door.post(f"{BASE}/tasks/{task}/assign", {"agent_name": "FORGE"}).status_code == 403


def test_files_of_the_last_scan(door: Door) -> None:
    """Empty before a scan, then what was found, one by its path."""
    assert door.get(f"{BASE}/files").json() == []
    (door.workspace / "seen.py").write_text("x = 1\n")
    door.post("/api/v1/solace-orch/orchestrate/scan")
    assert "seen.py" in {row["file_path"] for row in door.get(f"{BASE}/files").json()}
    assert door.get(f"{BASE}/files/by-path?path=seen.py").json()["line_count"] == 1
    assert door.get(f"{BASE}/files/by-path?path=none").status_code == 404


def test_nobodys_word_completes_a_task(door: Door) -> None:
    """The origin's `/complete` is there and says why not; a task that is gone is 404."""
    task = _add(door)["task_id"]
    answer = door.post(f"{BASE}/tasks/{task}/complete", {"result": "done, I swear"})
    assert (answer.status_code, answer.json()["code"]) == (403, "refused")
    assert door.get(f"{BASE}/tasks/{task}").json()["status"] == "pending"
    assert door.post(f"{BASE}/tasks/none/complete").status_code == 404


def test_builds_are_attempts_that_have_ended(door: Door) -> None:
    """From facts: none yet is an empty list; an ended attempt is a row, an open one is not."""
    assert door.get(f"{BASE}/builds").json() == []
    task = _add(door)["task_id"]
    values = {"task_id": task, "agent_name": "FORGE", "owner": "exec_1", "head_commit": "c" * 40}
    with door.app.database.write() as connection:
        connection.execute(attempts.insert().values(attempt=1, outcome="succeeded", ended_at=NOW, **values))
        connection.execute(attempts.insert().values(attempt=2, **values))
    (row,) = door.get(f"{BASE}/builds").json()
    assert (row["build_id"], row["outcome"], row["head_commit"]) == (f"{task}.1", "succeeded", "c" * 40)
    assert "token_hash" not in row
