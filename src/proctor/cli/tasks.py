"""`proctor tasks`: put work into the queue and look at it. These commands never execute anything themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.app import App
    from proctor.engine.tasks import Task

__all__ = ["tasks"]

MAX_ERROR = 200


@click.group(cls=Commands, default="list")
def tasks() -> None:
    """Put work into the queue and look at it."""


@tasks.command("add")
@click.argument("description")
@click.option("--agent", help="Who is to do it; chosen by what it is good at when not given.")
@click.option("--type", "task_type", default="task", show_default=True, help="Kind of work, for routing.")
@click.option("--priority", type=click.IntRange(1, 10), default=5, show_default=True, help="10 is critical.")
@click.option(
    "--after", "depends_on", multiple=True, metavar="TASK", help="Wait for this task; may be repeated."
)
@click.option(
    "--file", "file_paths", multiple=True, metavar="PATH", help="A file it is about; may be repeated."
)
@click.option("--context", metavar="JSON", default="{}", help="Further facts as a JSON object.")
@click.option("--deadline", metavar="TIME", help="ISO 8601, for example 2027-01-31T12:00:00+00:00.")
@click.option(
    "--retries", type=click.IntRange(0, 100), default=2, show_default=True, help="Tries after the first."
)
@click.option("--no-repository", is_flag=True, help="Work in an empty directory instead of a worktree.")
@click.option("--watch", "-w", is_flag=True, help="Show what happens until it has ended or needs you.")
@json_option
def add(
    description: str,
    agent: str | None,
    task_type: str,
    priority: int,
    depends_on: tuple[str, ...],
    file_paths: tuple[str, ...],
    context: str,
    deadline: str | None,
    retries: int,
    no_repository: bool,
    watch: bool,
    as_json: bool,
) -> int:
    """Add a task; it goes on when this command has ended, also when the terminal is closed."""
    from proctor.app import open_app
    from proctor.cli.watching import watch_task
    from proctor.engine.tasks import NewTask

    app = open_app()
    try:
        if agent is not None:
            agent = _known_agent(app, agent)
        new = NewTask(
            description=description,
            task_type=task_type,
            priority=priority,
            agent=agent,
            file_paths=file_paths,
            depends_on=depends_on,
            context=_object(context),
            deadline=_moment(deadline),
            max_retries=retries,
            workspace=None if no_repository else _workspace(app),
        )
        task = app.tasks.add(new)
        if watch:
            _see_to_it(app, task, lambda: None)
            return watch_task(app, task.task_id, as_json=as_json)
        words = f"added. `proctor tasks watch {task.task_id}` shows how it goes on."
        _see_to_it(app, task, lambda: _tell(task, words, as_json))
    finally:
        app.close()
    return 0


def _tell(task: Task, words: str, as_json: bool) -> None:
    if as_json:
        print_json(asdict(task))
    else:
        click.echo(f"{task.task_id}  {words}")


def _see_to_it(app: App, task: Task, tell: Callable[[], None]) -> None:
    """Have somebody execute what was written down, then tell; when nobody can be had, it stands and is told too.

    Who reads no id adds the task again, and it is done twice.
    """
    from proctor.engine.client import ensure
    from proctor.protocol.errors import UnavailableError

    try:
        ensure(app.settings)
    except UnavailableError:
        click.echo(f"{task.task_id} is {task.status}; that is written down and stays.", err=True)
        raise
    finally:
        tell()


def _known_agent(app: App, name: str) -> str:
    from proctor.agents.roster import Roster

    return Roster(app.settings.agents).get(name).name


def _workspace(app: App) -> str | None:
    return str(app.settings.workspace) if app.settings.workspace is not None else None


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--context is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError("--context must be a JSON object, for example '{\"ticket\": 7}'.")
    return value


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"--deadline: {error}") from error
    return moment if moment.tzinfo is not None else moment.astimezone(UTC)


@tasks.command("list")
@click.option("--all", "everything", is_flag=True, help="Also tasks that have ended.")
@click.option("--status", multiple=True, help="Only tasks with this status; may be repeated.")
@click.option("--agent", help="Only tasks of this agent.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many."
)
@json_option
def list_tasks(
    everything: bool, status: tuple[str, ...], agent: str | None, limit: int, as_json: bool
) -> None:
    """List open tasks, the newest first."""
    from proctor.app import open_app
    from proctor.protocol.states import TASK, TaskState

    known = [state.value for state in TaskState]
    if unknown := sorted(set(status) - set(known)):
        raise click.UsageError(f"--status {unknown[0]}: not a status; known: {', '.join(known)}")
    wanted = status or [s.value for s in TaskState if everything or s not in TASK.terminal]
    app = open_app()
    try:
        found = app.tasks.list(status=wanted, agent=agent, limit=limit + 1)
    finally:
        app.close()
    if more := len(found) > limit:
        found = found[:limit]
    if as_json:
        print_json([asdict(task) for task in found])
    elif not found:
        click.echo('No tasks. Add one with `proctor tasks add "…" --agent NAME`.')
    else:
        print_table(("TASK", "STATUS", "PRIORITY", "AGENT", "DESCRIPTION"), [_row(task) for task in found])
    if more:
        click.echo(f"… truncated: only the newest {limit}; --limit shows up to 1000.", err=as_json)


def _row(task: Task) -> tuple[object, ...]:
    line = next(iter(task.description.strip().splitlines()), "")
    return task.task_id, task.status.value, task.priority, task.agent or "-", line[:60]


@tasks.command("show")
@click.argument("task")
@json_option
def show(task: str, as_json: bool) -> None:
    """Show a task with every attempt: duration, success, error, tokens."""
    from proctor.app import open_app

    app = open_app()
    try:
        detail = app.tasks.show(task)
        waits = _why(app, detail.task)
    finally:
        app.close()
    if as_json:
        past = {"attempts": detail.attempts, "history": detail.history}
        print_json({**asdict(detail.task), "waits_because": waits, **past})
        return
    found = detail.task
    click.echo(f"{found.task_id}  {found.status}  priority {found.priority}  agent {found.agent or '-'}")
    click.echo(found.description)
    for label, value in {**_facts(found), **({"waits": waits} if waits else {})}.items():
        click.echo(f"  {label}: {value}")
    if detail.attempts:
        headers = ("ATTEMPT", "AGENT", "OUTCOME", "DURATION", "TOKENS", "ERROR")
        print_table(headers, [_attempt(row) for row in detail.attempts])


def _why(app: App, task: Task) -> str | None:
    """Why it waits; the agents are looked at only when that is the question."""
    from pathlib import Path

    from proctor.agents.health import health_of_all
    from proctor.agents.roster import Roster
    from proctor.engine.agent_facts import AgentFact, agent_facts
    from proctor.engine.waits import why_it_waits
    from proctor.protocol.errors import ConfigError
    from proctor.store.glance import glance

    def agents() -> list[AgentFact]:
        settings = app.settings_for(Path(task.workspace) if task.workspace else None)
        listed = Roster(settings.agents).agents()
        with glance(app.settings.database_url) as look:
            return agent_facts(look, listed, health_of_all(listed, settings.environ))

    try:
        with app.database.read() as connection:
            return why_it_waits(connection, task, agents, datetime.now(UTC))
    except ConfigError as error:
        return f"the settings of its workspace cannot be used: {error}"


@tasks.command("watch")
@click.argument("task")
@json_option
def watch(task: str, as_json: bool) -> int:
    """Show what happens to a task until it has ended or needs you; leaving does not stop it.

    Exit code 0 when it completed, 1 when it failed or was cancelled, 3 when it needs you.
    """
    from proctor.app import open_app
    from proctor.cli.watching import watch_task

    app = open_app()
    try:
        return watch_task(app, task, as_json=as_json)
    finally:
        app.close()


def _facts(task: Task) -> dict[str, object]:
    result = task.result or {}
    facts: dict[str, object | None] = {
        "trace": task.trace_id,
        "workspace": task.workspace,
        "type": task.task_type if task.task_type != "task" else None,
        "files": ", ".join(task.file_paths),
        "depends on": ", ".join(task.depends_on),
        "deadline": task.deadline,
        "branch": result.get("branch"),
        "commit": result.get("commit"),
        "error": task.error,
        "simulated": "yes" if result.get("simulated") else None,
    }
    return {label: value for label, value in facts.items() if value}


def _attempt(row: Any) -> tuple[object, ...]:
    tokens = (row["input_tokens"] or 0) + (row["output_tokens"] or 0)
    simulated = " (simulated)" if row["simulated"] else ""
    outcome = row["outcome"] or "running"
    error = row["error"] or ""
    told = error if len(error) <= MAX_ERROR else f"{error[:MAX_ERROR]}…"
    return row["attempt"], row["agent_name"] + simulated, outcome, _duration(row), tokens, told


def _duration(row: Any) -> str:
    """How long it took, or has taken so far."""
    seconds = ((row["ended_at"] or datetime.now(UTC)) - row["started_at"]).total_seconds()
    return f"{max(0.0, seconds):.1f} s"


@tasks.command("cancel")
@click.argument("task")
@json_option
def cancel(task: str, as_json: bool) -> None:
    """Cancel a task; what runs is stopped with its whole process tree, its work is kept."""
    _change(task, "cancel", as_json)


@tasks.command("retry")
@click.argument("task")
@json_option
def retry(task: str, as_json: bool) -> None:
    """Try a failed or cancelled task again, as a new attempt."""
    _change(task, "retry", as_json)


def _change(name: str, verb: str, as_json: bool) -> None:
    import getpass

    from proctor.app import open_app

    app = open_app()
    try:
        change = app.tasks.cancel if verb == "cancel" else app.tasks.retry
        task = change(name, by=getpass.getuser())
        stopping = " (stopping)" if task.cancel_requested else ""
        _see_to_it(app, task, lambda: _tell(task, f"{task.status}{stopping}", as_json))
    finally:
        app.close()
