"""`proctor compat`: where the façades are that import under the seeds' own names."""

from __future__ import annotations

from pathlib import Path

import click

import proctor
from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json

__all__ = ["compat"]


@click.group(cls=Commands)
def compat() -> None:
    """Use Proctor under the seeds' own module names."""


@compat.command("path")
@json_option
def path(as_json: bool) -> None:
    """Print the directory to put on PYTHONPATH.

    With it `from cuga.orchestrator import AGENTSCoordinator`, `from coordinator import AgentCoordinator` and
    `import file_operations` work: PYTHONPATH=$(proctor compat path) python client.py
    """
    place = Path(proctor.__file__).parent / "compat" / "path"
    if as_json:
        names = {
            one.stem for one in place.iterdir() if one.suffix == ".py" or (one / "__init__.py").is_file()
        }
        print_json({"path": str(place), "packages": sorted(names)})
    else:
        click.echo(place)
