"""`proctor standards check`: the code standards that are set in [standards], as text, JSON, SARIF or a fix file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json
from proctor.protocol.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from proctor.proof.standards import StandardsSettings, Violation

__all__ = ["standards"]


@click.group(cls=Commands)
def standards() -> None:
    """Check the code standards that are set in [standards]."""


@standards.command()
@click.argument("paths", nargs=-1)
@click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0 for code hosts.")
@click.option("--fix-file", "as_fix_file", is_flag=True, help="Write a fix file into orchestrator/outgoing.")
@json_option
def check(paths: tuple[str, ...], sarif: bool, as_fix_file: bool, as_json: bool) -> int:
    """Check PATHS, or the whole workspace; exit code 1 if a rule is broken.

    Every rule is off until proctor.toml sets it: max_lines, header, usage, type_hints, loguru.
    """
    if sarif + as_fix_file + as_json > 1:
        raise UsageError(message="Give only one of --json, --sarif and --fix-file.")
    root, settings = _settings()
    found = violations(root, settings, paths)
    if sarif:
        from proctor.proof.standards_report import sarif_of

        print_json(sarif_of(found))
    elif as_json:
        print_json({"violations": [one.as_dict() for one in found], "count": len(found)})
    elif as_fix_file and found:
        click.echo(str(write_fix_file(root, found)))
    else:
        _print(found)
    return 1 if found else 0


def _settings() -> tuple[Path, StandardsSettings]:
    from proctor.config.load import current_directory, load_settings
    from proctor.proof.standards import standards_settings

    loaded = load_settings()
    settings = standards_settings(loaded.standards)
    if not settings.on:
        allowed = "For example:\n\n[standards]\nmax_lines = 500\nheader = true\n"
        raise ConfigError(
            where="proctor.toml", problem="no standard is set, so there is nothing to check", allowed=allowed
        )
    return loaded.workspace or current_directory(), settings


def violations(root: Path, settings: StandardsSettings, paths: tuple[str, ...]) -> list[Violation]:
    """Check paths as they are given from the current directory."""
    from proctor.config.load import current_directory
    from proctor.proof.standards import check_tree

    here = current_directory()
    return check_tree(root, settings, [_inside(root, here / path) for path in paths])


def _inside(root: Path, path: Path) -> str:
    place = path.resolve()
    if not place.is_relative_to(root.resolve()):
        raise UsageError(message=f"{path} lies outside the workspace {root}.")
    return place.relative_to(root.resolve()).as_posix()


def write_fix_file(root: Path, found: list[Violation], focus: str = "code_standards") -> Path:
    """Write the violations as the next outgoing fix file."""
    from datetime import UTC, datetime

    from proctor.proof.exchange import Exchange
    from proctor.proof.followup import render_fix_file
    from proctor.proof.standards_report import fix_file_of

    box = Exchange(root)
    with box.allocated(focus, "fixes") as name:
        today = datetime.now(UTC).date().isoformat()
        content = fix_file_of(found, review_id=name.review_id, component=focus, date=today)
        return box.put(name, render_fix_file(content))


def _print(found: list[Violation]) -> None:
    for one in found:
        click.echo(str(one))
    files = len({one.file for one in found})
    click.echo(
        f"{len(found)} violations in {files} files."
        if found
        else "All files keep the standards that are set."
    )
