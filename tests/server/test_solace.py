"""The seeds' REST: all fourteen functions at their paths, with their bodies and statuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from proctor.server.solace import PREFIX, ROUTES
from tests.server.conftest import Door

SEED = {
    "read_file": ("POST", "/file/read"),
    "list_directory": ("POST", "/file/list"),
    "get_architecture_rules": ("GET", "/architecture/rules"),
    "search_architecture_rules": ("POST", "/architecture/search"),
    "create_user_request": ("POST", "/orchestrate/request"),
    "analyze_request": ("POST", "/orchestrate/analyze/{id}"),
    "generate_instructions": ("POST", "/orchestrate/generate/{id}"),
    "get_next_instruction": ("GET", "/orchestrate/next"),
    "scan_repository": ("POST", "/orchestrate/scan"),
    "write_file": ("POST", "/file/write"),
    "create_backup": ("POST", "/backup/create"),
    "execute_command": ("POST", "/command/execute"),
    "restore_from_backup": ("POST", "/backup/restore"),
    "verify_system_running": ("GET", "/system/verify"),
}
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@pytest.fixture
def work(door: Door) -> Path:
    """The workspace, with a file the requests are about."""
    (door.workspace / "login.py").write_text("def login() -> None: ...\n")
    return door.workspace


def _ask(door: Door, method: str, path: str, body: Any = None) -> httpx.Response:
    return door.request(method, PREFIX + path, json=body)


def test_bug_11_all_fourteen_routes_are_there(door: Door) -> None:
    """Bug 11: the table is the seed's, word for word, and the document shows every route under "compat"."""
    assert {row.tool: (row.method, row.path) for row in ROUTES if row.seed} == SEED
    paths = door.get("/openapi.json").json()["paths"]
    for method, path in SEED.values():
        assert paths[PREFIX + path][method.lower()]["tags"] == ["compat"]


def test_files(door: Door, work: Path) -> None:
    """Write, read and list with the origin's bodies."""
    wrote = _ask(door, "POST", "/file/write", {"file_path": "n/a.txt", "content": "hé"})
    assert (wrote.status_code, wrote.json()) == (
        200,
        {"message": "File written successfully", "file_path": "n/a.txt", "size": 3},
    )
    read = _ask(door, "POST", "/file/read", {"file_path": "n/a.txt"}).json()
    assert list(read) == ["file_path", "content", "content_hash", "size_bytes", "last_modified"]
    assert (read["content"], read["size_bytes"], len(read["content_hash"])) == ("hé", 3, 64)
    assert MOMENT.fullmatch(read["last_modified"])
    listed = _ask(door, "POST", "/file/list", {"dir_path": "n"}).json()
    assert list(listed) == ["dir_path", "files", "count"]
    assert [list(one) for one in listed["files"]] == [["name", "is_dir", "size_bytes", "last_modified"]]
    assert (listed["files"][0]["name"], listed["files"][0]["is_dir"], listed["count"]) == ("a.txt", False, 1)
    assert (work / "n/a.txt").read_text() == "hé"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/file/read", {"file_path": "no such"}, 404),
        ("/file/read", {"file_path": "/etc/passwd"}, 403),
        ("/file/read", {"file_path": "../x"}, 403),
        ("/file/write", {"file_path": "../x", "content": ""}, 403),
        ("/file/read", {}, 400),
        ("/file/write", {"file_path": "a"}, 400),
        ("/command/execute", {}, 400),
        ("/backup/restore", {"backup_timestamp": "1999-01-01_000000"}, 404),
        ("/orchestrate/analyze/99999", None, 404),
        ("/orchestrate/analyze/x", None, 422),
        ("/file/read", ["a"], 422),
        ("/file/read", {"file_path": 7}, 422),
    ],
)
def test_what_is_wrong_is_said(door: Door, work: Path, path: str, body: Any, status: int) -> None:
    """Outside is 403, missing is 404, a wrong request says what is wrong: always `{error, hint, code}`."""
    answer = _ask(door, "POST", path, body)
    assert (answer.status_code, set(answer.json())) == (status, {"error", "hint", "code"})
    assert answer.json()["error"]


def test_bug_13_empty_content_and_empty_lists(door: Door, work: Path) -> None:
    """Bug 13: empty content is written, an empty directory lists as [] and no rules are []."""
    assert _ask(door, "POST", "/file/write", {"file_path": "void", "content": ""}).json()["size"] == 0
    (work / "hollow").mkdir(exist_ok=True)
    assert _ask(door, "POST", "/file/list", {"dir_path": "hollow"}).json()["files"] == []
    none = _ask(door, "POST", "/architecture/search", {"keyword": "qqqq"}).json()
    assert none == {"rules": [], "count": 0, "keyword": "qqqq"}


def test_architecture(door: Door) -> None:
    """All rules with all columns, one type, and a search whatever the case."""
    whole = _ask(door, "GET", "/architecture/rules").json()
    assert list(whole) == ["rules", "count"]
    assert whole["count"] == len(whole["rules"]) >= 3
    found = _ask(door, "POST", "/architecture/search", {"keyword": "TRADING"}).json()
    assert "trading_api_endpoint" in {rule["feature_type"] for rule in found["rules"]}
    assert _ask(door, "GET", "/architecture/rules/health_monitoring").json()["count"] == 1


def test_bug_11_request_to_instruction(door: Door, work: Path) -> None:
    """Bug 11: a request is 201 and works through analysis, instructions and the next one, to its end."""
    scanned = _ask(door, "POST", "/orchestrate/scan").json()
    assert list(scanned) == ["message", "status"]
    assert scanned["status"] == "complete"
    made = _ask(door, "POST", "/orchestrate/request", {"request_text": "Fix the bug in login.py"})
    assert made.status_code == 201
    row = made.json()
    assert row["status"] == "analyzing"
    assert {"id", "request_text", "architecture_rules_used", "files_affected", "created_at"} <= set(row)
    early = _ask(door, "POST", f"/orchestrate/generate/{row['id']}")
    assert early.status_code in {400, 403, 409}
    analysed = _ask(door, "POST", f"/orchestrate/analyze/{row['id']}").json()
    assert (list(analysed), analysed["status"]) == (["message", "request_id", "status"], "planned")
    made = _ask(door, "POST", f"/orchestrate/generate/{row['id']}")
    generated = made.json()
    assert list(generated) == ["message", "request_id", "instructions", "count", "status"]
    assert (generated["status"], generated["count"]) == ("executing", len(generated["instructions"]))
    following = _ask(door, "GET", "/orchestrate/next").json()
    assert list(following) == ["has_next", "instruction"]
    assert following["instruction"]["status"] == "in_progress"
    one = following["instruction"]["id"]
    done = _ask(door, "PUT", f"/orchestrate/instruction/{one}", {"status": "completed"})
    assert done.json()["instruction"]["status"] == "completed"
    listed = _ask(door, "GET", f"/orchestrate/request/{row['id']}/instructions").json()
    assert list(listed) == ["parent_task_id", "instructions", "count"]
    assert _ask(door, "GET", f"/orchestrate/request/{row['id']}").json()["id"] == row["id"]
    while following["has_next"]:
        following = _ask(door, "GET", "/orchestrate/next").json()
    assert list(following) == ["has_next", "message"]


def test_backup_and_restore(door: Door, work: Path) -> None:
    """A backup by reason gives a timestamp; restoring by it really brings the file back."""
    (work / "keep").write_text("one")
    made = _ask(door, "POST", "/backup/create", {"reason": "before the change"}).json()
    assert list(made) == ["message", "timestamp", "path", "reason"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d{6}(_\d+)?", made["timestamp"])
    assert made["reason"] == "before the change"
    (work / "keep").write_text("two")
    done = _ask(door, "POST", "/backup/restore", {"backup_timestamp": made["timestamp"]}).json()
    assert done == {"message": "Backup restored successfully", "timestamp": made["timestamp"]}
    assert (work / "keep").read_text() == "one"


def test_command(door: Door, work: Path) -> None:
    """Output, exit code and success, in the directory that was named."""
    (work / "in").mkdir(exist_ok=True)
    body = {"command": "basename $PWD; exit 4", "working_directory": "in"}
    assert _ask(door, "POST", "/command/execute", body).json() == {
        "command": "basename $PWD; exit 4",
        "output": "in\n",
        "exit_code": 4,
        "success": False,
    }


def test_system(door: Door) -> None:
    """The system says that it runs."""
    found = _ask(door, "GET", "/system/verify").json()
    assert list(found) == ["status", "message", "timestamp"]
    assert found["status"] == "running"
