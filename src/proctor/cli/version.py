"""`proctor version`."""

from __future__ import annotations

import click

from proctor import __version__
from proctor.cli.output import json_option, print_json

__all__ = ["version"]


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        import platform

        print_json(
            {"proctor": __version__, "python": platform.python_version(), "platform": platform.platform()}
        )
    else:
        click.echo(f"proctor {__version__}")
