"""`proctor doctor`: is this machine ready, and what cures what is not."""

from __future__ import annotations

import click

from proctor.cli.output import json_option, print_json

__all__ = ["doctor"]

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
            mark, colour = _MARKS[check.state]
            click.echo(f"{click.style(mark, fg=colour)}  {check.name}: {check.detail}")
            if check.cure:
                click.echo(f"      → {check.cure}")
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)
    if as_json:
        print_json({"ok": failed == 0, "checks": [asdict(check) for check in checks]})
    else:
        click.echo(f"{len(checks)} checks: {failed} failed, {warned} with a warning.")
    return 1 if failed else 0
