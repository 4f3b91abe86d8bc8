"""Seed 002's REST and the approvals: exact bodies, computed from what really happened."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from proctor.protocol.ids import new_id
from tests.server.conftest import Door


def _plan(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"plan_id": new_id("plan"), "goal": "try it", "steps": list(steps), **more}


READ = {"tool": "list_directory", "input": {"path": "."}, "metadata": {"domain": "filesystem"}}
WRITE = {"tool": "write_file", "input": {"path": "made", "content": "x"}, "reason": "because"}


def test_execute_runs_a_plan_and_tells_all_of_it(door: Door) -> None:
    """A two-step plan under technical: success, its trace, its signals, its budget."""
    answer = door.post("/api/agents/execute", _plan(READ, READ, profile="technical"))
    body = answer.json()
    assert answer.status_code == 200
    assert list(body) == ["status", "result", "error", "trace", "signals", "budget", "trace_id"]
    assert (body["status"], body["error"]) == ("success", None)
    seed = [event["event"] for event in body["trace"] if event["kind"] == "canonical"]
    assert seed == ["plan_created", *["tool_call_start", "tool_call_complete"] * 2]
    assert body["signals"]["success_rate"] == 1.0
    assert body["budget"]["total"]["used"] == 2
    assert len(body["result"]["results"]) == 2


def test_execute_parks_until_the_human_answers_and_then_goes_on(door: Door) -> None:
    """Under enterprise a write waits: 202 with a location, nothing written; after the yes the same plan writes once."""
    plan = _plan(WRITE, profile="enterprise")
    first = door.post("/api/agents/execute", plan)
    assert first.status_code == 202
    assert first.json()["status"] == "partial"
    assert not (door.workspace / "made").exists()
    shown = door.get(first.headers["Location"]).json()
    assert shown["parked"]
    body = {"approval_id": shown["approval_id"], "approved": True, "reason": "fine"}
    answered = door.post("/api/agents/approve", body)
    assert (answered.status_code, answered.json()) == (
        200,
        {"status": "approved", "approval_id": shown["approval_id"]},
    )
    again = door.post("/api/agents/execute", plan)
    assert (again.status_code, again.json()["status"]) == (200, "success")
    assert (door.workspace / "made").read_text() == "x"
    result = again.json()["result"]
    assert (result["approvals_required"], result["approvals_received"]) == (1, 1)


def test_another_plan_under_a_taken_id_is_a_conflict(door: Door) -> None:
    """It is not forbidden, it does not fit what is there: 409."""
    plan = _plan(READ, profile="technical")
    door.post("/api/agents/execute", plan)
    other = door.post("/api/agents/execute", {**plan, "goal": "another"})
    assert (other.status_code, other.json()["code"]) == (409, "plan_conflict")


def _ended(door: Door, place: str) -> dict[str, Any]:
    """The plan at this place, once it has ended."""
    deadline = time.monotonic() + 60
    while True:
        found: dict[str, Any] = door.get(place).json()
        if found["stage"] in {"completed", "failed", "cancelled"}:
            return found
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_answer_alone_brings_a_parked_plan_to_its_end(door: Door) -> None:
    """Who was told 202 and looks at the location sees it end; nobody has to send the plan again."""
    write = {"tool": "write_file", "input": {"path": "alone", "content": "x"}}
    first = door.post("/api/agents/execute", _plan(write))
    question = door.get(first.headers["Location"]).json()["approval_id"]
    door.post("/api/agents/approve", {"approval_id": question, "approved": True})
    assert _ended(door, first.headers["Location"])["success"]
    assert (door.workspace / "alone").read_text() == "x"


def test_plan_that_is_held_ends_in_the_same_request_when_it_is_answered(door: Door) -> None:
    """With `hold` the request waits for the person, and gives the end of it."""
    plan = _plan({"tool": "write_file", "input": {"path": "held", "content": "x"}})

    def answer() -> None:
        deadline = time.monotonic() + 60
        while not (
            found := [one for one in door.get("/api/approvals").json() if one["task_id"] == plan["plan_id"]]
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        door.post(f"/api/approvals/{found[0]['approval_id']}", {"approved": True})

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer)
        ended = door.post("/api/agents/execute?hold=20", plan)
        answering.result(60)
    assert (ended.status_code, ended.json()["status"]) == (200, "success")


def test_plan_waits_while_work_is_paused(door: Door) -> None:
    """A pause lets nothing new begin, whichever door it comes by: that is said at once, and the plan begins afterwards."""
    door.post("/api/controls/pause")
    try:
        answer = door.post("/api/agents/execute", _plan(READ, profile="technical"))
    finally:
        door.post("/api/controls/resume")
    assert (answer.status_code, answer.json()["status"]) == (202, "partial")
    assert "paused" in answer.json()["error"]
    assert _ended(door, answer.headers["Location"])["success"]


def test_execute_stops_on_its_own_budget(door: Door) -> None:
    """A budget of one call lets one of two steps run, and says why the other did not."""
    plan = _plan(READ, READ, profile="technical", budget={"total_calls": 1})
    body = door.post("/api/agents/execute", plan).json()
    assert body["status"] == "partial"
    assert body["result"]["failure_context"]["reason"] == "budget_exceeded:total"


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"steps": [{}]},
        {"steps": [{"tool": ""}]},
        {"steps": "x"},
        {"budget": {"total_calls": -1}},
        {"budget": {"warning_threshold": 2}},
        {"goal": "\0"},
        {"profile": "no such"},
        {"plan_id": "\n"},
        {"steps": [{"tool": "x", "metadata": {"side_effect_class": "fly"}}]},
    ],
    ids=str,
)
def test_odd_plans_are_answered(door: Door, body: Any) -> None:
    """Whatever is sent is a result or one sentence, never a defect; an empty plan says that it was empty."""
    answer = door.post("/api/agents/execute", body)
    assert answer.status_code in {200, 400, 404, 422}
    if answer.status_code == 200:
        assert answer.json()["result"]["notes"]
    else:
        assert answer.json()["error"]


# ── approvals ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _asked(door: Door, path: str = "asked") -> str:
    """Let an agent ask for something."""
    answer = door.post(
        "/api/tools/write_file?agent=forge&profile=careful",
        {"path": path, "content": "y"},
        headers={**door.headers, "Idempotency-Key": new_id("key")},
    )
    assert answer.status_code == 202
    return str(answer.json()["approval_id"])


@pytest.mark.parametrize(
    ("path", "name"), [("/api/agents/approve", "approval_id"), ("/api/approve", "request_id")]
)
@pytest.mark.parametrize("approved", [True, False])
def test_each_address_of_the_answer_works(door: Door, path: str, name: str, approved: bool) -> None:
    """Bug 33: the UI's own address exists, with its own words; the answer is real."""
    approval = _asked(door, new_id("f"))
    said = door.post(path, {name: approval, "approved": approved, "feedback": "so"})
    assert said.json() == {"status": "approved" if approved else "denied", "approval_id": approval}
    row = door.get(f"/api/approvals/{approval}").json()
    assert (row["status"], row["answer_reason"]) == ("approved" if approved else "rejected", "so")
    again = door.post(path, {name: approval, "approved": approved})
    assert again.status_code == 400


def test_approval_by_path(door: Door) -> None:
    """Seed 002's third address."""
    one, other = _asked(door, new_id("f")), _asked(door, new_id("f"))
    assert door.post(f"/api/approval/{one}/approve").json()["status"] == "approved"
    assert door.post(f"/api/approval/{other}/reject", {"reason": "no"}).json()["status"] == "denied"


def test_looking_does_not_answer(door: Door) -> None:
    """A GET shows the question with what it would do; hashes stay inside."""
    approval = _asked(door, new_id("f"))
    listed = door.get("/api/approvals").json()
    found = next(row for row in listed if row["approval_id"] == approval)
    assert found["risk_level"] in {"low", "medium", "high"}
    assert found["consequences"]
    assert "bound_to" not in found
    assert door.get(f"/api/approvals/{approval}").json()["status"] == "pending"
    assert door.get("/api/approvals/none").status_code == 404


def test_answers_need_the_token_even_without_auth(open_door: Door) -> None:
    """`--auth none` does not make every program of the machine a human: 401 names the token file."""
    asked = httpx.post(
        f"{open_door.http}/api/tools/write_file?agent=forge&profile=careful",
        json={"path": "a", "content": ""},
    ).json()["approval_id"]
    for path in ("/api/agents/approve", "/api/approve", f"/api/approval/{asked}/approve"):
        body = {"approval_id": asked, "request_id": asked, "approved": True}
        answer = httpx.post(open_door.http + path, json=body)
        assert answer.status_code == 401
        assert str(open_door.app.settings.paths.token_file) in answer.json()["hint"]
        wrong = httpx.post(open_door.http + path, json=body, headers={"Authorization": "Bearer no"})
        assert wrong.status_code == 401
    assert open_door.get(f"/api/approvals/{asked}").json()["status"] == "pending"
    yes = open_door.post("/api/agents/approve", {"approval_id": asked, "approved": True})
    assert yes.json()["status"] == "approved"


# ── budgets, traces, capabilities, profiles ───────────────────────────────────────────────────────────────────────


def test_budget(door: Door) -> None:
    """The seed's body from what was really used, 404 for a profile nobody knows, null where nothing limits."""
    ran = door.post("/api/agents/execute", _plan(READ, profile="smb")).json()
    body = door.get(f"/api/agents/budget/smb?run={ran['trace_id']}").json()
    seed = [
        "profile",
        "total_calls",
        "used_calls",
        "remaining_calls",
        "utilization",
        "warning",
        "by_domain",
        "by_tool",
    ]
    assert list(body)[:8] == seed
    assert (body["total_calls"], body["used_calls"], body["remaining_calls"]) == (100, 1, 99)
    assert (body["utilization"], body["warning"]) == (0.01, False)
    assert body["by_domain"]["filesystem"]["used"] == 1
    assert body["by_domain"]["engagement"]["limit"] == 30
    assert door.get("/api/agents/budget/smb").json()["used_calls"] >= 1
    free = door.get("/api/agents/budget/standard").json()
    assert (free["total_calls"], free["remaining_calls"], free["utilization"]) == (None, None, 0.0)
    assert door.get("/api/agents/budget/nobody").status_code == 404


def test_budget_warns_at_80_percent(door: Door) -> None:
    """Four of five calls are a warning."""
    steps = [READ] * 4
    ran = door.post(
        "/api/agents/execute", _plan(*steps, profile="technical", budget={"total_calls": 5})
    ).json()
    assert ran["budget"]["total"]["percentage"] == 80.0
    assert "budget_warning" in {event["event"] for event in ran["trace"]}


def test_trace(door: Door) -> None:
    """A trace's events carry the seed's fields; one that is not there is 404."""
    ran = door.post("/api/agents/execute", _plan(READ, profile="technical")).json()
    body = door.get(f"/api/agents/trace/{ran['trace_id']}").json()
    assert list(body) == ["trace_id", "events", "signals", "duration_ms"]
    assert {"event", "trace_id", "timestamp", "details", "status", "tool_name", "duration_ms"} <= set(
        body["events"][0]
    )
    moment = datetime.fromisoformat(body["events"][0]["timestamp"])
    assert abs(datetime.now(UTC) - moment) < timedelta(hours=1)
    assert door.get("/api/agents/trace/none").status_code == 404


def test_bug_31_capability_and_profile_routes_exist(door: Door) -> None:
    """Bug 31: every route of the module that did not compile answers, without a doubled prefix."""
    health = door.get("/api/agents/health").json()
    assert (health["status"], health["service"]) == ("healthy", "agents-coordinator")
    assert {"enterprise", "smb", "technical"} <= set(health["profiles"])
    status = door.get("/api/capabilities/status").json()
    names = {"name", "domain", "status", "adapter", "mode", "message", "side_effect_class"}
    assert all(set(one) == names for one in status)
    assert {one["name"] for one in status} == {tool.name for tool in door.app.registry.tools()}
    profiles = door.get("/api/capabilities/profiles").json()
    technical = next(one for one in profiles if one["name"] == "technical")
    assert technical["allowed_adapters"] == ["mock"]
    assert technical["budget"]["total_calls"] == 500
    assert {one["profile"] for one in door.get("/api/capabilities/budgets").json()} >= set(health["profiles"])
    paths = door.get("/openapi.json").json()["paths"]
    assert not any(path.startswith("/api/api") for path in paths)


def test_profile_can_be_chosen_under_either_name(open_door: Door) -> None:
    """`profile_id` and `profile_name` choose; the unknown is 404 and changes nothing; calls then follow it."""
    assert open_door.get("/api/profile").json()["profile_id"] == "standard"
    assert open_door.post("/api/profile", {"profile_id": "smb"}).json()["profile_id"] == "smb"
    assert open_door.post("/api/profile", {"profile_name": "nobody"}).status_code == 404
    assert open_door.get("/api/profile").json()["profile_id"] == "smb"
    rows = open_door.get("/api/budgets").json()
    assert rows[0]["category"] == "total"
    assert all(set(row) == {"category", "used", "limit"} for row in rows)
    assert rows[0]["limit"] == 100
    assert open_door.post("/api/profile", {"profile_name": "standard"}).status_code == 200
