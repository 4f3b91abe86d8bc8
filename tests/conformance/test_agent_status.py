"""The view agent_status tells the same truth on both databases, and nobody can write it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.store.database import Database
from proctor.store.tables import agent_status, agents, attempts, task_history
from tests.support.rows import NOON, add_task, insert, rows_of


def _status(database: Database, name: str) -> dict[str, Any]:
    [row] = rows_of(database, sa.select(agent_status).where(agent_status.c.agent_name == name))
    return row


def test_agent_without_history_is_idle_and_unmeasured(database: Database) -> None:
    """No run means no rate, not a rate of zero."""
    insert(database, agents, agent_name="SOLACE", agent_type="openai", capabilities=["plan"])
    row = _status(database, "SOLACE")
    assert row["status"] == "idle"
    assert row["capabilities"] == ["plan"]
    assert row["total_tasks_completed"] == 0
    assert [
        row[name] for name in ("current_task_id", "success_rate", "avg_completion_time_ms", "last_active_at")
    ] == [None] * 4


def test_agent_with_an_open_attempt_is_busy_with_the_newest(database: Database) -> None:
    """Busy wins over offline, for the run is a fact; the end of the last run makes it idle or offline again."""
    insert(database, agents, agent_name="a", agent_type="x", offline_reason="no key")
    assert _status(database, "a")["status"] == "offline"
    for number in (1, 2):
        add_task(database, task_id=f"task-{number}")
        moment = NOON + timedelta(minutes=number)
        row = {
            "task_id": f"task-{number}",
            "attempt": 1,
            "agent_name": "a",
            "owner": "o",
            "started_at": moment,
        }
        insert(database, attempts, **row)
    busy = _status(database, "a")
    assert (busy["status"], busy["current_task_id"]) == ("busy", "task-2")
    assert busy["last_active_at"] == NOON + timedelta(minutes=2)
    with database.write() as connection:
        connection.execute(sa.update(attempts).values(ended_at=NOON + timedelta(hours=1)))
    assert (_status(database, "a")["status"], _status(database, "a")["current_task_id"]) == ("offline", None)
    with database.write() as connection:
        connection.execute(sa.update(agents).values(offline_reason=None))
    assert _status(database, "a")["status"] == "idle"


def test_agent_figures_come_from_its_own_history(database: Database) -> None:
    """Rate, mean and last activity are computed from the entries of that agent alone."""
    add_task(database)
    runs = [("a", True, 100, 1), ("a", True, 200, 2), ("a", False, 601, 3), ("b", False, 9, 4)]
    for name, success, duration, minute in runs:
        row = {"agent_name": name, "task_id": "task-1", "task_type": "test", "success": success}
        moment = NOON + timedelta(minutes=minute)
        insert(database, task_history, **row, duration_ms=duration, created_at=moment)
    for name in "ab":
        insert(database, agents, agent_name=name, agent_type="x")
    row = _status(database, "a")
    assert row["total_tasks_completed"] == 2
    assert row["success_rate"] == pytest.approx(2 / 3)
    assert isinstance(row["success_rate"], float)
    assert row["avg_completion_time_ms"] == 300
    assert row["last_active_at"] == NOON + timedelta(minutes=3)
    assert (_status(database, "b")["total_tasks_completed"], _status(database, "b")["success_rate"]) == (
        0,
        0.0,
    )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE agent_status SET status = 'idle'",
        "UPDATE agent_status SET agent_type = 'x'",
        "DELETE FROM agent_status",
        "INSERT INTO agent_status (agent_name, agent_type) VALUES ('n', 't')",
    ],
)
def test_agent_status_cannot_be_written(database: Database, statement: str) -> None:
    """A display status is computed; no database lets anyone store one."""
    insert(database, agents, agent_name="a", agent_type="x")
    with pytest.raises(sa.exc.DBAPIError), database.write() as connection:
        connection.exec_driver_sql(statement)
    assert [row["agent_name"] for row in rows_of(database, sa.select(agents))] == ["a"]
