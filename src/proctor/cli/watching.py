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

    task = _in_a_trace(app, name)
    asked: set[str] = set()
    with Cursor(app.database, trace_id=task.trace_id or task.task_id) as cursor:
        try:
            while True:
                # The row is read before the events: an end that is seen has all its events before it.
                task = app.tasks.show(task.task_id).task
                rests = _rests(task.status) and not _answered(app, task)
                found = cursor.read(0.0 if rests else _LOOK_SECONDS)
                for event in found:
                    print_event(event, as_json)
                if not found and not as_json and _ask(app, task, asked):
                    continue
                if not found and rests:
                    return _tell(task, as_json)
        except KeyboardInterrupt:
            click.echo(
                f"\nIt goes on without you; `proctor tasks watch {task.task_id}` comes back.", err=True
            )
            raise


def _in_a_trace(app: App, name: str) -> Task:
    """The task once its events have a place: a row that another program put in gets its trace when it is adopted."""
    import time

    task = app.tasks.get(name)
    while task.trace_id is None and not _rests(task.status):
        time.sleep(_LOOK_SECONDS)
        task = app.tasks.get(task.task_id)
    return task


def _ask(app: App, task: Task, asked: set[str]) -> bool:
    """Let the person here answer what the task waits for, each question once."""
    from proctor.cli.asking import answer_here, at_terminal

    if not at_terminal():
        return False
    new = [name for name in _questions(app, task, "pending") if name not in asked]
    asked.update(new)
    answers = [answer_here(app, name) for name in new]
    return any(answers)


def _answered(app: App, task: Task) -> bool:
    """Whether it is parked with nothing left to answer: it goes on by itself as soon as it is handed out again."""
    from proctor.protocol.states import TaskState

    waits = task.status is TaskState.AWAITING_APPROVAL
    return (
        waits
        and not _questions(app, task, "pending", "timeout")
        and bool(_questions(app, task, "approved", "rejected"))
    )


def _questions(app: App, task: Task, *states: str) -> list[str]:
    import sqlalchemy as sa

    from proctor.store.tables import approvals

    mine = sa.and_(approvals.c.task_id == task.task_id, approvals.c.status.in_(states))
    query = sa.select(approvals.c.approval_id).where(mine, approvals.c.used_at.is_(None))
    with app.database.read() as connection:
        return list(connection.execute(query.order_by(approvals.c.requested_at)).scalars())


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
