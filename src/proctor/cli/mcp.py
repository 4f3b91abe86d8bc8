"""`proctor mcp`: serve the tools to one MCP client on standard input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

__all__ = ["mcp"]


@click.command()
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where calls act; the repository around the current directory by default.",
)
@click.option(
    "--hold",
    type=click.FloatRange(0, 20),
    default=20,
    show_default=True,
    help="Seconds a call waits for your answer before it says that it waits.",
)
def mcp(workspace: Path | None, hold: float) -> None:
    """Serve Proctor's tools over MCP on standard input and output; a CLI agent starts this, not you.

    `proctor integrate claude|codex|gemini` writes the entry. Calls are an agent's: with the task's token in its environment
    those of the task, else those of an agent named after the client. What the profile asks about waits in `proctor inbox`.
    """
    import importlib

    from proctor.app import open_app

    # By name, as every command is found: the rooms of CLI and server do not know each other.
    server: Any = importlib.import_module("proctor.server.mcp_stdio")
    place = None if workspace is None else workspace.resolve()
    app = open_app(place)
    try:
        server.serve_stdio(app, workspace=place, hold_s=hold)
    finally:
        app.close()
