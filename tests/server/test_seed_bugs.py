"""Bugs of the seeds' origins that a client would meet over the surfaces; the others are tested where they belong."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from proctor.protocol.ids import new_id
from proctor.store.tables import attempts, task_history, task_queue
from tests.server.conftest import Door

SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
MAIL = "ada.lovelace@example.com"


def test_bug_14_nothing_ends_at_import_for_want_of_a_variable() -> None:
    """Bug 14: with an empty environment every surface can be imported."""
    code = "import proctor.server.app, proctor.server.serving, proctor.compat; print('imported')"
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "imported"), done.stderr


def test_bug_16_rates_and_times_are_computed_and_busy_means_running(door: Door) -> None:
    """Bug 16: success rate and mean time come from the history; a task in the queue makes nobody busy."""
    task = door.post("/api/v1/agents/tasks", {"task_type": "x", "description": "y", "agent_name": "forge"})
    name = task.json()["task_id"]
    row = door.get("/api/v1/agents/FORGE").json()
    assert (row["status"] != "busy", row["current_task_id"], row["success_rate"]) == (True, None, None)
    with door.app.database.write() as connection:
        for success, millis in ((True, 1000), (True, 2000), (False, 6000), (True, 3000)):
            connection.execute(
                task_history.insert().values(
                    agent_name="FORGE", task_id=name, task_type="x", success=success, duration_ms=millis
                )
            )
    row = door.get("/api/v1/agents/FORGE/performance").json()
    assert (row["total_attempts"], row["total_tasks_completed"]) == (4, 3)
    assert (row["success_rate"], row["avg_completion_time_ms"]) == (0.75, 3000)
    with door.app.database.write() as connection:
        connection.execute(task_queue.delete().where(task_queue.c.task_id == name))
        connection.execute(attempts.delete().where(attempts.c.task_id == name))


def test_bug_30_secrets_and_personal_data_leave_no_surface(door: Door) -> None:
    """Bug 30: what a caller sends in is redacted before it is written: REST, trace socket and stream show none of it."""
    trace = new_id("trace")
    body = {"keyword": f"token {SECRET} of {MAIL}"}
    assert door.post(f"/api/tools/search_architecture_rules?trace_id={trace}", body).status_code == 200
    shown = [
        door.get(f"/api/agents/trace/{trace}").text,
        door.get(f"/api/traces/{trace}").text,
        door.get(f"/api/calls?trace_id={trace}").text,
    ]
    with door.socket(f"/ws/traces/{trace}") as viewer:
        viewer.receive()
        shown += [json.dumps(viewer.receive()) for _ in range(2)]
    for text in shown:
        assert "tool" in text
        assert SECRET not in text
        assert MAIL not in text


def test_bug_5_and_6_a_command_over_rest_ends_with_its_caller_and_blocks_nobody(door: Door) -> None:
    """Bugs 5 and 6: while a command runs the server answers, and its time-out ends the whole tree."""
    began = time.monotonic()
    body = {"command": "(sleep 60; touch late) & sleep 60", "timeout_seconds": 1}
    answer = door.post("/api/tools/execute_command", body)
    assert time.monotonic() - began < 40
    assert answer.json()["output"]["timed_out"] is True
    assert door.get("/health").status_code == 200
    assert not (door.workspace / "late").exists()
