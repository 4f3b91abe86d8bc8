"""The seeds' WebSocket: every request's exact frames, on both ports, and nothing a client sends closes it."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocol.tools import Actor
from proctor.server.frames import RequestError, asked
from proctor.server.socket import MAX_MESSAGE
from tests.server.conftest import Door, Socket
from tests.server.test_serve import _running, _until

SOME = {
    "list_directory": {},
    "get_architecture": {"feature_type": "none"},
    "query_schema": {"table_name": "controls"},
}


@pytest.fixture
def both(door: Door, request: pytest.FixtureRequest) -> Any:
    """A socket at `/ws` or on the seeds' port, as the test says."""
    with door.socket(request.param) as made:
        yield made


@pytest.mark.parametrize("both", ["", "/ws"], indirect=True, ids=["pathless", "/ws"])
def test_ping(both: Socket) -> None:
    """`ping` gives `pong` with a moment in ISO 8601, with data, with null and without."""
    for message in ({"type": "ping"}, {"type": "ping", "data": None}, {"type": "ping", "data": {}}):
        frame = both.ask(message)
        assert set(frame) == {"type", "timestamp"}
        assert frame["type"] == "pong"
        assert datetime.fromisoformat(frame["timestamp"]).tzinfo is not None


@pytest.mark.parametrize("both", ["", "/ws"], indirect=True, ids=["pathless", "/ws"])
def test_write_then_read(door: Door, both: Socket) -> None:
    """`write_file` makes parent directories; `read_file` gives back exactly what was written, also outside ASCII."""
    wrote = both.ask({"type": "write_file", "data": {"path": "deep/er/a.txt", "content": "grüße\r\n"}})
    assert wrote == {"type": "write_success", "path": "deep/er/a.txt"}
    assert (door.workspace / "deep/er/a.txt").read_bytes() == "grüße\r\n".encode()
    read = both.ask({"type": "read_file", "data": {"path": "deep/er/a.txt"}})
    assert read == {"type": "file_content", "path": "deep/er/a.txt", "content": "grüße\r\n"}


def test_bug_13_empty_content_is_content(door: Door, line: Socket) -> None:
    """Bug 13: an empty file can be written, and an empty list is a list."""
    assert (
        line.ask({"type": "write_file", "data": {"path": "empty", "content": ""}})["type"] == "write_success"
    )
    assert (door.workspace / "empty").read_bytes() == b""
    (door.workspace / "nothing").mkdir(exist_ok=True)
    listed = line.ask({"type": "list_directory", "data": {"path": "nothing"}})
    assert listed == {"type": "directory_listing", "path": "nothing", "files": [], "count": 0}
    rules = line.ask({"type": "get_architecture", "data": {"feature_type": "no such"}})
    assert rules == {"type": "architecture_rules", "rules": [], "count": 0, "filter": "no such"}


def test_list_directory(door: Door, line: Socket) -> None:
    """Entries have path, type and modified, files also their size; five levels are five; `.` is the default."""
    deep = door.workspace / "tree/1/2/3/4/5/6"
    deep.mkdir(parents=True, exist_ok=True)
    (door.workspace / "tree/f").write_text("abc")
    frame = line.ask({"type": "list_directory", "data": {"path": "tree", "recursive": True, "max_depth": 5}})
    assert set(frame) == {"type", "path", "files", "count"}
    assert [one["path"] for one in frame["files"]] == [
        "tree/1", "tree/1/2", "tree/1/2/3", "tree/1/2/3/4", "tree/1/2/3/4/5", "tree/f",
    ]  # fmt: skip
    assert set(frame["files"][0]) == {"path", "type", "modified"}
    assert {name: frame["files"][-1][name] for name in ("type", "size")} == {"type": "file", "size": 3}
    assert frame["count"] == len(frame["files"])
    assert line.ask({"type": "list_directory"})["path"] == "."


def test_architecture_rules(line: Socket) -> None:
    """The seeds' three rules are there with their columns, and a filter is said back."""
    frame = line.ask({"type": "get_architecture"})
    assert set(frame) == {"type", "rules", "count", "filter"}
    assert {"agent_api_endpoint", "trading_api_endpoint", "health_monitoring"} <= {
        rule["feature_type"] for rule in frame["rules"]
    }
    assert frame["count"] == len(frame["rules"])
    wanted = {"id", "feature_type", "backend_pattern", "frontend_pattern", "integration_points", "created_at"}
    assert wanted <= set(frame["rules"][0])


def test_query_schema(line: Socket) -> None:
    """A table's columns by name; without a name the tables there are."""
    frame = line.ask({"type": "query_schema", "data": {"table_name": "task_queue"}})
    assert set(frame) == {"type", "schema"}
    assert {"task_id", "status", "priority"} <= {column["name"] for column in frame["schema"]["columns"]}
    assert "task_queue" in line.ask({"type": "query_schema"})["schema"]["tables"]
    assert line.ask({"type": "query_schema", "data": {"table_name": "x"}})["type"] == "error"


def test_backup_and_restore(door: Door, line: Socket) -> None:
    """A backup is named after workspace and moment; restoring it really brings the file back, and `.git` stays."""
    (door.workspace / "kept.txt").write_text("before")
    made = line.ask({"type": "create_backup", "data": {"workspace_path": str(door.workspace)}})
    assert set(made) == {"type", "backup_path"}
    assert re.search(r"/work_\d{8}_\d{6}(_\d+)?$", made["backup_path"])
    (door.workspace / "kept.txt").write_text("after")
    data = {"backup_path": made["backup_path"], "workspace_path": str(door.workspace)}
    assert line.ask({"type": "restore_backup", "data": data}) == {"type": "restore_complete"}
    assert (door.workspace / "kept.txt").read_text() == "before"
    assert (door.workspace / ".git").is_dir()


def test_execute_command(door: Door, line: Socket) -> None:
    """Both streams and the exit code, in the directory that was named."""
    (door.workspace / "sub").mkdir(exist_ok=True)
    data = {"command": "pwd; echo oops >&2; exit 3", "cwd": "sub"}
    frame = line.ask({"type": "execute_command", "data": data})
    assert frame["type"] == "command_output"
    assert frame["stdout"].strip().endswith("sub")
    assert (frame["stderr"].strip(), frame["exit_code"]) == ("oops", 3)
    assert set(frame) <= {"type", "stdout", "stderr", "exit_code", "notes"}


def test_chat_says_what_is_missing(line: Socket) -> None:
    """Without a model to ask the answer is an error that names the key, whichever level the message stands at."""
    for message in ({"type": "chat", "message": "hi"}, {"type": "chat", "data": {"message": "hi"}}):
        frame = line.ask(message)
        assert frame["type"] == "error"
        assert "OPENAI_API_KEY" in frame["message"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"type": "read_file"}, "Missing file path"),
        ({"type": "read_file", "data": {"path": None}}, "Missing file path"),
        ({"type": "read_file", "data": {"path": ""}}, "Missing file path"),
        ({"type": "write_file", "data": {"path": "a"}}, "Missing path or content"),
        ({"type": "write_file", "data": {"content": "a"}}, "Missing path or content"),
        ({"type": "create_backup", "data": {}}, "Missing workspace_path"),
        ({"type": "restore_backup", "data": {"backup_path": "x"}}, "Missing backup_path or workspace_path"),
        ({"type": "execute_command", "data": None}, "Missing command"),
        ({"type": "execute_command", "data": {"command": ""}}, "Missing command"),
        ({"type": "chat"}, "Missing message"),
        ({"type": "fly"}, "Unknown message type: fly"),
        ({"type": "read_file", "data": {"path": "gone"}}, "File not found: gone"),
        ({"type": 7}, "Missing type"),
        ({}, "Missing type"),
        ("[1]", "A message is a JSON object with a type."),
        ("null", "A message is a JSON object with a type."),
        ({"type": "read_file", "data": ["a"]}, "data must be an object"),
        (b"{}", "Send JSON as text, not as bytes"),
    ],
)
def test_bug_17_bad_messages_are_answered_and_the_socket_stays(line: Socket, message: Any, text: str) -> None:
    """Bug 17: null, arrays, missing and wrong fields get the seeds' sentences; the next request works."""
    assert line.ask(message) == {"type": "error", "message": text}
    assert line.ask({"type": "ping"})["type"] == "pong"


@pytest.mark.parametrize("text", ["{", "", "{'a': 1}", "nul", "[" * 5000, '{"a": "\\ud800"}'])
def test_bad_json_is_answered(line: Socket, text: str) -> None:
    """Anything that is not JSON is said to be so."""
    assert line.ask(text)["message"].startswith(("Invalid JSON: ", "Missing type"))
    assert line.ask({"type": "ping"})["type"] == "pong"


def test_bug_18_oversize_is_answered_and_the_socket_stays(line: Socket) -> None:
    """Bug 18: a message that is too long gets a sentence; one of several megabytes is simply taken."""
    frame = line.ask(json.dumps({"type": "ping", "data": "x" * MAX_MESSAGE}))
    assert frame["type"] == "error"
    assert str(MAX_MESSAGE) in frame["message"]
    big = "y" * 3_000_000
    assert (
        line.ask({"type": "write_file", "data": {"path": "big", "content": big}})["type"] == "write_success"
    )
    read = line.ask({"type": "read_file", "data": {"path": "big"}})
    assert read["truncated"]
    assert big.startswith(read["content"])


def test_fields_are_taken_from_data_or_the_top_level(door: Door, line: Socket) -> None:
    """Some seed clients put fields beside the type; aliases of parameters work too; data wins."""
    (door.workspace / "top.txt").write_text("top")
    assert line.ask({"type": "read_file", "path": "top.txt", "session": 9})["content"] == "top"
    assert line.ask({"type": "read_file", "data": {"file_path": "top.txt"}})["content"] == "top"
    both = {"type": "read_file", "path": "no", "data": {"path": "top.txt"}}
    assert line.ask(both)["content"] == "top"


def test_misspelt_data_is_refused(line: Socket) -> None:
    """A field nobody knows inside data is an error and not silently nothing."""
    frame = line.ask({"type": "list_directory", "data": {"recursve": False}})
    assert frame["type"] == "error"
    assert "recursve" in frame["message"]


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b", "\0"])
def test_paths_outside_are_refused(line: Socket, path: str) -> None:
    """Bug 2: no way out of the workspace, for reading or writing."""
    for message in (
        {"type": "read_file", "data": {"path": path}},
        {"type": "write_file", "data": {"path": path, "content": "x"}},
    ):
        assert line.ask(message)["type"] == "error"


def test_any_tool_can_be_asked_for_by_its_name(line: Socket) -> None:
    """What the registry has beyond the ten answers with a frame of its own; marks are given back."""
    frame = line.ask({"type": "verify_system_running", "id": "a7"})
    assert (frame["type"], frame["tool"], frame["id"]) == ("tool_result", "verify_system_running", "a7")
    assert frame["output"]["status"] == "running"
    assert line.ask({"type": "ping", "id": 4})["id"] == 4


def test_progress_is_told_when_wanted(line: Socket) -> None:
    """With `progress` a status frame says what runs before the answer comes; without it the answer is the first."""
    line.send(
        {"type": "execute_command", "data": {"command": "echo one; sleep 1; echo two"}, "progress": True}
    )
    frames = [line.receive()]
    while frames[-1]["type"] == "status":
        frames.append(line.receive())
    assert frames[0] == {"type": "status", "message": "Executing execute_command..."}
    assert frames[-1]["type"] == "command_output"
    assert frames[-1]["stdout"] == "one\ntwo\n"


def test_call_that_asks_tells_so_and_runs_once_when_answered(door: Door, line: Socket) -> None:
    """As an agent's, with a key: `approval_requested` at once, the answer frame when a person has said yes."""
    asked = {"type": "write_file", "data": {"path": "asked.txt", "content": "yes"}, "id": 1}
    asked |= {"as": "forge", "profile": "careful", "key": "ws-1"}
    frame = line.ask(asked)
    assert (frame["type"], frame["tool"], frame["key"], frame["id"]) == (
        "approval_requested", "write_file", "ws-1", 1,
    )  # fmt: skip
    assert not (door.workspace / "asked.txt").exists()
    assert line.ask({"type": "ping"})["type"] == "pong"
    door.post(f"/api/approvals/{frame['approval_id']}", {"approved": True})
    while (frame := line.receive())["type"] == "status":
        continue
    assert frame == {"type": "write_success", "path": "asked.txt", "id": 1}
    (door.workspace / "asked.txt").write_text("edited")
    assert line.ask(asked)["type"] == "write_success"
    assert (door.workspace / "asked.txt").read_text() == "edited"


def test_call_nobody_answers_is_pending_and_goes_on_with_its_key(
    door: Door, line: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the hold the frame is `approval_pending`, no error; without a key at once, with the trace to go on in."""
    monkeypatch.setattr("proctor.server.socket.HOLD_SECONDS", 0.2)
    asked = {
        "type": "write_file",
        "data": {"path": "later.txt", "content": "x"},
        "as": "forge",
        "profile": "careful",
    }
    at_once = line.ask(asked)
    assert at_once["type"] == "approval_pending"
    door.post(f"/api/approvals/{at_once['approval_id']}", {"approved": True})
    assert line.ask({**asked, "trace_id": at_once["trace_id"]})["type"] == "write_success"
    named = {**asked, "key": "ws-2"}
    assert line.ask(named)["type"] == "approval_requested"
    pending = line.receive()
    assert (pending["type"], pending["key"]) == ("approval_pending", "ws-2")
    door.post(f"/api/approvals/{pending['approval_id']}", {"approved": True})
    assert line.ask(named)["type"] == "write_success"


def _held(name: str) -> str:
    """A command that ends when the test has made this file; by itself after a minute."""
    return f"n=0; while [ ! -e {name} ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n+1)); done"


def test_background_command_tells_its_end(door: Door, line: Socket) -> None:
    """A background command answers at once, other requests go on, and its output comes as an extra frame."""
    data = {"command": f"{_held('go-on')}; echo done", "background": True}
    started = line.ask({"type": "execute_command", "data": data})
    assert started["type"] == "command_started"
    assert line.ask({"type": "ping"})["type"] == "pong"
    (door.workspace / "go-on").touch()
    frame = line.receive()
    while frame["type"] == "command_progress":
        frame = line.receive()
    assert (frame["type"], frame["job_id"], frame["stdout"], frame["exit_code"], frame["state"]) == (
        "command_output", started["job_id"], "done\n", 0, "completed",
    )  # fmt: skip


def test_bug_6_one_client_does_not_hold_up_the_others(door: Door, line: Socket) -> None:
    """Bug 6: while one client's command runs, another client and the same one's ping are answered."""
    line.send({"type": "execute_command", "data": {"command": f"{_held('let-go')}; echo slow"}})
    assert line.ask({"type": "ping"})["type"] == "pong"
    with door.socket("/ws") as other:
        assert other.ask({"type": "list_directory"})["type"] == "directory_listing"
    (door.workspace / "let-go").touch()
    assert line.receive()["stdout"] == "slow\n"


def test_who_sends_many_at_once_is_heard_all_the_time(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much waits: a ping is answered, too much is said, and whoever leaves leaves no command running."""
    monkeypatch.setattr("proctor.server.socket.MOST_WAITING", 20)
    mark = f"mark-{time.monotonic_ns()}"
    with door.socket() as gone:
        gone.send({"type": "execute_command", "data": {"command": f": {mark}; sleep 60"}})
        _until(lambda: _running(mark))
        for number in range(21):
            gone.send({"type": "execute_command", "data": {"command": f": {mark}; sleep 60"}, "id": number})
        gone.send({"type": "ping"})
        frames = [frame := gone.receive()]
        while frame["type"] != "pong":
            frames.append(frame := gone.receive())
        told = [frame.get("id") for frame in frames if frame["type"] == "error"]
        assert told == [20]  # the one that was too much; a status may stand before it
    _until(lambda: not door.front.sockets and not _running(mark))


def test_a_call_ends_with_its_connection(door: Door) -> None:
    """Who goes away leaves no command running."""
    mark = f"mark-{time.monotonic_ns()}"
    command = f": {mark}; touch alive; sleep 60; touch survived"
    with door.socket() as gone:
        gone.send({"type": "execute_command", "data": {"command": command}})
        _until((door.workspace / "alive").exists)
        assert _running(mark)
    _until(lambda: not door.front.sockets and not _running(mark))
    assert not (door.workspace / "survived").exists()


def test_calls_are_the_humans_and_are_traced(door: Door, line: Socket) -> None:
    """A direct request passes the gate as the human: its trace says who, what and how it ended."""
    line.ask({"type": "list_directory", "trace_id": "trace_mine"})
    events = door.front.hub.read(0, "trace_mine")
    assert [event.event for event in events] == ["tool_call_start", "tool_call_complete"]
    assert {(event.actor.value, event.actor_name) for event in events} == {("human", door.front.user)}
    assert isinstance(door.front._actor("x"), Actor)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(["path", "content", "recursive", "max_depth", "feature_type", "table_name", "x"]), JSON
)
MESSAGES = st.one_of(
    JSON,
    st.builds(
        lambda kind, data, top: {**top, "type": kind, "data": data},
        st.sampled_from(["ping", "read_file", "list_directory", "get_architecture", "query_schema", "chat"])
        | JSON,
        FIELDS | JSON,
        FIELDS,
    ),
)


@settings(max_examples=120)
@given(message=MESSAGES)
def test_no_message_goes_unanswered(door: Door, message: Any) -> None:
    """Whatever is sent, exactly one frame comes back, it is not a defect, and the connection lives."""
    if not hasattr(_kept, "line"):
        _kept.context = door.socket()
        _kept.line = _kept.context.__enter__()
    frame = _kept.line.ask(message)
    assert isinstance(frame["type"], str)
    assert "defect" not in str(frame.get("message", "")).lower()
    assert _kept.line.ask({"type": "ping"})["type"] == "pong"


_kept: Any = threading.local()


@pytest.fixture(scope="module", autouse=True)
def _hang_up() -> Any:
    yield
    if hasattr(_kept, "line"):
        _kept.context.__exit__(None, None, None)


@given(JSON)
def test_envelopes_are_understood_or_refused(message: Any) -> None:
    """Reading an envelope gives a request or one sentence, never another exception."""
    with contextlib.suppress(RequestError):
        assert asked(message).type
