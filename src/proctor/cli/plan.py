"""`proctor plan`: hand a list of governed calls to the supervisor, watch it, look at it, go on with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.app import App
    from proctor.engine.plan_rows import PlanRow
    from proctor.protocol.plans import ExecutionResult

__all__ = ["plan"]

EXIT_FAILED = 1
EXIT_NEEDS_YOU = 3
LOOK_SECONDS = 0.2
ENSURE_SECONDS = 5.0
_TEXT = 100
profile_option = click.option(
    "--profile", metavar="NAME", help="The rules that hold, instead of the file's (enterprise by default)."
)
wait_option = click.option("--no-wait", is_flag=True, help="Hand it over and leave; it goes on by itself.")


@click.group(cls=Commands, default="list")
def plan() -> None:
    """Run a list of governed calls: budgeted, asked, traced; it goes on after any interruption."""


@plan.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@profile_option
@wait_option
@json_option
def run(file: Path, profile: str | None, no_wait: bool, as_json: bool) -> int:
    """Run the plan in FILE (JSON or TOML) and watch it; exit code 3 when it waits for you.

    The same plan_id again goes on with the same plan and repeats nothing. Ctrl-C ends the watching, not the plan.
    """
    from proctor.engine.plan_file import read_plan

    wanted = read_plan(file, profile=profile)
    return _with_app(lambda app: _handed(app, lambda: _submit(app, wanted), as_json, no_wait))


def _submit(app: App, wanted: Any) -> PlanRow:
    import getpass

    return app.plans.submit(wanted, workspace=app.settings.workspace, by=getpass.getuser())


@plan.command("resume")
@click.argument("name", metavar="FILE_OR_ID")
@wait_option
@json_option
def resume(name: str, no_wait: bool, as_json: bool) -> int:
    """Go on with a plan: a failed one tries again what failed, one whose question expired asks anew."""
    import getpass

    def act(app: App) -> int:
        plan_id = _named(app, name).plan_id
        return _handed(app, lambda: app.plans.resume(plan_id, by=getpass.getuser()), as_json, no_wait)

    return _with_app(act)


@plan.command("cancel")
@click.argument("name", metavar="FILE_OR_ID")
@json_option
def cancel(name: str, as_json: bool) -> int:
    """Cancel a plan; the call that runs is asked to end, no other begins."""
    import getpass

    def act(app: App) -> int:
        row = app.plans.cancel(_named(app, name).plan_id, by=getpass.getuser())
        if row.cancel_requested:
            from proctor.engine.client import ensure

            ensure(app.settings)
        return _show(app, row.plan_id, as_json, code=0)

    return _with_app(act)


@plan.command("show")
@click.argument("name", metavar="FILE_OR_ID")
@json_option
def show(name: str, as_json: bool) -> int:
    """Show how a plan stands: each step, what failed and why, budget and questions.

    A FILE stands for the plan it was last run as.
    """
    return _with_app(lambda app: _show(app, _named(app, name).plan_id, as_json, code=0))


@plan.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@json_option
def list_plans(limit: int, as_json: bool) -> int:
    """List the newest plans."""

    def act(app: App) -> int:
        rows = app.plans.list(limit=limit)
        if as_json:
            print_json([_row(row) for row in rows])
        elif not rows:
            click.echo("No plans. Run one with `proctor plan run FILE`.")
        else:
            lines = [(r.plan_id, _stage(r), r.profile, (r.goal.splitlines() or [""])[0][:60]) for r in rows]
            print_table(("PLAN", "STAGE", "PROFILE", "GOAL"), lines)
        return 0

    return _with_app(act)


# ── shared ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_app(act: Callable[[App], int]) -> int:
    from proctor.app import open_app

    app = open_app()
    try:
        return act(app)
    finally:
        app.close()


def _named(app: App, name: str) -> PlanRow:
    """A plan by its id, a unique beginning of it, or the file it was last run from."""
    from proctor.engine.plan_file import read_plan_file
    from proctor.protocol.errors import NotFoundError

    if not Path(name).is_file():
        return app.plans.get(name)
    file = read_plan_file(Path(name))
    found = app.plans.of_file(
        file.plan(), given_id=file.plan_id is not None, workspace=app.settings.workspace
    )
    if found is None:
        raise NotFoundError(
            kind="plan of the file",
            name=name,
            cure=f"As it stands it was never run: `proctor plan run {name}`.",
        )
    return found


def _handed(app: App, put: Callable[[], PlanRow], as_json: bool, no_wait: bool) -> int:
    """Put it in, wake the supervisor, then only watch."""
    from proctor.engine.client import ensure

    after = _last_seq(app)
    row = put()
    ensure(app.settings)
    if no_wait:
        return _show(app, row.plan_id, as_json, code=0)
    _watch(app, row, after, quiet=as_json)
    return _show(app, row.plan_id, as_json)


def _last_seq(app: App) -> int:
    from proctor.trace.reader import last_seq

    with app.database.read() as connection:
        return last_seq(connection)


def _watch(app: App, row: PlanRow, after: int, *, quiet: bool) -> None:
    """Print the plan's events until it has ended or waits for a person."""
    import time

    from proctor.cli.asking import answer_here
    from proctor.engine.client import ensure
    from proctor.trace.reader import page

    looked = time.monotonic()
    while True:
        standing = app.plans.get(row.plan_id)
        with app.database.read() as connection:
            events = page(connection, after=after)
        after = events[-1].seq if events else after
        for event in events:
            if event.task_id == row.plan_id and not quiet:
                _print_event(event)
        if not events and standing.completed_at is not None:
            return
        if not events and app.plans.stuck(standing):
            if quiet or not answer_here(app, standing.waiting_for or ""):
                return
            continue
        if not events and time.monotonic() - looked > ENSURE_SECONDS:
            ensure(app.settings)  # it may have died meanwhile
            looked = time.monotonic()
        if not events:
            time.sleep(LOOK_SECONDS)


def _print_event(event: Any) -> None:
    took = "" if event.duration_ms is None else f"  {event.duration_ms:.0f} ms"
    simulated = "  (simulated)" if event.details.get("simulated") else ""
    why = event.details.get("error") or event.details.get("action") or ""
    what = f"{event.event} {event.tool_name}" if event.tool_name else event.event
    click.echo(f"{event.status.value:<8} {what}{took}{simulated}  {str(why)[:_TEXT]}".rstrip())


def _show(app: App, plan_id: str, as_json: bool, *, code: int | None = None) -> int:
    row, result = app.plans.get(plan_id), app.plans.result(plan_id)
    if as_json:
        print_json({**_row(row), **result.as_dict(), "signals": app.plans.signals(row.trace_id)})
    else:
        _print(row, result)
    return _exit_code(result) if code is None else code


def _exit_code(result: ExecutionResult) -> int:
    if result.success:
        return 0
    return EXIT_NEEDS_YOU if result.parked else EXIT_FAILED


def _row(row: PlanRow) -> dict[str, Any]:
    names = ("plan_id", "goal", "profile", "trace_id", "workspace", "created_at", "completed_at")
    return {**{name: getattr(row, name) for name in names}, "stage": row.stage.value}


def _stage(row: PlanRow) -> str:
    return "waiting for you" if row.waiting_for is not None else row.stage.value


def _print(row: PlanRow, result: ExecutionResult) -> None:
    simulated = "  simulated" if result.simulated else ""
    click.echo(f"{row.plan_id}  {_stage(row)}{simulated}  profile {row.profile}  trace {row.trace_id}")
    click.echo(row.goal)
    if result.steps:
        lines = [
            (one.index, one.tool, one.status, one.adapter or "-", one.tries or "-", one.message[:_TEXT])
            for one in result.steps
        ]
        print_table(("STEP", "TOOL", "STATUS", "ADAPTER", "TRIES", "WHY"), lines)
    total = result.budget_utilization["total"]
    limit = "no limit" if total["limit"] is None else f"of {total['limit']}"
    click.echo(f"calls: {total['used']} {limit}")
    for note in result.notes:
        click.echo(note)
    if result.failure_context is not None:
        mode = result.failure_context
        click.echo(f"{mode['kind']}: {mode['failure_mode']} ({mode['category']}, {mode['severity']})")
        if mode["cure"]:
            click.echo(mode["cure"])
    sys.stdout.flush()
