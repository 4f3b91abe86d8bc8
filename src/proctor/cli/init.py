"""`proctor init`: look at the repository, write proctor.toml, ask nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    from proctor.workspace.detect import Detected

__all__ = ["init"]

NEXT = "proctor doctor"


@click.command()
@click.option("--force", is_flag=True, help="Replace an existing proctor.toml; the old one is kept aside.")
@json_option
def init(force: bool, as_json: bool) -> None:
    """Write proctor.toml for this repository; asks nothing.

    Finds the commands for set-up, tests and lint, lock files, the base branch and installed agents.
    """
    from proctor.config import LOCAL_FILE, SHARED_FILE, Paths, current_directory, environment, find_workspace
    from proctor.workspace.detect import detect
    from proctor.workspace.initial import (
        already_exists,
        exclude_locally,
        keep_replaced,
        render_settings,
        write_settings,
    )

    environ = environment()
    here = current_directory()
    root = find_workspace(here) or here
    target = root / SHARED_FILE
    if os.path.lexists(target) and not force:
        raise already_exists(target)
    found = detect(root, environ)
    kept = keep_replaced(target, Paths.from_environ(environ).data_dir / "replaced") if force else None
    write_settings(target, render_settings(found), replace=force)
    excluded = exclude_locally(root, LOCAL_FILE)
    if as_json:
        print_json(_summary(found, target, kept, excluded))
    else:
        _report(found, target, kept)


def _summary(found: Detected, target: Path, kept: Path | None, excluded: bool) -> dict[str, object]:
    import dataclasses

    return {
        "file": target,
        "replaced": kept,
        **dataclasses.asdict(found),
        "local_file_ignored": excluded,
        "next": NEXT,
    }


def _report(found: Detected, target: Path, kept: Path | None) -> None:
    click.echo(f"Wrote {target}")
    if kept is not None:
        click.echo(f"The old one is kept as {kept}")
    for label, values in _findings(found):
        click.echo(f"  {label:<12}{values}")
    click.echo(f"Next: {NEXT}")


def _findings(found: Detected) -> list[tuple[str, str]]:
    return [
        ("project", ", ".join(found.kinds) or "of no kind that is known here"),
        ("base branch", found.base_branch or "none (no git repository, or git is missing)"),
        ("set-up", "; ".join(found.setup) or "none"),
        ("test", "; ".join(found.test) or "none found: add `test` to [project], or nothing can be proven"),
        ("lint", "; ".join(found.lint) or "none"),
        ("lock files", ", ".join(found.lock_files) or "none"),
        ("agents", ", ".join(found.agents) or "none on PATH; `proctor demo` works without"),
    ]
