"""`proctor pause` and `proctor resume`: let nothing new begin, everywhere or for one session or agent, and go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    import sqlalchemy as sa

    from proctor.app import App
    from proctor.protocol.events import Draft

__all__ = ["pause", "resume"]

F = TypeVar("F", bound=Callable[..., Any])


def _scope_options(command: F) -> F:
    command = click.option("--agent", metavar="NAME", help="Only tasks of this agent.")(command)
    return click.option("--session", metavar="ID", help="Only tasks of this session.")(command)


@click.command()
@_scope_options
@json_option
def pause(session: str | None, agent: str | None, as_json: bool) -> None:
    """Let nothing new begin until `proctor resume`; what runs goes on to its end."""
    _change(session, agent, paused=True, as_json=as_json)


@click.command()
@_scope_options
@json_option
def resume(session: str | None, agent: str | None, as_json: bool) -> None:
    """Go on after `proctor pause`, in the same scope: everything, one session or one agent."""
    _change(session, agent, paused=False, as_json=as_json)


def _change(session: str | None, agent: str | None, *, paused: bool, as_json: bool) -> None:
    import getpass
    from datetime import UTC, datetime

    from proctor.app import open_app
    from proctor.engine.controls import paused_scopes, set_paused

    app = open_app()
    try:
        with app.database.read() as connection:
            scopes = _scopes(app, connection, session, agent, check=paused)

        def change(connection: sa.Connection) -> tuple[list[str], list[Draft]]:
            return set_paused(connection, scopes, paused=paused, by=getpass.getuser(), now=datetime.now(UTC))

        changed = app.writer.transact(change)
        _tell_supervisor(app, paused=paused)
        with app.database.read() as connection:
            left = paused_scopes(connection)
    finally:
        app.close()
    if as_json:
        print_json({"scopes": scopes, "changed": changed, "paused": left})
    else:
        _print(scopes, changed, left, paused=paused)


def _scopes(
    app: App, connection: sa.Connection, session: str | None, agent: str | None, *, check: bool
) -> list[str]:
    """The scopes named, or everything; to resume, a name that is gone from the settings is good enough."""
    from proctor.agents.roster import Roster
    from proctor.engine.controls import ALL, find_session, scope_of

    scopes = []
    if session is not None:
        scopes.append(scope_of("session", find_session(connection, session) if check else session))
    if agent is not None:
        known = {one.name.casefold(): one.name for one in Roster(app.settings.agents).agents()}
        name = Roster(app.settings.agents).get(agent).name if check else known.get(agent.casefold(), agent)
        scopes.append(scope_of("agent", name))
    return scopes or [ALL]


def _tell_supervisor(app: App, *, paused: bool) -> None:
    """Wake it; to go on with work that waits, one must run."""
    from proctor.engine import client

    if not paused and app.tasks.list(limit=1):
        client.ensure(app.settings)
    else:
        client.wake(app.settings.paths)


def _print(scopes: Sequence[str], changed: Sequence[str], left: Sequence[str], *, paused: bool) -> None:
    word, same = ("paused", "was paused already") if paused else ("resumed", "was not paused")
    for scope in scopes:
        click.echo(f"{scope}: {word if scope in changed else same}.")
    if paused and changed:
        click.echo("What runs goes on to its end; `proctor resume` lets new work begin again.")
    elif not paused and left:
        click.echo(f"Still paused: {', '.join(left)}.")
