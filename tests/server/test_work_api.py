"""Our own words for work: tasks, agents, controls and the overview, paged and capped."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.conftest import Door


def _add(door: Door, **more: Any) -> dict[str, Any]:
    answer = door.post("/api/tasks", {"description": "mend it", **more})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == f"/api/tasks/{found['task_id']}"
    return found


def test_task_is_added_shown_cancelled_and_tried_again(door: Door) -> None:
    """Each step is a row and an event by the human, and whoever executes is told."""
    woken = len(door.woken)
    made = _add(door, agent="forge", priority=9, files=["a.py"], context={"k": 1}, retries=0)
    assert (made["agent"], made["status"], made["note"]) == ("FORGE", "pending", None)
    assert len(door.woken) == woken + 1
    whole = door.get(f"/api/tasks/{made['task_id']}").json()
    assert (whole["attempts"], whole["history"], whole["max_retries"]) == ([], [], 0)
    cancelled = door.post(f"/api/tasks/{made['task_id']}/cancel").json()
    assert cancelled["status"] == "cancelled"
    again = door.post(f"/api/tasks/{made['task_id']}/retry").json()
    assert again["status"] == "pending"
    told = [event.event for event in door.front.hub.read(0, made["trace_id"])]
    assert told == ["task_added", "task_cancelled", "task_retried"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"description": "x", "priority": 0}, 422),
        ({"description": "x", "unknown": 1}, 422),
        ({"description": " "}, 400),
        ({"description": "x", "agent": "nobody"}, 404),
        ({"description": "x", "depends_on": ["task_none"]}, 404),
        ({"description": "x", "deadline": "2027-01-01T00:00:00"}, 400),
    ],
)
def test_wrong_tasks_are_refused(door: Door, body: Any, status: int) -> None:
    """Each with a sentence."""
    answer = door.post("/api/tasks", body)
    assert (answer.status_code, bool(answer.json()["error"])) == (status, True)


def test_pages_hold_every_task_once(door: Door) -> None:
    """Walking by `next` meets all of them, the newest first, also while new ones come."""
    mine = {_add(door, type="paged")["task_id"] for _ in range(7)}
    seen: list[str] = []
    after = ""
    while True:
        page = door.get(f"/api/tasks?limit=3{after}").json()
        assert len(page["items"]) <= 3
        seen += [one["task_id"] for one in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
        _add(door)
    assert len(seen) == len(set(seen))
    assert mine <= set(seen)
    assert door.get("/api/tasks?after=task_none").status_code == 404
    assert door.get("/api/tasks?limit=501").status_code == 422


def test_tasks_are_filtered(door: Door, tmp_path: Path) -> None:
    """By status, agent and workspace; another workspace is named by its path."""
    elsewhere = door.post(f"/api/tasks?workspace={quote(str(tmp_path))}", {"description": "there"}).json()
    assert elsewhere["workspace"] == str(tmp_path)
    found = door.get(f"/api/tasks?workspace={quote(str(tmp_path))}").json()["items"]
    assert [one["task_id"] for one in found] == [elsewhere["task_id"]]
    gone = _add(door, agent="sentinel")["task_id"]
    door.post(f"/api/tasks/{gone}/cancel")
    listed = door.get("/api/tasks?status=cancelled&status=failed&agent=SENTINEL").json()["items"]
    assert [one["task_id"] for one in listed] == [gone]
    assert door.get("/api/tasks?status=lost").status_code == 422


def test_agents_in_our_words(door: Door) -> None:
    """Who can be seen without asking, everybody, and one by name; the seeds' fixed words are no names."""
    shown = {one["name"] for one in door.get("/api/agents").json()}
    everybody = {one["name"] for one in door.get("/api/agents?everybody=true").json()}
    assert shown < everybody
    assert {"SOLACE", "FORGE", "ARCHITECT", "SENTINEL"} <= everybody
    one = door.get("/api/agents/forge").json()
    assert (one["name"], one["online"]) == ("FORGE", False)
    assert one["cure"]
    assert door.get("/api/agents/nobody").status_code == 404
    assert door.get("/api/agents/health").json()["service"] == "agents-coordinator"


def test_pause_and_resume(door: Door) -> None:
    """Everything, one agent or one session; twice does nothing, and the unknown is refused."""
    assert door.get("/api/controls").json() == {"paused": [], "changed": []}
    assert door.post("/api/controls/pause").json() == {"paused": ["all"], "changed": ["all"]}
    assert door.post("/api/controls/pause", {}).json() == {"paused": ["all"], "changed": []}
    assert door.get("/api/overview").json()["paused"]["total"] == 1
    assert door.post("/api/controls/resume").json() == {"paused": [], "changed": ["all"]}
    assert door.post("/api/controls/pause", {"agent": "forge"}).json()["paused"] == ["agent:FORGE"]
    assert door.post("/api/controls/resume", {"agent": "FORGE"}).json()["paused"] == []
    assert door.post("/api/controls/pause", {"session": "none"}).status_code == 404
    assert door.post("/api/controls/pause", {"agent": "nobody"}).status_code == 404


def test_overview_says_what_needs_a_person(door: Door) -> None:
    """Lists are cut and say how many there are."""
    asked = door.post(
        "/api/tools/write_file?agent=forge&profile=careful", {"path": "q", "content": ""}
    ).json()
    seen = door.get("/api/overview?limit=1").json()
    assert seen["approvals"]["rows"][0]["approval_id"] == asked["approval_id"]
    assert set(seen["approvals"]) == {"rows", "total", "truncated"}
    assert seen["workspace"] == str(door.workspace)
    assert {"running", "waiting", "finished", "executors", "nobody_executes"} <= set(seen)
