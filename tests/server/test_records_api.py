"""What was done, over REST: traces, calls, plans, costs, backups and grants, paged and capped."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from proctor.protocol.events import Draft
from proctor.protocol.ids import new_id
from tests.server.conftest import Door


def test_traces_and_their_events_are_paged(door: Door) -> None:
    """The newest trace first, each once; events in order, after a place; the unknown is 404."""
    mine = [new_id("trace") for _ in range(5)]
    for trace in mine:
        door.app.writer.append([Draft(trace, "note", details={"n": n}) for n in range(5)])
    seen: list[str] = []
    page = door.get("/api/traces?limit=2").json()
    while True:
        seen += [one["trace_id"] for one in page["items"]]
        if page["next"] is None:
            break
        page = door.get(f"/api/traces?limit=2&after={page['next']}").json()
    assert [one for one in seen if one in mine] == mine[::-1]
    assert len(seen) == len(set(seen))
    first = door.get(f"/api/traces/{mine[0]}?limit=3").json()
    rest = door.get(f"/api/traces/{mine[0]}?limit=3&after={first['next']}").json()
    assert [one["details"]["n"] for one in (*first["items"], *rest["items"])] == [0, 1, 2, 3, 4]
    assert rest["next"] is None
    assert door.get("/api/traces/none").status_code == 404
    assert door.get("/api/traces?after=none").status_code == 404


def test_calls_are_listed_and_filtered(door: Door) -> None:
    """By tool, state and trace; pages meet each once."""
    trace = new_id("trace")
    for _ in range(3):
        door.post(f"/api/tools/list_directory?trace_id={trace}", {})
    door.post(f"/api/tools/read_file?trace_id={trace}", {"path": "none"})
    one = door.get(f"/api/calls?trace_id={trace}&tool=list_directory&limit=2").json()
    two = door.get(f"/api/calls?trace_id={trace}&tool=list_directory&limit=2&after={one['next']}").json()
    found = [*one["items"], *two["items"]]
    assert len({row["call_id"] for row in found}) == len(found) == 3
    assert two["next"] is None
    assert door.get(f"/api/calls?trace_id={trace}&state=waiting").json()["items"] == []


def test_plans_are_listed_and_a_parked_one_is_cancelled(door: Door) -> None:
    """A plan that waits for a person is in the list, and can be given up."""
    steps = [{"tool": "write_file", "input": {"path": "p", "content": ""}}]
    made = door.post("/api/agents/execute", {"goal": "g", "steps": steps})
    assert made.status_code == 202
    name = made.headers["Location"].rpartition("/")[2]
    assert name in {one["plan_id"] for one in door.get("/api/plans").json()["items"]}
    assert door.post(f"/api/plans/{name}/resume").json()["plan_id"] == name
    assert door.post(f"/api/plans/{name}/cancel").json()["stage"] == "cancelled"
    assert door.post("/api/plans/none/cancel").status_code == 404


def test_costs_are_listed_and_one_is_told_in_full(door: Door) -> None:
    """By session, task and day; a session without calls is 404."""
    trace = new_id("trace")
    door.post(f"/api/tools/list_directory?trace_id={trace}", {})
    assert trace in {row["id"] for row in door.get("/api/cost?limit=500").json()}
    assert door.get("/api/cost?by=day").json()
    assert door.get("/api/cost?by=year").status_code == 422
    assert door.get(f"/api/cost/{trace}").json()["by_tool"]["list_directory"]["used"] == 1
    assert door.get("/api/cost/none").status_code == 404


def test_backups_are_listed(door: Door, tmp_path: Path) -> None:
    """With what one needs to bring one back; those of another workspace stay out."""
    made = door.post(
        "/api/tools/create_backup", {"workspace_path": str(door.workspace), "reason": "why"}
    ).json()
    listed = door.get(f"/api/backups?workspace={quote(str(door.workspace))}").json()
    assert listed["truncated"] is False
    assert made["output"]["backup_path"] in {one["backup_path"] for one in listed["items"]}
    assert door.get(f"/api/backups?workspace={quote(str(tmp_path))}").json()["items"] == []
    assert door.get("/api/backups?limit=1").json()["items"]
    assert door.get("/api/backups?workspace=relative").status_code == 400


def test_grants_are_shown_and_taken_back_by_a_person(door: Door, open_door: Door) -> None:
    """A grant given with an answer is a line; taking it back needs the token, also under `--auth none`."""
    path = "/api/tools/write_file?agent=forge&profile=careful"
    asked = door.post(path, {"path": "g", "content": ""}).json()
    done = door.post(f"/api/approvals/{asked['approval_id']}", {"approved": True, "grant": "always"}).json()
    (grant,) = [one for one in door.get("/api/grants").json() if one["grant_id"] in str(done["grants"])]
    assert grant["line"]
    revoked = door.post(f"/api/grants/{grant['grant_id']}/revoke")
    assert revoked.json()["line"] == grant["line"]
    assert grant["grant_id"] not in {one["grant_id"] for one in door.get("/api/grants").json()}
    assert door.post(f"/api/grants/{grant['grant_id']}/revoke").status_code == 404
    assert open_door.post("/api/grants/x/revoke", headers={}).status_code == 401
