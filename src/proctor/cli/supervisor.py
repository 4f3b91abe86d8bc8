"""`proctor supervisor`: the background process itself; commands that need it start it by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    from proctor.app import App
    from proctor.engine.supervisor import Supervisor
    from proctor.protocol.ports import Doors

__all__ = ["supervisor"]

WAIT_SECONDS = 1.0


@click.group(cls=Commands, invoke_without_command=True)
@click.option(
    "--idle",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds without work before it leaves; 0 means never.",
)
@click.option("--wait", is_flag=True, help="When another one runs, wait until it leaves and take its place.")
@click.pass_context
def supervisor(ctx: click.Context, idle: float, wait: bool) -> None:
    """Run the supervisor in this process; leave at once when there is one already.

    You hardly need this: every command that needs the supervisor starts it.
    """
    if ctx.invoked_subcommand is None:
        import sys
        import time

        if sys.stderr.isatty():
            click.echo("Being the supervisor; Ctrl-C ends it, and what it runs goes on later.", err=True)
        while (ran := _run(idle)) is None and wait:
            time.sleep(WAIT_SECONDS)
        if ran is None:
            click.echo("One runs already: `proctor supervisor status`.", err=True)
        elif ran.replaced and wait:
            click.echo("Another version takes over; the service begins again with it.", err=True)
            ctx.exit(1)  # a service that ends well is not started again


def _run(idle: float) -> Supervisor | None:
    """Be the supervisor until the end; None when there is another one."""
    import asyncio
    import os
    from pathlib import Path

    from loguru import logger

    from proctor import __version__
    from proctor.app import open_app
    from proctor.engine.doors import LateDoors
    from proctor.engine.supervisor import Supervisor, log_to, only_one

    app = open_app(Path("/"))
    paths = app.settings.paths
    with only_one(paths.state_dir / "supervisor.lock") as first:
        if not first:
            return None
        log_to(paths.log_file, app.settings.log_level)
        logger.info("supervisor {} of Proctor {} begins", os.getpid(), __version__)
        try:
            _ = app.metrics  # before the first write, or it would not be counted
            run = Supervisor(
                lambda: app.executor(kind="supervisor"),
                app.writer,
                idle_s=idle or None,
                doors=LateDoors(lambda: _doors(app)),
            )
            asyncio.run(run.serve(paths.socket))
        finally:
            app.close()
        logger.info("supervisor {} ends", os.getpid())
    return run


def _doors(app: App) -> Doors:
    """The HTTP port; by name, as every command is found: the rooms of CLI and server do not know each other."""
    import importlib

    made: Doors = importlib.import_module("proctor.server.serving").background(app)
    return made


@supervisor.command("start")
@json_option
def start(as_json: bool) -> None:
    """Start one in the background, unless one runs."""
    from dataclasses import asdict

    from proctor.config import load_settings
    from proctor.engine.client import ensure

    hello = ensure(load_settings())
    if as_json:
        print_json(asdict(hello))
    else:
        click.echo(f"pid {hello.pid}, version {hello.version}")


@supervisor.command("status")
@json_option
def status(as_json: bool) -> None:
    """Say whether a supervisor runs, which version, and what it runs."""
    from dataclasses import asdict

    from proctor.config import load_settings
    from proctor.engine.client import greet

    hello = greet(load_settings().paths)
    if as_json:
        print_json({"running": hello is not None, **(asdict(hello) if hello is not None else {})})
    elif hello is None:
        click.echo("No supervisor runs; commands that need one start it.")
    else:
        where = f", HTTP at {hello.http}" if hello.http else ""
        click.echo(f"pid {hello.pid}, version {hello.version}, {len(hello.running)} attempts running{where}")


@supervisor.command("stop")
def stop() -> None:
    """Ask the supervisor to leave; what it runs goes on when the next one starts."""
    from proctor.config import load_settings
    from proctor.engine import client

    left = client.stop(load_settings().paths)
    click.echo("It has left." if left else "No supervisor runs.")
