"""`proctor config`: every setting, its value and where it comes from; secrets are never printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.config import Row

__all__ = ["config"]


@click.group(cls=Commands, invoke_without_command=True)
@json_option
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> None:
    """Show the settings and where each comes from."""
    if ctx.invoked_subcommand is None:
        _print_rows(_rows(), as_json)


@config.command("get")
@click.argument("key")
@json_option
@click.pass_context
def get(ctx: click.Context, key: str, as_json: bool) -> None:
    """Print the value of KEY, or all settings below it."""
    rows = _rows()
    exact = [row for row in rows if row.key == key]
    below = [row for row in rows if row.key.startswith(f"{key}.")]
    as_json = as_json or _asked_above(ctx)
    if below:
        _print_rows(below, as_json)
    elif not exact:
        raise _unknown(key, [row.key for row in rows])
    elif as_json:
        print_json(exact[0]._asdict())
    elif exact[0].value is not None:
        click.echo(_plain(exact[0].value, "\n"))


@config.command("path")
@json_option
@click.pass_context
def path(ctx: click.Context, as_json: bool) -> None:
    """Print the files and directories that Proctor uses here; works while a settings file is wrong."""
    places = _places()
    if as_json or _asked_above(ctx):
        print_json(places)
    else:
        print_table(["WHAT", "WHERE"], [(name, where or "none") for name, where in places.items()])


def _rows() -> list[Row]:
    from proctor.config import load_settings, show_settings

    return show_settings(load_settings())


def _asked_above(ctx: click.Context) -> bool:
    return bool(ctx.parent and ctx.parent.params.get("as_json"))


def _print_rows(rows: Sequence[Row], as_json: bool) -> None:
    if as_json:
        print_json({row.key: {"value": row.value, "source": row.source} for row in rows})
    else:
        print_table(
            ["SETTING", "VALUE", "SOURCE"], [(row.key, _plain(row.value, "; "), row.source) for row in rows]
        )


def _plain(value: Any, between: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return between.join(map(str, value)) or "-"
    return str(value)


def _unknown(key: str, known: Sequence[str]) -> Exception:
    import difflib

    from proctor.protocol.errors import NotFoundError

    near = difflib.get_close_matches(key, known)
    cure = f"Did you mean {' or '.join(near)}?" if near else "`proctor config` lists them all."
    return NotFoundError(kind="setting", name=key, cure=cure)


def _places() -> dict[str, Path | None]:
    from proctor.config import LOCAL_FILE, SHARED_FILE, Paths, current_directory, environment, find_workspace

    paths = Paths.from_environ(environment())
    workspace = find_workspace(current_directory())
    files = [workspace / name for name in (SHARED_FILE, LOCAL_FILE, ".env")] if workspace else []
    return {
        "workspace": workspace,
        **{file.name: file if file.is_file() else None for file in files},
        "state": paths.state_dir,
        "data": paths.data_dir,
        "cache": paths.cache_dir,
        "socket": paths.socket,
        "token": paths.token_file,
        "log": paths.log_file,
    }
