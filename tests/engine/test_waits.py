"""Why a task waits: each reason that the dispatcher knows is told, in one sentence with the cure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proctor.engine.agent_facts import AgentFact
from proctor.engine.controls import set_paused
from proctor.engine.tasks import NewTask, Task
from proctor.engine.waits import why_it_waits
from proctor.protocol.states import TaskState
from tests.engine.conftest import House

SIM = AgentFact(
    name="sim",
    status="idle",
    online=True,
    reason="ready",
    cure="",
    driver="scripted",
    model="",
    version="",
    capabilities=(),
    max_parallel=1,
    simulated=True,
    seed=False,
    configured=True,
    present=True,
    paused=False,
    current_task_ids=(),
    total_attempts=0,
    total_tasks_completed=0,
    success_rate=None,
    avg_completion_time_ms=None,
    total_tokens=0,
    last_active_at=None,
)


def _why(house: House, task: Task, **more: Any) -> str | None:
    with house.database.read() as connection:
        return why_it_waits(connection, task, lambda: [replace(SIM, **more)], datetime.now(UTC))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_each_reason_is_told(house: House) -> None:
    """Agents, dependencies, back-off and pause, the most telling first."""
    task = house.tasks.add(NewTask("x", agent="sim"))
    assert "about to begin" in (_why(house, task) or "")
    assert "sim works on t1" in (_why(house, task, current_task_ids=("t1",)) or "")
    assert "no program. Install it." in (
        _why(house, task, online=False, reason="no program", cure="Install it.") or ""
    )
    assert "name no agent sim" in (_why(house, task, name="other") or "")
    nobody = house.tasks.add(NewTask("x"))
    assert "nobody can work there" in (_why(house, nobody, online=False) or "")
    later = house.tasks.add(NewTask("y", agent="sim", depends_on=[task.task_id]))
    assert f"{task.task_id} (pending)" in (_why(house, later) or "")
    again = replace(task, status=TaskState.RECOVERING, not_before=datetime.now(UTC) + timedelta(hours=1))
    assert "tried again at" in (_why(house, again) or "")
    now = datetime.now(UTC)
    house.writer.transact(lambda c: set_paused(c, ["agent:SIM"], paused=True, by="t", now=now))
    assert "proctor resume" in (_why(house, later) or "")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_runs_or_has_ended_does_not_wait(house: House) -> None:
    """Nothing is told where the state says it all."""
    task = house.tasks.add(NewTask("x", agent="sim"))
    assert _why(house, replace(task, status=TaskState.IN_PROGRESS, owner="exec")) is None
    assert _why(house, house.tasks.cancel(task.task_id, by="t")) is None
