"""`proctor undo`: bring the workspace back to the state before the last restore or governed run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.backup import bring_back, open_backups, print_changes, this_workspace
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.workspace.backups import Backup, Backups
    from proctor.workspace.history import Choice

__all__ = ["undo"]


@click.command()
@click.argument("name", required=False, default="")
@click.option("--workspace", type=click.Path(path_type=Path), help="By default the one around here.")
@click.option("--list", "listed", is_flag=True, help="Show what can be taken back.")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option(
    "--keep-commits", is_flag=True, help="If git moved on since: bring back the files, leave git alone."
)
@click.option("--with-git", is_flag=True, help="If git moved on since: bring back branches and index too.")
@json_option
def undo(
    name: str,
    workspace: Path | None,
    listed: bool,
    dry_run: bool,
    keep_commits: bool,
    with_git: bool,
    as_json: bool,
) -> None:
    """Take back the last change, or go back to the state NAME; the present state is saved first.

    If commits were made or the branch was changed since, nothing happens until you say what is meant: --keep-commits
    or --with-git. Neither deletes a commit.
    """
    from proctor.workspace.undo import choose_undo, preview_undo

    history = _choice(keep_commits, with_git)

    backups, place = open_backups(), this_workspace(workspace)
    if listed:
        _print_points(backups, place, as_json)
        return
    point = choose_undo(backups, place, name)
    if dry_run:
        _say_moved(point.backup, place)
        print_changes(preview_undo(backups, point, history=history).rows(), as_json)
    else:
        bring_back(point.backup, as_undo=True, history=history, as_json=as_json)


def _choice(keep_commits: bool, with_git: bool) -> Choice:
    if keep_commits and with_git:
        raise click.UsageError("--keep-commits and --with-git exclude each other.")
    return "keep" if keep_commits else "restore" if with_git else "refuse"


def _say_moved(backup: Backup, place: Path) -> None:
    from proctor.workspace.history import moved_since

    moved = moved_since(backup.stood, place)
    if moved is None:
        return
    click.echo(f"Since then {moved.sentence()}; say --keep-commits or --with-git.", err=True)
    for line in moved.commits:
        click.echo(f"  {line}", err=True)


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
        click.echo("Nothing to take back here.")
        return
    state = [
        (point.backup.name, "undone" if point.undone else "can be undone", point.what) for point in points
    ]
    print_table(("NAME", "STATE", "SAVED"), state)
