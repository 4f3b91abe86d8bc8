"""Tasks in the words of the seeds' table, for the surfaces that speak them."""

from __future__ import annotations

from typing import Any

from proctor.engine.tasks import Task
from proctor.protocol.states import translate

__all__ = ["task_row"]


def task_row(task: Task) -> dict[str, Any]:
    """A task as a row of `task_queue`; `state` is our own word, finer than the seed's `status`."""
    return {
        "task_id": task.task_id,
        "task_type": task.task_type,
        "priority": task.priority,
        "status": translate(task.status, "queue"),
        "state": task.status.value,
        "created_by": task.created_by,
        "assigned_to_agent": task.agent,
        "file_paths": list(task.file_paths),
        "depends_on_task_ids": list(task.depends_on),
        "description": task.description,
        "context": dict(task.context),
        "created_at": task.created_at,
        "assigned_at": task.assigned_at,
        "started_at": task.started_at,
        "completed_at": task.completed_at,
        "deadline": task.deadline,
        "result": task.result,
        "error_log": task.error,
        "retry_count": task.retry_count,
        "trace_id": task.trace_id,
        "workspace": task.workspace,
    }
