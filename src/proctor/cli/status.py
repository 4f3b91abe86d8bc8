"""`proctor status`, also bare `proctor`: what needs you, what runs, what waits, what has finished, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.output import columns, fold, json_option, paint, print_json

if TYPE_CHECKING:
    from proctor.config import Settings
    from proctor.engine.overview import (
        Approval,
        Blocked,
        Ended,
        Listed,
        OfflineAgent,
        Overview,
        Pause,
        Running,
    )

__all__ = ["status"]

SHORT = 10
LONG = 1000
TITLE = 60
_NEXT = "  → "


@click.command()
@click.option("--all", "everything", is_flag=True, help=f"Longer lists: up to {LONG} of each kind.")
@json_option
def status(everything: bool, as_json: bool) -> None:
    """Show what needs you, what runs, what waits and what has finished, in all your repositories.

    Only looks: nothing is started or changed.
    """
    from proctor.config import load_settings
    from proctor.engine.overview import overview
    from proctor.store.glance import glance

    settings = load_settings()
    here = str(settings.workspace) if settings.workspace is not None else None
    with glance(settings.database_url) as look:
        found = overview(look, workspace=here, limit=LONG if everything else SHORT)
    if as_json:
        print_json({**_as_dict(found), "server": _server(settings)})
        return
    lines = list(_lines(found))
    for line in lines or ["Nothing runs, waits or needs you."]:
        click.echo("\n".join(_fitted(line)))
    for line in _hint(found, settings):
        click.echo("\n".join(fold(line)))


def _fitted(line: str) -> list[str]:
    """A row that is too long for the terminal gets its command on a line of its own, to be copied."""
    if len(line) <= (columns() or len(line)):
        return [line]
    head, _, command = line.partition(_NEXT)
    return [*fold(head.strip(), 2, 4), *([f"      {_NEXT.strip()} {command}"] if command else [])]


def _server(settings: Settings) -> dict[str, Any] | None:
    """Where the supervisor's pages and API are; None while none listens."""
    from proctor.engine.doors import read_address

    there = read_address(settings.paths)
    return None if there is None else {"http": there.http, "ws": there.ws or None, "pid": there.pid}


def _as_dict(found: Overview) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "at": found.at,
        "workspace": found.workspace,
        "needs_you": {
            "approvals": _listed(found.approvals),
            "blocked": _listed(found.blocked),
            "offline_agents": [asdict(one) for one in found.offline],
            "paused": _listed(found.paused),
            "nobody_executes": found.abandoned,
        },
        "running": _listed(found.running),
        "waiting": dict(found.waiting),
        "finished": _listed(found.finished, next_command=lambda one: _next(one, found.workspace)),
        "executors": [asdict(one) for one in found.executors],
    }


def _listed(listed: Listed[Any], next_command: Any = None) -> dict[str, Any]:
    from dataclasses import asdict

    rows = [asdict(one) | ({"next": next_command(one)} if next_command else {}) for one in listed.rows]
    return {"rows": rows, "total": listed.total, "truncated": listed.more > 0}


def _lines(found: Overview) -> Iterator[str]:
    needs = list(_needs(found))
    if needs:
        yield paint("Needs you", bold=True)
        yield from needs
    if found.running.rows:
        yield paint("Running", bold=True)
        yield from (_running(one, found) for one in found.running.rows)
        yield from _rest(found.running)
    if found.waiting:
        counts = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in found.waiting.items())
        yield f"{paint('Waiting', bold=True)}  {counts}"
    if found.finished.rows:
        yield paint("Finished", bold=True)
        for one in found.finished.rows:
            yield _finished(one, found)
        yield from _rest(found.finished)


def _needs(found: Overview) -> Iterator[str]:
    if found.abandoned:
        yield "  nobody    No supervisor runs and tasks are open: `proctor supervisor start`"
    yield from (_approval(one, found) for one in found.approvals.rows)
    yield from _rest(found.approvals)
    yield from (_blocked(one, found) for one in found.blocked.rows)
    yield from _rest(found.blocked)
    yield from (_offline(one) for one in found.offline)
    yield from (_paused(one, found) for one in found.paused.rows)
    yield from _rest(found.paused)


def _rest(listed: Listed[Any]) -> Sequence[str]:
    return [f"  … and {listed.more} more (`proctor status --all`)"] if listed.more else []


def _approval(one: Approval, found: Overview) -> str:
    asked, left = _age(one.requested_at, found.at), _age(found.at, one.expires_at)
    expires = f"expires in {left}" if one.expires_at is None or one.expires_at > found.at else "has expired"
    about = f"{one.task_id}  " if one.task_id else ""
    text = f"{one.action[:120]} ({one.risk_level} risk; asked {asked} ago, {expires})"
    return f"  approval  {one.approval_id}  {about}{text}{_where(one.workspace, found)}{_NEXT}proctor inbox"


def _blocked(one: Blocked, found: Overview) -> str:
    where = _where(one.workspace, found)
    return f"  blocked   {one.task_id}  {_short(one.title)}: {one.reason}{where}{_NEXT}proctor tasks show {one.task_id}"


def _offline(one: OfflineAgent) -> str:
    tasks = f"{one.tasks} task{'s wait' if one.tasks != 1 else ' waits'}"
    return f"  offline   {one.agent or 'everybody'}: {one.reason} ({tasks} for it)"


def _paused(one: Pause, found: Overview) -> str:
    scope = _plain(one.scope)
    kind, _, name = scope.partition(":")
    option = f" --{kind} {shlex.quote(name)}" if name else ""
    since = _age(one.changed_at, found.at)
    return f"  paused    {scope}, by {_plain(one.changed_by)} {since} ago{_NEXT}proctor resume{option}"


def _running(one: Running, found: Overview) -> str:
    simulated = " (simulated)" if one.simulated else ""
    what = "stopping" if one.cancelling else "verifying" if one.status == "verifying" else "running"
    begun = f"{what} for {_age(one.started_at, found.at)}"
    who = f"{one.agent}{simulated}  attempt {one.attempt}"
    return (
        f"  {one.task_id}  {who}  {begun}  [{_evidence(one, found)}]  {_short(one.title)}"
        f"{_where(one.workspace, found)}"
    )


def _evidence(one: Running, found: Overview) -> str:
    """What proves that it lives, or that it does not."""
    parts = [f"last event {_age(one.last_event_at, found.at)} ago" if one.last_event_at else "no event yet"]
    if one.pid is not None and one.alive is not None:
        parts.append(f"pid {one.pid} {'alive' if one.alive else 'gone'}")
    if one.owner_alive is False:
        parts.append("its supervisor is gone")
    elif one.alive is None and one.host:
        parts.append(f"on {one.host}")
    return ", ".join(parts)


def _finished(one: Ended, found: Overview) -> str:
    simulated = " (simulated)" if one.simulated else ""
    error = f": {one.error[:120]}" if one.error and one.status == "failed" else ""
    when = f"{one.status}{simulated} {_age(one.ended_at, found.at)} ago"
    where = _where(one.workspace, found)
    return f"  {one.task_id}  {when}  {_short(one.title)}{error}{where}{_NEXT}{_next(one, found.workspace)}"


def _next(one: Ended, here: str | None) -> str:
    """What one does next with it."""
    if one.status == "completed" and one.branch:
        place = f" -C {shlex.quote(one.workspace)}" if one.workspace and one.workspace != here else ""
        return f"git{place} diff HEAD...{shlex.quote(one.branch)}"
    return f"proctor tasks {'retry' if one.status == 'failed' else 'show'} {one.task_id}"


def _where(workspace: str | None, found: Overview) -> str:
    return f"  ({_plain(Path(workspace).name)})" if workspace and workspace != found.workspace else ""


def _plain(text: str) -> str:
    """Names that others chose, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _short(title: str) -> str:
    return title if len(title) <= TITLE else title[: TITLE - 1] + "…"


def _age(begin: datetime | None, end: datetime | None) -> str:
    """How long ago in the largest unit that says enough."""
    if begin is None or end is None:
        return "some time"
    seconds = max(0, int((end - begin).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _hint(found: Overview, settings: Settings) -> Iterator[str]:
    """What to do where nothing has been done yet."""
    from proctor.config import SHARED_FILE

    if found.workspace is None and not found.tasks:
        yield "Change into a git repository and run `proctor init`; `proctor demo` shows what then happens."
    elif settings.workspace is not None and not (settings.workspace / SHARED_FILE).is_file():
        yield "Next: `proctor init` writes proctor.toml for this repository."
    elif not found.tasks:
        yield 'Next: `proctor tasks add "…" --agent NAME`; `proctor agents` says who is there.'
