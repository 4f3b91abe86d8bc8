"""`proctor serve`: the supervisor in the foreground, with HTTP and the seeds' WebSocket on fixed ports."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    from proctor.config import Settings

__all__ = ["serve"]


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="HTTP; 0 takes a free one.",
)
@click.option(
    "--ws-port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="The seeds' WebSocket; 0 takes a free one.",
)
@click.option(
    "--auth",
    type=click.Choice(["token", "none"]),
    default="token",
    show_default=True,
    help="none lets every program of this machine in; answers to approvals need the token all the same.",
)
@click.option(
    "--name", "names", multiple=True, metavar="HOST", help="A name a proxy reaches it by; may be repeated."
)
@click.option("--open", "show", is_flag=True, help="Show it in your browser once it listens.")
@json_option
def serve(
    host: str, port: int, ws_port: int, auth: str, names: tuple[str, ...], show: bool, as_json: bool
) -> None:
    """Serve REST, WebSocket and metrics, and execute tasks, until interrupted.

    Direct requests work in the directory it is started in. A supervisor in the background is asked to leave; what it runs
    goes on here.
    """
    from proctor.cli.proving import Progress

    progress = Progress()
    progress("Starting …")
    import importlib

    from proctor.app import open_app
    from proctor.cli.approve import recognised

    # By name, as every command is found: the rooms of CLI and server do not know each other.
    server: Any = importlib.import_module("proctor.server.serving")

    def ready(found: Any) -> None:
        progress.done()
        if as_json:
            shown = {"http": found.http, "ws": found.ws, "token_file": str(found.token_file)}
            print_json(shown, line=True)
        else:
            click.echo(f"HTTP       {found.http}\nWebSocket  {found.ws}")
            click.echo(
                f"Token      in {found.token_file}" if auth == "token" else "Token      not needed here"
            )
            sys.stdout.flush()
        if show:
            _show(app.settings, found.http)

    app = open_app()
    try:
        if show:
            recognised(app.settings)
        server.serve(app, server.Options(host, port, ws_port, auth == "token", names), ready)
    finally:
        progress.done()
        app.close()


def _show(settings: Settings, http: str) -> None:
    """Sign a browser in, from beside the server that has just begun: it must answer while it is asked."""
    import threading

    from proctor.cli.open import one_time_link, show_in_browser
    from proctor.protocol.errors import ProctorError

    def work() -> None:
        try:
            link, seconds = one_time_link(settings, http)
        except ProctorError as error:
            click.echo(str(error), err=True)
            return
        if not show_in_browser(link, settings):
            click.echo(f"Browser    {link} (works once, within {seconds // 60} minutes)", err=True)

    threading.Thread(target=work, daemon=True).start()
