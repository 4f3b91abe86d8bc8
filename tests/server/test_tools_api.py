"""Our own REST: every tool by its name, answers that say everything, and nothing a caller sends is a defect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocol.ids import new_id
from proctor.server.guard import MAX_BODY
from tests.server.conftest import Door


def test_every_tool_has_its_route_and_its_schema(door: Door) -> None:
    """Law 3: list, routes and document are made of the registry, aliases work too."""
    tools = {tool.name: tool for tool in door.app.registry.tools()}
    listed = door.get("/api/tools").json()
    assert [one["name"] for one in listed] == sorted(tools)
    document = door.get("/openapi.json").json()
    for name, tool in tools.items():
        operation = document["paths"][f"/api/tools/{name}"]["post"]
        ref = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert set(
            document["components"]["schemas"][ref]["properties"] if tool.input.model_fields else ()
        ) == set(tool.input.model_fields)
    assert door.get("/api/tools/query_architecture").json()["name"] == "get_architecture_rules"
    assert door.post("/api/tools/query_architecture", {}).json()["tool"] == "get_architecture_rules"


def test_document_refers_only_to_what_it_holds(door: Door) -> None:
    """Every reference of the OpenAPI document leads somewhere, and every operation has a tag."""
    document = door.get("/openapi.json").json()
    wanted: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                wanted.add(node["$ref"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document)
    held = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert wanted <= held
    known = {tag["name"] for tag in document["tags"]}
    for path in document["paths"].values():
        for operation in path.values():
            assert operation["tags"]
            assert set(operation["tags"]) <= known


SEEDS = re.compile(
    r"/api/v1/|/api/agents/(execute|approve|budget|trace|health)|/api/(capabilities|profile$|budgets|approve$|approval/)|/ws/"
)


def test_seed_surfaces_stand_under_compat_and_ours_do_not(door: Door) -> None:
    """Who reads the document sees at once what is ours."""
    for path, operations in door.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            assert (operation["tags"] == ["compat"]) is bool(SEEDS.match(path)), path


def test_call_answers_everything(door: Door) -> None:
    """Output, trace, duration; the call can be looked at later."""
    (door.workspace / "a").write_text("text")
    body = door.post("/api/tools/read_file", {"file_path": "a"}).json()
    assert (body["state"], body["error"], body["output"]["content"]) == ("ended", None, "text")
    row = door.get(f"/api/calls/{body['call_id']}").json()
    assert (row["tool_name"], row["actor"], row["state"]) == ("read_file", "human", "ended")
    assert door.get("/api/calls/none").status_code == 404


def test_waiting_call_is_202_with_location_and_runs_once_when_answered(door: Door) -> None:
    """An agent's call that asks is 202; answered, the same call runs; once more, it is the kept result."""
    path, headers = (
        "/api/tools/write_file?agent=forge&profile=careful",
        {**door.headers, "Idempotency-Key": "k-1"},
    )
    body = {"path": "later", "content": "now"}
    first = door.post(path, body, headers=headers)
    assert first.status_code == 202
    assert door.get(first.headers["Location"]).json()["state"] == "waiting"
    assert not (door.workspace / "later").exists()
    again = door.post(path, body, headers=headers)
    assert (again.status_code, again.headers["Location"]) == (202, first.headers["Location"])
    said = {"approval_id": first.json()["approval_id"], "approved": True}
    assert door.post("/api/agents/approve", said).status_code == 200
    second = door.post(path, body, headers=headers)
    assert (second.status_code, second.json()["replayed"]) == (200, False)
    assert (door.workspace / "later").read_text() == "now"
    (door.workspace / "later").write_text("edited")
    third = door.post(path, body, headers=headers)
    assert (third.status_code, third.json()["replayed"]) == (200, True)
    assert (door.workspace / "later").read_text() == "edited"


def test_waiting_call_without_a_key_goes_on_in_its_trace(door: Door) -> None:
    """A yes to a call that nobody named is not lost: the same request in the trace of the answer runs."""
    path, body = "/api/tools/write_file?agent=forge&profile=careful", {"path": "unnamed", "content": "x"}
    first = door.post(path, body).json()
    door.post("/api/agents/approve", {"approval_id": first["approval_id"], "approved": True})
    assert door.post(f"{path}&trace_id={first['trace_id']}", body).status_code == 200
    assert (door.workspace / "unnamed").read_text() == "x"


def test_refused_answer_is_403(door: Door) -> None:
    """A no stays a no."""
    path, headers = (
        "/api/tools/write_file?agent=forge&profile=careful",
        {**door.headers, "Idempotency-Key": "k-2"},
    )
    first = door.post(path, {"path": "never", "content": ""}, headers=headers)
    door.post("/api/agents/approve", {"approval_id": first.json()["approval_id"], "approved": False})
    second = door.post(path, {"path": "never", "content": ""}, headers=headers)
    assert (second.status_code, second.json()["error"]["code"]) == (403, "approval_rejected")


def test_same_key_for_another_call_is_409(door: Door) -> None:
    """A key belongs to one call."""
    headers = {**door.headers, "Idempotency-Key": "k-3"}
    assert door.post("/api/tools/list_directory", {}, headers=headers).status_code == 200
    other = door.post("/api/tools/list_directory", {"recursive": False}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")


def test_another_workspace_can_be_named(door: Door, tmp_path: Path) -> None:
    """By its absolute path; what is none is refused."""
    (tmp_path / "there").write_text("")
    listed = door.post(f"/api/tools/list_directory?workspace={tmp_path}", {}).json()
    assert [one["path"] for one in listed["output"]["files"]] == ["there"]
    assert door.post("/api/tools/list_directory?workspace=relative", {}).status_code == 400
    assert door.post(f"/api/tools/list_directory?workspace={tmp_path}/none", {}).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/api/tools/read_file", b"{", 422),
        ("POST", "/api/tools/read_file", b"[]", 422),
        ("POST", "/api/tools/read_file", b'"x"', 422),
        ("POST", "/api/tools/read_file", b"", 422),
        ("POST", "/api/tools/read_file", b'{"path": "a", "x": 1}', 422),
        ("POST", "/api/tools/read_file?profile=none", b'{"path": "a"}', 404),
        ("POST", "/api/tools/read_file?hold=-1", b'{"path": "a"}', 422),
        ("POST", "/api/tools/none", b"{}", 405),
        ("GET", "/api/tools/none", b"", 404),
        ("GET", "/nothing/at/all", b"", 404),
        ("DELETE", "/health", b"", 405),
        ("POST", "/api/tools/write_file", b"x" * (MAX_BODY + 1), 413),
    ],
)
def test_wrong_requests_have_a_sentence(
    door: Door, method: str, path: str, content: bytes, status: int
) -> None:
    """Always an error and a hint, never a traceback, whatever is wrong."""
    headers = {**door.headers, "Content-Type": "application/json"}
    answer = door.request(method, path, content=content, headers=headers)
    assert answer.status_code == status
    body = answer.json()
    assert body["error"]
    assert "Traceback" not in answer.text


def test_oversize_without_a_length_is_cut(door: Door) -> None:
    """A body that does not say how long it is ends at the cap as well."""

    def parts() -> Any:
        for _ in range(MAX_BODY // 1_000_000 + 2):
            yield b"x" * 1_000_000

    answer = httpx.post(
        f"{door.http}/api/tools/write_file", content=parts(), headers=door.headers, timeout=60
    )
    assert answer.status_code == 413
    assert door.get("/health").status_code == 200


def test_secrets_in_wrong_inputs_are_not_repeated(door: Door) -> None:
    """What was sent by mistake does not come back in an error."""
    for path in ("/api/tools/read_file", "/api/agents/execute"):
        answer = door.post(path, {"path": {"token": "s3cr3t-value"}, "steps": "s3cr3t-value"})
        assert answer.status_code == 422
        assert "s3cr3t-value" not in answer.text


def test_metrics_count_what_was_written(door: Door) -> None:
    """Prometheus reads events, tasks, questions and connections."""
    door.post("/api/tools/list_directory", {})
    text = door.get("/metrics").text
    for name in (
        "proctor_trace_events_total{",
        "proctor_tasks{",
        "proctor_approvals_pending",
        "proctor_sockets",
    ):
        assert name in text


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
READING = ("read_file", "list_directory", "query_schema", "search_architecture_rules", "command_status")
PATHS = st.sampled_from(
    [
        *(f"/api/tools/{name}" for name in READING),
        "/api/v1/solace-orch/file/read",
        "/api/v1/solace-orch/orchestrate/analyze/7",
        "/api/v1/solace-orch/backup/restore",
        "/api/v1/agents/tasks/none/assign",
        "/api/agents/approve",
        "/api/profile",
    ]
)
WORDS = st.sampled_from(
    ["path", "file_path", "keyword", "table_name", "approval_id", "approved", "profile_id"]
)


@settings(max_examples=50)
@given(path=PATHS, body=JSON | st.dictionaries(WORDS, JSON, max_size=3))
def test_no_body_is_a_defect(door: Door, path: str, body: Any) -> None:
    """Whatever is sent, the answer is not 500 and is JSON."""
    answer = door.post(path, body)
    assert answer.status_code < 500
    assert answer.json() is not None


@settings(max_examples=40)
@given(segment=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=70), prefix=st.sampled_from([
    "/api/tools/", "/api/calls/", "/api/agents/trace/", "/api/agents/budget/", "/api/approvals/", "/api/plans/",
    "/api/v1/agents/", "/api/v1/agents/tasks/", "/api/v1/solace-orch/orchestrate/request/",
]))  # fmt: skip
def test_no_name_in_a_path_is_a_defect(door: Door, prefix: str, segment: str) -> None:
    """Whatever stands in an address, the answer is not 500."""
    answer = door.get(prefix + quote(segment, safe=""))
    assert answer.status_code < 500


def test_identifiers_differ(door: Door) -> None:
    """Two calls without a key are two calls."""
    ids = {door.post("/api/tools/list_directory", {}).json()["call_id"] for _ in range(2)}
    assert len(ids) == 2
    assert new_id("x") not in ids
