"""The flows of seed 000 from end to end: a chat whose model uses files, a task that uses REST, a task to its history."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.compat.agent_coordinator import AgentCoordinator
from proctor.compat.house import House
from proctor.config import load_settings
from proctor.engine.tasks import NewTask
from proctor.store.tables import calls
from proctor.testing.model_server import ModelServer
from proctor.trace.reader import stream
from proctor.trace.verify import verify
from tests.server.conftest import Door, served
from tests.support.supervisors import stop_supervisor

AGENTS = ("SOLACE", "FORGE", "ARCHITECT", "SENTINEL")


# ── task → tool → REST ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A real server."""
    with served(tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.fixture
def solace(rest: Door) -> AgentCoordinator:
    """The seed's coordinator, pointed at that server."""
    house = House(settings=rest.app.settings)
    return AgentCoordinator(house=house, workspace=rest.workspace, base_url=f"{rest.http}/api/v1/solace-orch")


def test_flow_task_tool_rest(rest: Door, solace: AgentCoordinator) -> None:
    """A task's work with all fourteen functions: each goes over REST, through the gate, into the trace."""
    (rest.workspace / "main.py").write_text("print('hello')\n")
    do = solace._execute_tool
    task = rest.app.tasks.add(NewTask("Add a greeting", task_type="feature", workspace=str(rest.workspace)))
    assert do("verify_system_running", {})["status"] == "running"
    assert do("scan_repository", {})["status"] == "complete"
    asked = do("create_user_request", {"request_text": task.description, "request_type": "new_feature"})
    assert asked["status"] == "analyzing"  # answered with 201, which is a success
    assert do("analyze_request", {"request_id": asked["id"]})["status"] == "planned"
    made = do("generate_instructions", {"id": asked["id"]})
    assert made["status"] == "executing"
    assert made["count"] == len(made["instructions"])
    following = do("get_next_instruction", {})
    assert following["has_next"] is (made["count"] > 0)
    assert do("get_architecture_rules", {})["count"] >= 3
    assert do("search_architecture_rules", {"keyword": "HEALTH"})["count"] >= 1
    saved = do("create_backup", {"reason": f"before {task.task_id}"})
    assert do("read_file", {"file_path": "main.py"})["content"] == "print('hello')\n"
    assert do("write_file", {"path": "main.py", "content": "print('bye')\n"})["size"] == 13
    names = [one["name"] for one in do("list_directory", {"dir_path": "."})["files"]]
    assert "main.py" in names
    ran = do("execute_command", {"command": "grep -c hello main.py"})
    assert (ran["exit_code"], ran["success"]) == (1, False)  # the test fails, so the change goes
    assert (
        do("restore_from_backup", {"backup_timestamp": saved["timestamp"]})["timestamp"] == saved["timestamp"]
    )
    assert (rest.workspace / "main.py").read_text() == "print('hello')\n"
    used = _tools(rest)
    assert used >= {solace.house.app.registry.find(name).name for name in solace._rest.functions}
    assert len(solace._rest.functions) == 14
    assert verify(rest.app.database, rest.app.key).ok


def _tools(rest: Door) -> set[str]:
    with rest.app.database.read() as connection:
        rows = connection.execute(calls.select()).mappings().all()
    assert all(row["actor"] == "human" and row["state"] == "ended" for row in rows)
    assert all(not row["simulated"] for row in rows)
    return {row["tool_name"] for row in rows}


@pytest.mark.parametrize(
    ("function", "args", "code"),
    [
        ("read_file", {"file_path": "nothing.txt"}, "not_found"),
        ("read_file", {"file_path": "../../etc/passwd"}, "path_escape"),
        ("read_file", {}, "invalid_input"),
        ("analyze_request", {}, "invalid_input"),
        ("analyze_request", {"request_id": "../../agents"}, "http_404"),
        ("restore_from_backup", {"backup_timestamp": "2001-01-01_000000"}, "not_found"),
        ("execute_command", {"command": "sudo reboot"}, "command_denied"),
    ],
)
def test_flow_task_tool_rest_refusals(
    solace: AgentCoordinator, function: str, args: dict[str, Any], code: str
) -> None:
    """What the gate refuses comes back as error, hint and code; nothing is raised into the caller's loop."""
    found = solace._execute_tool(function, args)
    assert found["error"]
    assert found["code"] == code, found


# ── task end to end ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def repository(home: Path, tmp_path: Path) -> Iterator[Path]:
    """A repository with the seed's four agents, scripted; its supervisor is stopped afterwards."""
    place = tmp_path / "repository"
    place.mkdir()
    (place / "proctor.toml").write_text("".join(f'[agents.{one}]\ndriver = "scripted"\n' for one in AGENTS))
    name = ["-c", "user.name=T", "-c", "user.email=t@localhost"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*name, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *words], cwd=place, check=True, timeout=60)
    yield place
    stop_supervisor()


@pytest.mark.slow
def test_flow_task_end_to_end(repository: Path) -> None:
    """Put in, taken by priority, executed by its agent in a worktree, kept on a branch, told in history and trace."""
    house = House(settings=load_settings(repository))
    coordinator = AgentCoordinator(house=house, workspace=repository, task_seconds=60)
    try:
        script = json.dumps({"steps": [{"write": "hello.txt", "content": "hi\n"}, {"say": "written"}]})
        new = NewTask(f"Greet\nSCRIPT:{script}", agent="FORGE", priority=9, workspace=str(repository))
        house.app.tasks.add(NewTask("later", agent="FORGE", priority=1, workspace=str(repository)))
        task = house.app.tasks.add(new)
        first = coordinator.get_pending_tasks()[0]
        assert first["task_id"] == task.task_id
        done = coordinator.execute_task(first)
        assert (done["success"], done["implementation"], done["agent"]) == (True, "written", "FORGE")
        assert done["simulated"]
        _check_facts(house, repository, done)
    finally:
        coordinator.close_db()
        house.close()


def _check_facts(house: House, repository: Path, done: dict[str, Any]) -> None:
    detail = house.app.tasks.show(done["task_id"])
    assert [row["outcome"] for row in detail.attempts] == ["succeeded"]
    assert [(row["agent_name"], row["success"]) for row in detail.history] == [("FORGE", True)]
    shown = subprocess.run(
        ["git", "show", f"{done['branch']}:hello.txt"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert shown.stdout == "hi\n"
    assert not (repository / "hello.txt").exists()  # the user's checkout is as it was
    events = [event.event for event in stream(house.app.database, done["trace_id"])]
    assert events[0] == "task_added"
    assert events[-1] == "task_completed"
    assert [one for one in events if one in {"task_started", "attempt_started", "attempt_ended"}][
        -1
    ] == "attempt_ended"
    assert verify(house.app.database, house.app.key).ok
    cursor = AgentCoordinator(house=house, workspace=repository).connect_db().cursor()
    cursor.execute("SELECT status, total_tasks_completed FROM agent_status WHERE agent_name = %s", ("FORGE",))
    row = cursor.fetchone()
    assert row is not None
    # The task of lower priority follows by itself and may have been completed meanwhile.
    assert row["total_tasks_completed"] in {1, 2}


# ── WebSocket → model → file tool ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def chatting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A real server whose SOLACE asks the scripted model server (simulated)."""
    place = tmp_path_factory.mktemp("chatting")
    with ModelServer() as models:
        (place / "work").mkdir()
        settings = f"""
[agents.SOLACE]
env = {{ OPENAI_API_KEY = "sk-simulated-0001" }}
[agents.SOLACE.api]
base_url = "{models.url}/v1"
"""
        (place / "work" / "proctor.toml").write_text(settings)
        with served(place) as made:
            yield made


def test_flow_websocket_model_file_tool(chatting: Door) -> None:
    """A chat message on port 8765's protocol reaches the model, its calls reach the files, its words come back."""
    steps = [
        {"call": {"name": "create_backup", "args": {"workspace_path": "."}}},
        {"call": {"name": "write_file", "args": {"path": "notes/plan.md", "content": "# Plan\n"}}},
        {"call": {"name": "read_file", "args": {"path": "notes/plan.md"}}},
        {"text": "I wrote the plan and read it back."},
    ]
    message = f"Write a plan. FAKE:{json.dumps({'steps': steps})}"
    with chatting.socket() as line:
        frames = [line.ask({"type": "chat", "data": {"message": message}}, 60)]
        while frames[-1]["type"] == "status":
            frames.append(line.receive(60))
        assert frames == [
            {"type": "status", "message": "Executing create_backup..."},
            {"type": "status", "message": "Executing write_file..."},
            {"type": "status", "message": "Executing read_file..."},
            {"type": "chat_response", "message": "I wrote the plan and read it back."},
        ]
        found = line.ask({"type": "read_file", "data": {"path": "notes/plan.md"}})
    assert found == {"type": "file_content", "path": "notes/plan.md", "content": "# Plan\n"}
    with chatting.app.database.read() as connection:
        rows = connection.execute(sa.select(calls.c.tool_name, calls.c.actor, calls.c.actor_name)).all()
    assert ("write_file", "agent", "SOLACE") in [tuple(row) for row in rows]
    assert verify(chatting.app.database, chatting.app.key).ok
