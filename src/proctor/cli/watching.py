"""Stay beside a task until it has ended or needs a person. Whoever watches changes nothing: leaving leaves it running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from proctor.cli.event_lines import print_event
from proctor.cli.output import print_json

if TYPE_CHECKING:
    from proctor.app import App
    from proctor.engine.tasks import Task
    from proctor.protocol.states import TaskState

__all__ = ["watch_task"]

_LOOK_SECONDS = 1.0
EXIT_FAILED, EXIT_NEEDS_YOU = 1, 3


def watch_task(app: App, name: str, *, as_json: bool) -> int:
    """Show the task's events as they come; the exit code says how it ended."""
    from proctor.trace.cursor import Cursor

    task = app.tasks.show(name).task
    with Cursor(app.database, trace_id=task.trace_id) as cursor:
        try:
            while True:
                # The row is read before the events: an end that is seen has all its events before it.
                task = app.tasks.show(task.task_id).task
                found = cursor.read(0.0 if _rests(task.status) else _LOOK_SECONDS)
                for event in found:
                    print_event(event, as_json)
                if not found and _rests(task.status):
                    return _tell(task, as_json)
        except KeyboardInterrupt:
            click.echo(
                f"\nIt goes on without you; `proctor tasks watch {task.task_id}` comes back.", err=True
            )
            raise


def _rests(state: TaskState) -> bool:
    """Whether nothing more will come by itself."""
    from proctor.protocol.states import TASK, TaskState

    return state in TASK.terminal or state in {TaskState.AWAITING_APPROVAL, TaskState.BLOCKED}


def _tell(task: Task, as_json: bool) -> int:
    from proctor.protocol.states import TASK, TaskState

    needs_you = task.status not in TASK.terminal
    if as_json:
        print_json({"task_id": task.task_id, "status": task.status, "error": task.error}, line=True)
    else:
        cure = " `proctor inbox` says what it needs." if needs_you else ""
        error = f": {task.error}" if task.error else "."
        simulated = " (simulated)" if (task.result or {}).get("simulated") else ""
        click.echo(f"{task.task_id}  {task.status}{simulated}{error}{cure}")
    if needs_you:
        return EXIT_NEEDS_YOU
    return 0 if task.status is TaskState.COMPLETED else EXIT_FAILED
