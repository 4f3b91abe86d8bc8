"""`proctor undo`: bring the workspace back to the state before the last restore or governed run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.backup import (
    open_backups,
    print_changes,
    print_restored,
    show_progress,
    this_workspace,
)
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.cli.permission import PermitSource
    from proctor.workspace.backups import Backups

__all__ = ["undo_command"]


def undo_command(request_permit: PermitSource) -> click.Command:
    """Make `proctor undo` with the gate behind it."""

    @click.command("undo")
    @click.argument("name", required=False, default="")
    @click.option("--workspace", type=click.Path(path_type=Path), help="By default the one around here.")
    @click.option("--list", "listed", is_flag=True, help="Show what can be taken back.")
    @click.option("--dry-run", is_flag=True, help="Only say what would change.")
    @json_option
    def undo(name: str, workspace: Path | None, listed: bool, dry_run: bool, as_json: bool) -> None:
        """Take back the last change, or go back to the state NAME; the present state is saved first."""
        backups, place = open_backups(), this_workspace(workspace)
        if listed:
            _print_points(backups, place, as_json)
        else:
            _undo(backups, place, name, dry_run, as_json, request_permit)

    return undo


def _undo(
    backups: Backups, place: Path, name: str, dry_run: bool, as_json: bool, request_permit: PermitSource
) -> None:
    from proctor.workspace.restore import RESTORE_TOOL
    from proctor.workspace.undo import choose_undo, preview_undo, undo

    point = choose_undo(backups, place, name)
    if dry_run:
        print_changes(preview_undo(backups, point).rows(), as_json)
        return
    arguments = {"backup_path": str(point.backup.path), "workspace_path": str(point.backup.workspace)}
    permit = request_permit(tool=RESTORE_TOOL, arguments=arguments)
    print_restored(undo(backups, point, permit=permit, progress=show_progress()), as_json)


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
