"""`proctor doctor`: is this machine ready, and what cures what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from proctor.cli.output import fold, json_option, paint, print_json

if TYPE_CHECKING:
    from proctor.engine.doctor import Check

__all__ = ["doctor"]

_INDENT = 6
_MARKS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check this machine and say the cure for what is missing.

    Looks only. Exit code 1 when something fails; warnings are 0.
    """
    from dataclasses import asdict

    from proctor.engine.doctor import examine

    checks = []
    for check in examine():
        checks.append(check)
        if not as_json:
            _print(check)
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)
    if as_json:
        print_json({"ok": failed == 0, "checks": [asdict(check) for check in checks]})
    else:
        click.echo(f"{len(checks)} checks: {failed} failed, {warned} with a warning.")
    return 1 if failed else 0


def _print(check: Check) -> None:
    mark, colour = _MARKS[check.state]
    first, *rest = fold(f"{check.name}: {check.detail}", _INDENT)
    click.echo(paint(mark, fg=colour) + first[len(mark) :])
    for line in [*rest, *(fold(f"→ {check.cure}", _INDENT) if check.cure else [])]:
        click.echo(line)
