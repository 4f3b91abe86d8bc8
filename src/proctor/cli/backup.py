"""`proctor backup`: take, list, show, check, restore and prune backups of a workspace; a restore passes the gate."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.workspace.backups import Backup, Backups
    from proctor.workspace.history import Choice
    from proctor.workspace.tree import Progress, ProgressCallback

__all__ = ["backup", "bring_back", "open_backups", "print_changes", "this_workspace"]

EXIT_FAILED = 1
EXIT_ALTERED = 7
MAX_LINES = 200


def open_backups() -> Backups:
    """Open this user's backups."""
    from proctor.config import load_settings
    from proctor.workspace.backups import Backups

    settings = load_settings()
    return Backups(settings.paths.backups_dir, keep=settings.retention.count)


def this_workspace(given: Path | None) -> Path:
    """Give the named workspace, or the one around the current directory."""
    from proctor.config import current_directory, load_settings

    return given or load_settings().workspace or current_directory()


def show_progress() -> ProgressCallback | None:
    """Draw how far it is on standard error, if somebody looks at it."""
    if not sys.stderr.isatty():
        return None

    def tell(progress: Progress) -> None:
        text = f"\r{progress.stage}: {progress.entries:,} entries, {progress.bytes / 1e6:,.0f} MB"
        click.echo(text.ljust(60), err=True, nl=False)

    return tell


def end_progress() -> None:
    """Leave the line of the progress."""
    if sys.stderr.isatty():
        click.echo(err=True)


def as_row(backup: Backup) -> dict[str, Any]:
    """Say all about a backup in JSON."""
    rest = {"backup_path": str(backup.path), "name": backup.name, "timestamp": backup.timestamp}
    problems = [{"path": _text(path), "reason": reason} for path, reason in backup.problems]
    own = asdict(backup) | {"workspace": _text(str(backup.workspace))}
    del own["path"]
    return rest | own | {"complete": backup.complete, "problems": problems}


@click.group(cls=Commands, default="list")
def backup() -> None:
    """Take, list, check, restore and prune exact backups of a workspace."""


@backup.command()
@click.argument("workspace", type=click.Path(path_type=Path), required=False)
@click.option("--reason", default="", help="Why; shown in the list.")
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Leave out what this .gitignore line matches."
)
@json_option
def create(workspace: Path | None, reason: str, exclude: tuple[str, ...], as_json: bool) -> int:
    """Back up WORKSPACE (by default the one around the current directory), .git and all."""
    made = open_backups().create(
        this_workspace(workspace), reason=reason, exclude=exclude, progress=show_progress()
    )
    end_progress()
    if as_json:
        print_json(as_row(made))
    else:
        click.echo(made.path)
        click.echo(f"{made.entries:,} entries, {_size(made.size)}; {_size(made.stored_bytes)} new.", err=True)
    for path, reason_ in made.problems[:MAX_LINES]:
        click.echo(f"not in the backup: {_printable(path)}: {reason_}", err=True)
    return 0 if made.complete else EXIT_FAILED


@backup.command("list")
@click.argument("workspace", type=click.Path(path_type=Path), required=False)
@click.option("--all", "every", is_flag=True, help="Of all workspaces.")
@json_option
def list_(workspace: Path | None, every: bool, as_json: bool) -> None:
    """List the backups, the newest first."""
    found = open_backups().listing(None if every else this_workspace(workspace))
    if as_json:
        print_json([as_row(one) for one in found])
        return
    if not found:
        click.echo("No backups. `proctor backup create` takes one.")
        return
    rows = [(one.name, one.kind, _marks(one), one.entries, _size(one.size), one.reason) for one in found]
    print_table(("NAME", "KIND", "MARKS", "ENTRIES", "SIZE", "REASON"), rows)


@backup.command()
@click.argument("name")
@click.option("--files", is_flag=True, help="List what it holds.")
@json_option
def show(name: str, files: bool, as_json: bool) -> None:
    """Show one backup, named by path, name, id or timestamp."""
    backups = open_backups()
    one = backups.find(name)
    entries = backups.manifest(one).entries if files else []
    if as_json:
        rows = [{"path": _text(entry.path), "mode": oct(entry.mode), "size": entry.size} for entry in entries]
        print_json(as_row(one) | ({"files": rows} if files else {}))
        return
    for key, value in as_row(one).items():
        click.echo(f"{key}: {value}")
    for entry in entries:
        click.echo(f"{entry.mode:06o} {entry.size:>12} {_printable(entry.path)}")


@backup.command()
@click.argument("names", nargs=-1)
@json_option
def verify(names: tuple[str, ...], as_json: bool) -> int:
    """Read every byte back that the NAMED backups (by default all) need."""
    result = open_backups().verify(names, progress=show_progress())
    end_progress()
    if as_json:
        rows = [
            {"backup": name, "path": _text(path), "reason": reason} for name, path, reason in result.damaged
        ]
        print_json({"ok": not rows, "backups": result.checked, "blobs": result.blobs, "damaged": rows})
    else:
        _print_limited([f"{name}: {_printable(path)}: {reason}" for name, path, reason in result.damaged])
        state = f"{len(result.damaged)} damaged" if result.damaged else "nothing wrong"
        click.echo(f"{result.checked} backups, {result.blobs:,} blobs: {state}.")
    return EXIT_ALTERED if result.damaged else 0


@backup.command()
@click.argument("workspace", type=click.Path(path_type=Path), required=False)
@click.option("--keep", type=click.IntRange(min=1), help="How many of each kind to keep.")
@click.option("--all", "every", is_flag=True, help="Keep only so many of every workspace.")
@json_option
def prune(workspace: Path | None, keep: int | None, every: bool, as_json: bool) -> None:
    """Remove the oldest backups of WORKSPACE and free what nobody needs; one that an open run needs stays."""
    done = open_backups().prune(keep=keep, workspace=None if every else this_workspace(workspace))
    if as_json:
        print_json(asdict(done))
    else:
        _print_limited([f"removed {name}" for name in done.removed])
        _print_limited([f"kept {name}: it is needed" for name in done.kept_pinned])
        click.echo(f"{len(done.removed)} removed, {_size(done.bytes_freed)} freed.")


@backup.command()
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), help="An empty directory instead of its workspace.")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@json_option
def restore(name: str, into: Path | None, dry_run: bool, as_json: bool) -> None:
    """Bring a workspace back to exactly what the backup NAME holds; the present state is saved first."""
    from proctor.workspace.restore import preview

    backups = open_backups()
    one = backups.find(name)
    if dry_run:
        print_changes(preview(backups, one, into).rows(), as_json)
        return
    bring_back(one, into=into, as_json=as_json)


def bring_back(
    one: Backup,
    *,
    into: Path | None = None,
    as_undo: bool = False,
    history: Choice = "restore",
    as_json: bool,
) -> None:
    """Restore through the gate and say what was done."""
    from proctor.cli.calling import call_tool

    target = (into or one.workspace).resolve()
    inputs = {
        "backup_path": str(one.path),
        "workspace_path": str(target),
        "as_undo": as_undo,
        "history": history,
    }
    # Into another directory: the gate judges it from the one above, which is where the user may write.
    place = target.parent if into else one.workspace
    done = call_tool("restore_backup", inputs, workspace=place, progress=True)
    back = f"undo {done['safety_backup']}" if as_undo else "undo"
    print_restored(done, as_json, back, _about_git(done, as_undo, history))


def print_changes(rows: Sequence[tuple[str, str]], as_json: bool) -> None:
    """Show what would change."""
    if as_json:
        print_json([{"path": _text(path), "change": change} for path, change in rows])
        return
    _print_limited([f"{change:<7}{_printable(path) or '.'}" for path, change in rows])
    click.echo(f"{len(rows)} paths would change.", err=True)


def _about_git(done: Mapping[str, Any], as_undo: bool, history: Choice) -> str:
    """What became of commits that were made since."""
    if not done["history_moved"]:
        return ""
    if history == "keep":
        return "Git was left as it is: `git diff` shows what was taken back."
    if not as_undo:
        return f"Since then {done['history_moved']}; that is only in {done['safety_backup']} now."
    find = f"; `git branch NAME {done['head_before'][:12]}` finds it again" if done["head_before"] else ""
    return f"Since then {done['history_moved']}{find}."


def print_restored(done: Mapping[str, Any], as_json: bool, back: str, about_git: str) -> None:
    """Say what a restore did and how to take it back."""
    name, target, safety = done["backup_name"], done["workspace_path"], done["safety_backup"]
    if as_json:
        words = ("changed", "left", "notes", "resumed", "history_moved", "head_before", "truncated")
        rest = {word: done[word] for word in words}
        print_json({"backup": name, "target": target, "safety": safety} | rest)
        return
    click.echo(f"{_printable(target)} is as in {name}; {done['changed_count']} paths changed.")
    _print_limited(
        [f"left as it is: {_printable(path)} (the backup could not read it)" for path in done["left"]]
    )
    _print_limited(list(done["notes"]))
    if about_git:
        click.echo(about_git)
    click.echo(f"The state before is saved as {safety}; `proctor {back}` brings it back.", err=True)


def _print_limited(lines: Sequence[str]) -> None:
    for line in lines[:MAX_LINES]:
        click.echo(line)
    if len(lines) > MAX_LINES:
        click.echo(f"… truncated: {len(lines) - MAX_LINES} more; use --json for all.")


def _marks(one: Backup) -> str:
    return (
        ",".join(word for word, on in (("pinned", one.pinned), ("incomplete", not one.complete)) if on) or "-"
    )


def _printable(path: str) -> str:
    """A name as text that no terminal takes for a command."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in path)


def _text(path: str) -> str:
    """A name as JSON can carry it: bytes that are not UTF-8 become \\xNN."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} B"
