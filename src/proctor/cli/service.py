"""`proctor service`: keep the supervisor running, also after a reboot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    from proctor.config import Settings
    from proctor.engine.service import Outcome, Service

__all__ = ["service"]


@click.group(cls=Commands)
def service() -> None:
    """Keep the supervisor running as your own service: systemd on Linux, launchd on macOS.

    Without it every command that needs the supervisor starts it, and it leaves when there is nothing to do.
    """


@service.command("install")
@json_option
def install(as_json: bool) -> None:
    """Write the service file and start it; PATH and Proctor's settings are taken from this shell."""
    wanted, _ = _planned()
    done = wanted.install()
    if as_json:
        print_json({"path": wanted.path, **_as_dict(done)})
        return
    click.echo(f"{wanted.path}: {'written' if done.changed else 'was up to date'}.")
    if done.loaded:
        click.echo("It runs. Variables of this shell other than PATH and Proctor's own are not in it.")
        if wanted.manager.kind == "systemd":
            click.echo("`loginctl enable-linger` lets it start without a login.")
    else:
        click.echo(f"It was not started ({done.reason}). Where the manager runs: {done.todo}")


@service.command("status")
@json_option
def status(as_json: bool) -> None:
    """Say whether the service is installed, current and active."""
    from proctor.engine.client import greet

    wanted, settings = _planned()
    hello = greet(settings.paths)
    facts = {
        "path": wanted.path,
        "manager": wanted.manager.kind,
        "installed": wanted.installed(),
        "current": wanted.current(),
        "state": wanted.state() if wanted.installed() else "not installed",
        "supervisor_pid": hello.pid if hello is not None else None,
    }
    if as_json:
        print_json(facts)
        return
    if not facts["installed"]:
        click.echo("Not installed; `proctor service install` does it.")
    else:
        old = "" if facts["current"] else " It differs from what install would write; run it again."
        click.echo(f"{wanted.path}: {facts['state']}.{old}")
    click.echo("No supervisor runs." if hello is None else f"A supervisor runs: pid {hello.pid}.")


@service.command("uninstall")
@json_option
def uninstall(as_json: bool) -> None:
    """Stop the service and remove its file, and nothing else."""
    wanted, _ = _planned()
    done = wanted.uninstall()
    if as_json:
        print_json({"path": wanted.path, **_as_dict(done)})
        return
    click.echo(f"{wanted.path}: {'removed' if done.changed else 'was not there'}.")
    if done.todo:
        click.echo(f"The manager did not answer ({done.reason}). Where it runs: {done.todo}")


def _as_dict(done: Outcome) -> dict[str, object]:
    return {"changed": done.changed, "loaded": done.loaded, "todo": done.todo, "reason": done.reason}


def _planned() -> tuple[Service, Settings]:
    import sys
    from pathlib import Path

    from proctor.config import load_settings
    from proctor.engine.service import plan

    # From the root: a repository's own settings and .env are none of a service's that serves them all.
    settings = load_settings(Path("/"))
    return plan(settings.environ, settings.paths, platform=sys.platform, python=sys.executable), settings
