"""`proctor compat`: where the façades are that import under the seeds' own names."""

from __future__ import annotations

from pathlib import Path

import click

import proctor
from proctor.cli.output import json_option, print_json

__all__ = ["compat"]


@click.group()
def compat() -> None:
    """Use Proctor under the seeds' own module names."""


@compat.command("path")
@json_option
def path(as_json: bool) -> None:
    """Print the directory to put on PYTHONPATH.

    With it `from cuga.orchestrator import AGENTSCoordinator` works:
    PYTHONPATH=$(proctor compat path) python client.py
    """
    place = Path(proctor.__file__).parent / "compat" / "path"
    if as_json:
        print_json(
            {"path": str(place), "packages": sorted(one.name for one in place.iterdir() if one.is_dir())}
        )
    else:
        click.echo(place)
