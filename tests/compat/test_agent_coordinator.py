"""Seed 000's `AgentCoordinator`: sixteen methods over the real queue; nothing is executed or written beside it."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.compat.agent_coordinator import AGENTS, AgentCoordinator
from proctor.compat.connection import ReadOnlyError
from proctor.compat.house import House
from proctor.compat.queue import AgentOfflineError, NotByHandError
from proctor.config import environment, load_settings
from proctor.engine.tasks import NewTask
from proctor.protocol.errors import ConfigError, NotFoundError, UsageError
from proctor.store.database import Database
from proctor.trace.reader import stream

SIGNATURES = {
    "__init__": ["db_config"],
    "_init_api_clients": [],
    "connect_db": [],
    "close_db": [],
    "get_pending_tasks": [],
    "update_task_status": ["task_id", "status", "result", "error"],
    "update_agent_status": ["agent_name", "status", "task_id"],
    "log_task_history": [
        *("agent_name", "task_id", "task_type", "success", "duration_ms", "error_msg", "tokens_used")
    ],
    "query_architecture_rules": ["feature_type"],
    "execute_with_solace": ["task"],
    "_execute_tool": ["function_name", "args"],
    "execute_with_forge": ["task"],
    "execute_with_architect": ["task"],
    "execute_with_sentinel": ["task"],
    "execute_task": ["task"],
    "run": ["interval"],
}


@pytest.fixture
def coordinator(users: House, project: Path) -> Iterator[AgentCoordinator]:
    """A coordinator of the user's own queue."""
    made = AgentCoordinator(house=users, workspace=project, task_seconds=60)
    yield made
    made.close_db()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One state for many examples."""
    made = House(tmp_path_factory.mktemp("shared"))
    yield made
    made.close()


def _script(*steps: dict[str, Any]) -> str:
    return "Do it\nSCRIPT:" + json.dumps({"steps": list(steps)})


def test_all_sixteen_methods_have_the_seeds_parameters() -> None:
    """In the seed's order; what is ours beside them is keyword-only."""
    for name, wanted in SIGNATURES.items():
        parameters = inspect.signature(getattr(AgentCoordinator, name)).parameters.values()
        own = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY and one.name != "self"]
        assert own == wanted, name
    assert len(SIGNATURES) == 16


def test_waiting_tasks_come_by_priority_then_age(coordinator: AgentCoordinator, users: House) -> None:
    """Ten at a time, as dictionaries with the columns of the seed's table."""
    for number in range(12):
        users.app.tasks.add(NewTask(f"t{number}", priority=9 if number == 11 else 5))
    found = coordinator.get_pending_tasks()
    assert [row["description"] for row in found] == ["t11", *[f"t{number}" for number in range(9)]]
    assert {"task_id", "task_type", "status", "assigned_to_agent", "context", "retry_count"} <= set(found[0])
    assert json.dumps(found, default=str)


def test_connection_reads_rows_as_dictionaries_and_cannot_write(
    coordinator: AgentCoordinator, users: House
) -> None:
    """The seed's cursors work, with its place holders; a write is refused with the way to do it."""
    users.app.tasks.add(NewTask("x 100%", priority=7))
    with coordinator.connect_db() as connection, connection.cursor(cursor_factory=object) as cursor:
        cursor.execute("SELECT description, priority FROM task_queue WHERE priority > %s", (5,))
        assert cursor.fetchall() == [{"description": "x 100%", "priority": 7}]
        cursor.execute(
            "SELECT count(*) AS n FROM task_queue WHERE description LIKE 'x%%' AND priority = %(p)s", {"p": 7}
        )
        assert cursor.fetchone() == {"n": 1}
        assert cursor.fetchone() is None
        for statement in ("DELETE FROM task_queue", "UPDATE task_queue SET status = 'completed'"):
            with pytest.raises(ReadOnlyError, match="only reads"):
                cursor.execute(statement)
        with pytest.raises(UsageError, match="cannot be run"):
            cursor.execute("SELECT nothing FROM nowhere")
    assert len(coordinator.get_pending_tasks()) == 1
    with pytest.raises(UsageError, match="closed"):
        connection.cursor()


@given(text=st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50))
def test_any_value_goes_through_a_place_holder_as_it_is(shared: House, text: str) -> None:
    """Quotes, colons, percent signs and question marks in values or statements mean nothing."""
    cursor = AgentCoordinator(house=shared, workspace=shared.place).connect_db().cursor()
    cursor.execute("SELECT %s AS v, '?:%%' AS w, %s AS n", (text, 1))
    assert cursor.fetchone() == {"v": text, "w": "?:%", "n": 1}


@pytest.mark.postgres
def test_connection_reads_postgresql_too(postgres_url: str, home: Path, project: Path) -> None:
    """The same statements, and the same refusal; `db_config` names the database and nothing is guessed."""
    from urllib.parse import urlsplit

    parts = urlsplit(postgres_url)
    given = {"host": parts.hostname, "port": parts.port, "user": parts.username, "dbname": parts.path[1:]}
    coordinator = AgentCoordinator({**given, "password": parts.password})
    try:
        coordinator.house.app.tasks.add(NewTask("x", priority=7))
        cursor = coordinator.connect_db().cursor()
        cursor.execute("SELECT description, created_at FROM task_queue WHERE priority > %s", (5,))
        (row,) = cursor.fetchall()
        assert row["description"] == "x"
        assert json.dumps(row)
        with pytest.raises(ReadOnlyError):
            cursor.execute("DELETE FROM task_queue")
    finally:
        coordinator.close_db()


def test_queue_reads_and_decides_the_same_on_both_databases(
    database: Database, home: Path, project: Path
) -> None:
    """Waiting tasks, giving up, opening again, and what was handed on."""
    url = database.url.render_as_string(hide_password=False)
    house = House(settings=load_settings(project, {**environment(), "PROCTOR_DATABASE_URL": url}))
    try:
        coordinator = AgentCoordinator(house=house, workspace=project)
        low = house.app.tasks.add(NewTask("low", priority=1))
        high = house.app.tasks.add(NewTask("high", priority=9))
        context = {"delegated_from": high.task_id, "guidance": "g"}
        onward = house.app.tasks.add(NewTask("on", context=context, trace_id=high.trace_id))
        assert [row["task_id"] for row in coordinator.get_pending_tasks()][::2] == [high.task_id, low.task_id]
        assert coordinator.update_task_status(low.task_id, "failed", error="no")["status"] == "failed"
        assert coordinator.update_task_status(low.task_id, "pending")["status"] == "pending"
        found = coordinator._queue.delegated(high)
        assert found is not None
        assert found.task_id == onward.task_id
        assert coordinator._queue.delegated(low) is None
        assert coordinator.log_task_history("sim", high.task_id) is None
    finally:
        house.close()


def test_item_14_nothing_is_guessed_about_a_database(project: Path) -> None:
    """No default password, user or name; an unknown key is told."""
    with pytest.raises(ConfigError, match="DB_USER"):
        AgentCoordinator({"host": "localhost"})
    with pytest.raises(ValueError, match="passwort"):
        AgentCoordinator({"host": "localhost", "passwort": "x"})


def test_item_14_missing_keys_disable_one_agent_each(users: House, project: Path) -> None:
    """Without keys and settings every one of the four says what to set; nothing exits."""
    (project / "proctor.toml").write_text("")
    found = AgentCoordinator(house=users, workspace=project)._init_api_clients()
    assert set(found) == set(AGENTS)
    assert not found["SOLACE"]["available"]
    assert "OPENAI_API_KEY" in found["SOLACE"]["message"]
    assert "ANTHROPIC_API_KEY" in found["FORGE"]["message"]


def test_agent_that_cannot_work_keeps_nobody_waiting(users: House, project: Path) -> None:
    """It is said at once, with the key to set, and no task is left behind."""
    (project / "proctor.toml").write_text("")
    coordinator = AgentCoordinator(house=users, workspace=project)
    with pytest.raises(AgentOfflineError, match="OPENAI_API_KEY"):
        coordinator.execute_with_solace({"description": "x"})
    assert coordinator.get_pending_tasks() == []


def test_item_16_status_is_a_fact_and_not_written_by_hand(
    coordinator: AgentCoordinator, users: House
) -> None:
    """Giving up and trying again are decisions; running, completed and busy are not."""
    task = users.app.tasks.add(NewTask("x", agent="sim"))
    for status in ("completed", "in_progress"):
        with pytest.raises(NotByHandError, match="fact"):
            coordinator.update_task_status(task.task_id, status, result={"ok": True})
    assert coordinator.update_task_status(task.task_id, "assigned")["status"] == "pending"
    failed = coordinator.update_task_status(task.task_id, "failed", error="not now")
    assert (failed["status"], failed["error_log"]) == ("failed", "not now")
    assert coordinator.update_task_status(task.task_id, "failed") == failed
    assert coordinator.update_task_status(task.task_id, "pending")["status"] == "pending"
    with pytest.raises(UsageError, match="no status"):
        coordinator.update_task_status(task.task_id, "done")
    with pytest.raises(NotByHandError, match="busy"):
        coordinator.update_agent_status("sim", "busy", task.task_id)
    events = [event.event for event in stream(users.app.database, task.trace_id or "")]
    assert events == ["task_added", "task_failed", "task_retried"]


def test_agent_taken_out_begins_nothing_until_it_is_back(coordinator: AgentCoordinator) -> None:
    """`offline` pauses it, `idle` takes that back; an unknown agent is named."""
    assert coordinator.update_agent_status("sim", "offline")["paused"] is True
    back = coordinator.update_agent_status("SIM", "idle")
    assert (back["agent_name"], back["status"], back["paused"]) == ("sim", "idle", False)
    with pytest.raises(NotFoundError, match="nobody"):
        coordinator.update_agent_status("nobody", "idle")
    with pytest.raises(UsageError, match="asleep"):
        coordinator.update_agent_status("sim", "asleep")


def test_logged_history_is_a_claim_in_the_trace(coordinator: AgentCoordinator, users: House) -> None:
    """What somebody says is kept as said; the history itself has only what attempts proved."""
    task = users.app.tasks.add(NewTask("x", agent="sim"))
    assert coordinator.log_task_history("sim", task.task_id, "task", True, 12, tokens_used=3) is None
    note = list(stream(users.app.database, task.trace_id or ""))[-1]
    assert (note.event, note.details["claim"]["cost_tokens"]) == ("note", 3)
    assert users.app.tasks.show(task.task_id).history == ()


def test_rules_come_through_the_gate(coordinator: AgentCoordinator) -> None:
    """Ordered by feature type; one type alone; none is an empty list."""
    rules = coordinator.query_architecture_rules()
    types = [rule["feature_type"] for rule in rules]
    assert types == sorted(types)
    assert "agent_api_endpoint" in types
    (one,) = coordinator.query_architecture_rules("health_monitoring")
    assert one["feature_type"] == "health_monitoring"
    assert coordinator.query_architecture_rules("nothing_such") == []


@pytest.mark.slow
def test_each_agent_answers_in_its_own_shape(coordinator: AgentCoordinator) -> None:
    """FORGE implements, ARCHITECT plans, SENTINEL analyses; all say that they were simulated."""
    ways = {"implementation": "forge", "plan": "architect", "analysis": "sentinel"}
    for field, name in ways.items():
        task = {"description": _script({"say": f"{name} speaks"}), "task_type": "plan"}
        found = getattr(coordinator, f"execute_with_{name}")(task)
        assert found["success"], found
        assert (found[field], found["agent"]) == (f"{name} speaks", name.upper())
        assert found["simulated"] is True
        history = coordinator.log_task_history(name.upper(), found["task_id"])
        assert history is not None
        assert history["success"]
        assert found["tokens_used"] == history["cost_tokens"]


@pytest.mark.slow
def test_solace_hands_on_and_the_other_does_it(coordinator: AgentCoordinator, users: House) -> None:
    """A delegation is a new task of SOLACE's with the guidance; a decision to handle is one too."""
    onto = {"agent": "FORGE", "description": "Build it", "guidance": "in blue"}
    found = coordinator.execute_task(
        {"description": _script({"delegate": onto}), "assigned_to_agent": "SOLACE", "priority": 8}
    )
    assert (found["decision"], found["delegate_to"], found["guidance"]) == ("delegate", "FORGE", "in blue")
    onward = users.app.tasks.get(found["delegated_task_id"])
    assert (onward.created_by, onward.priority, onward.context["delegated_from"]) == (
        *("SOLACE", 8),
        found["task_id"],
    )
    built = coordinator.execute_task(onward.task_id)
    assert (built["success"], built["agent"]) == (True, "FORGE")
    assert built["implementation"]
    alone = coordinator.execute_with_solace(
        {"description": _script({"say": '{"estimated_complexity": "low"}'})}
    )
    assert (alone["decision"], alone["delegate_to"], alone["estimated_complexity"]) == ("handle", None, "low")


@pytest.mark.slow
def test_failed_task_is_told_and_not_raised(coordinator: AgentCoordinator) -> None:
    """The result says so, with the reason; the same task is not run again."""
    task = {"description": _script({"fail": {"reason": "it broke"}}), "assigned_to_agent": "sim"}
    found = coordinator.execute_task(task)
    assert (found["success"], found["status"]) == (False, "failed")
    assert found["error"]
    assert coordinator.execute_task(found["task_id"])["task_id"] == found["task_id"]


@pytest.mark.slow
def test_run_keeps_the_queue_executed(coordinator: AgentCoordinator, users: House, project: Path) -> None:
    """Tasks that come are begun at once by the supervisor; `stop` ends the watching."""
    task = users.app.tasks.add(NewTask(_script({"say": "done"}), agent="sim", workspace=str(project)))
    watching = threading.Thread(target=coordinator.run, args=(0.2,))
    watching.start()
    try:
        assert coordinator._queue.wait(task, 60).status.value == "completed"
    finally:
        coordinator.stop()
        watching.join(30)
    assert not watching.is_alive()
    with pytest.raises(ValueError, match="above 0"):
        coordinator.run(0)


def test_without_a_server_a_tool_says_how_to_start_one(coordinator: AgentCoordinator) -> None:
    """Never an exception into a model's loop: a dictionary with the cure."""
    assert "proctor serve" in coordinator._execute_tool("read_file", {"file_path": "README.md"})["hint"]
    assert "Unknown function" in coordinator._execute_tool("rm_rf", {})["error"]
    with pytest.raises(ValueError, match="http"):
        AgentCoordinator(house=coordinator.house, base_url="file:///etc/passwd")
