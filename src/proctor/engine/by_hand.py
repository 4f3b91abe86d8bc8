"""What a person decides about a task by hand: who is to do it, and that it is given up; with its event, in one go."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from proctor.engine.tasks import Task, draft_of, find_task, void_questions
from proctor.protocol.errors import RefusedError
from proctor.protocol.events import ActorKind, Draft, EventStatus
from proctor.protocol.states import TASK, TaskState
from proctor.store.tables import task_queue

__all__ = ["assign_task", "give_up_task"]

MAX_REASON = 4000


def assign_task(connection: sa.Connection, name: str, agent: str, *, by: str) -> tuple[str, list[Draft]]:
    """Say who is to do a task that has not begun; whoever is to do it already stays so without a word."""
    task = find_task(connection, name, lock=True)
    if task.owner is not None or task.status in TASK.terminal:
        raise RefusedError(
            reason=f"{task.task_id} is {task.status.value}",
            cure="Only a task that has not begun can change hands.",
        )
    if task.agent == agent:
        return task.task_id, []
    # Not queued any more: the dispatcher looks at it anew, with the new name.
    values = {
        "assigned_to_agent": agent,
        "status": TaskState.PENDING.value,
        "queued_at": None,
        "assigned_at": None,
    }
    keeps = task.status in {TaskState.BLOCKED, TaskState.AWAITING_APPROVAL, TaskState.RECOVERING}
    _update(connection, task, {"assigned_to_agent": agent} if keeps else values)
    return task.task_id, [
        _by(task, "task_assigned", by, EventStatus.SUCCESS, {"agent": agent, "was": task.agent})
    ]


def give_up_task(
    connection: sa.Connection, name: str, reason: str, *, by: str, now: datetime
) -> tuple[str, list[Draft]]:
    """End a task as failed because a person says so; one that runs is asked to stop and ends as cancelled."""
    task = find_task(connection, name, lock=True)
    if task.status in TASK.terminal:
        TASK.step(task.status, TaskState.FAILED)
    if task.owner is not None:
        _update(connection, task, {"cancel_requested": True})
        return task.task_id, []
    shown = reason[:MAX_REASON]
    values = {
        "status": TASK.step(task.status, TaskState.FAILED).value,
        "error_log": shown,
        "completed_at": now,
        "queued_at": None,
    }
    _update(connection, task, values)
    void_questions(connection, task.task_id)
    details = {"was": task.status.value, "error": shown}
    return task.task_id, [_by(task, "task_failed", by, EventStatus.ERROR, details)]


def _update(connection: sa.Connection, task: Task, values: dict[str, Any]) -> None:
    connection.execute(task_queue.update().where(task_queue.c.task_id == task.task_id).values(values))


def _by(task: Task, event: str, name: str, status: EventStatus, details: dict[str, Any]) -> Draft:
    return draft_of(
        task.task_id,
        task.trace_id or task.task_id,
        event,
        actor=ActorKind.HUMAN,
        actor_name=name,
        session_id=task.session_id,
        status=status,
        details=details,
    )
