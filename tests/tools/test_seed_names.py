"""The seeds' functions by their own names, with their own parameters and answers (SPEC 1.A.6 and 1.A.7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.store.tables import command_jobs
from proctor.tools.catalog import standard_registry
from tests.support.rows import rows_of
from tests.tools.conftest import Desk

# function, request, the fields its answer must have
REST: list[tuple[str, dict[str, Any], str]] = [
    ("read_file", {"file_path": "README.md"}, "file_path content content_hash size_bytes last_modified"),
    ("list_directory", {"dir_path": "."}, "dir_path files count"),
    ("get_architecture_rules", {}, "rules count"),
    ("search_architecture_rules", {"keyword": "agent"}, "rules count keyword"),
    ("create_user_request", {"request_text": "do it"}, "id request_text request_type status created_at"),
    ("analyze_request", {"id": 1}, "message request_id status"),
    ("generate_instructions", {"id": 1}, "message request_id instructions count status"),
    ("get_next_instruction", {}, "has_next instruction"),
    ("scan_repository", {}, "message status"),
    ("write_file", {"file_path": "x", "content": ""}, "message file_path size"),
    ("create_backup", {"reason": "r"}, "message timestamp path reason"),
    ("execute_command", {"command": "true", "working_directory": "."}, "command output exit_code success"),
    ("restore_from_backup", {"backup_timestamp": "?"}, "message timestamp"),
    ("verify_system_running", {}, "status message timestamp"),
]
CHAT: list[tuple[str, dict[str, Any], str]] = [
    ("read_file", {"path": "README.md"}, "path content"),
    ("write_file", {"path": "x", "content": "y"}, "path"),
    ("list_directory", {"path": ".", "recursive": True, "max_depth": 5}, "path files count"),
    ("query_architecture", {"feature_type": "health_monitoring"}, "rules count filter"),
    ("create_backup", {"workspace_path": "."}, "backup_path success"),
    ("restore_backup", {"backup_path": "?", "workspace_path": "."}, "success message"),
    ("execute_command", {"command": "true", "cwd": "."}, "stdout stderr exit_code"),
    ("query_schema", {"table_name": "task_queue"}, "schema"),
]
WIRE = {"name", "is_dir", "size_bytes", "last_modified", "path", "type", "modified"}


@pytest.mark.parametrize("functions", [REST, CHAT], ids=["rest", "chat"])
async def test_every_seed_function_takes_and_gives_the_seeds_words(
    desk: Desk, functions: list[tuple[str, dict[str, Any], str]]
) -> None:
    """In the seeds' order, each with the parameters of its dialect."""
    last: dict[str, Any] = {}
    for name, inputs, fields in functions:
        filled = {
            key: last["timestamp" if key == "backup_timestamp" else "backup_path"] if value == "?" else value
            for key, value in inputs.items()
        }
        got = await desk.call(name, **filled)
        assert set(fields.split()) <= set(got), name
        last = got if name == "create_backup" else last
        if name == "list_directory":
            assert set(got["files"][0]) >= WIRE


def test_every_tool_can_be_judged_and_simulated() -> None:
    """Each has a domain, a side effect, a real and a mock adapter, and schemas without a gap."""
    for schema in standard_registry().schemas():
        assert set(schema["adapters"]) == {"real", "mock"}
        assert schema["input_schema"]["additionalProperties"] is False
        assert "simulated" in schema["output_schema"]["properties"]
        assert schema["description"].endswith(".")
    assert len(standard_registry()) == 26


async def test_start_that_is_cancelled_leaves_no_command_that_looks_alive(desk: Desk) -> None:
    """Whoever loses patience while the row is written leaves an ended row or none."""
    starting = desk.call("start_command", command="sleep 60")
    for delay in (0.0, 0.001, 0.01, 0.05):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(delay):
                await starting
        starting = desk.call("start_command", command="sleep 60")
    starting.close()
    for row in rows_of(desk.database, sa.select(command_jobs)):
        await desk.call("command_status", job_id=row["job_id"], wait_seconds=20)
    ends = {row["outcome"] for row in rows_of(desk.database, sa.select(command_jobs))}
    assert ends <= {"not_started", "stopped"}
