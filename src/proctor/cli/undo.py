"""`proctor undo`: bring the workspace back to the state before the last restore or governed run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.backup import bring_back, open_backups, print_changes, this_workspace
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.workspace.backups import Backups

__all__ = ["undo"]


@click.command()
@click.argument("name", required=False, default="")
@click.option("--workspace", type=click.Path(path_type=Path), help="By default the one around here.")
@click.option("--list", "listed", is_flag=True, help="Show what can be taken back.")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@json_option
def undo(name: str, workspace: Path | None, listed: bool, dry_run: bool, as_json: bool) -> None:
    """Take back the last change, or go back to the state NAME; the present state is saved first."""
    from proctor.workspace.undo import choose_undo, preview_undo

    backups, place = open_backups(), this_workspace(workspace)
    if listed:
        _print_points(backups, place, as_json)
        return
    point = choose_undo(backups, place, name)
    if dry_run:
        print_changes(preview_undo(backups, point).rows(), as_json)
    else:
        bring_back(point.backup, as_undo=True, as_json=as_json)


def _print_points(backups: Backups, place: Path, as_json: bool) -> None:
    from proctor.workspace.undo import undo_points

    points = undo_points(backups, place)
    if as_json:
        rows = [
            {
                "name": point.backup.name,
                "id": point.backup.id,
                "created_at": point.backup.created_at,
                "what": point.what,
                "undone": point.undone,
            }
            for point in points
        ]
        print_json(rows)
        return
    if not points:
        click.echo("Nothing to take back here.", err=True)
        return
    state = [
        (point.backup.name, "undone" if point.undone else "can be undone", point.what) for point in points
    ]
    print_table(("NAME", "STATE", "SAVED"), state)
