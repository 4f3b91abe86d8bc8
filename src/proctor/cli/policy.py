"""`proctor policy explain`: what the policy says about a command or a path, by which rule and why. Runs nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json
from proctor.protocol.errors import UsageError

if TYPE_CHECKING:
    from proctor.config.model import Settings
    from proctor.gate.policy import Decision

__all__ = ["policy"]

# Longer lines are answered as too long; what follows in them is skipped, never kept.
LINE_BYTES = 40 * 1024


@click.group(cls=Commands)
def policy() -> None:
    """Ask what the policy would say."""


@policy.command()
@click.argument("command", required=False)
@click.option("--profile", help="The profile to ask; the settings' own by default.")
@click.option("--path", "place", help="Ask about a file instead of a command.")
@click.option("--write", is_flag=True, help="With --path: writing instead of reading.")
@click.option("--unattended", is_flag=True, help="As if nobody could be asked: ask is deny.")
@json_option
def explain(
    command: str | None, profile: str | None, place: str | None, write: bool, unattended: bool, as_json: bool
) -> None:
    """Say allow, ask or deny for COMMAND or a path, by which rule and why.

    Without either: one command a line from standard input, one JSON answer a line.
    """
    from proctor.config.load import load_settings

    if (command is not None and place is not None) or (write and place is None):
        raise UsageError(message="Give a command, or --path with or without --write; not both.")
    settings = load_settings()
    asker = _Asker(settings, profile or settings.profile, attended=not unattended)
    if place is not None:
        _print(asker.path(place, write=write), {"path": _shown(place), "write": write}, as_json=as_json)
    elif command is not None:
        _print(asker.command(command), {"command": _shown(command)}, as_json=as_json)
    else:
        if sys.stdin.isatty():
            click.echo("One command a line; Ctrl-D ends it.", err=True)
        for line in _lines():
            print_json({"command": _shown(line), **asker.command(line).as_dict()}, line=True)


class _Asker:
    """The policy as it holds here."""

    def __init__(self, settings: Settings, profile: str, *, attended: bool) -> None:
        from proctor.config.load import current_directory
        from proctor.gate.policy.settings import rules_of_workspace
        from proctor.gate.profiles import find_profile

        self._posture = find_profile(profile, settings.profiles).posture
        self._rules = rules_of_workspace(settings.workspace)
        self._root = settings.workspace or current_directory()
        self._paths = settings.paths
        self._attended = attended

    def command(self, text: str) -> Decision:
        from proctor.gate.policy import judge_command

        roots = (str(self._root),)
        return judge_command(
            text, profile=self._posture, rules=self._rules, attended=self._attended, roots=roots
        )

    def path(self, place: str, *, write: bool) -> Decision:
        from proctor.gate.policy import judge_path

        paths = self._paths
        state = (paths.state_dir, paths.runtime_dir, paths.backups_dir, paths.blobs_dir)
        return judge_path(
            place,
            write=write,
            roots=(self._root,),
            profile=self._posture,
            attended=self._attended,
            protected=state,
        )


def _lines() -> Iterator[str]:
    """Read commands as they come; bytes that are not UTF-8 stay visible to the policy."""
    stream = sys.stdin.buffer
    while line := stream.readline(LINE_BYTES):
        whole = line
        while not whole.endswith(b"\n") and (whole := stream.readline(LINE_BYTES)):
            pass
        yield line.rstrip(b"\n").decode("utf-8", "surrogateescape")


def _shown(text: str) -> str:
    """Make bytes that are not UTF-8 printable."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _print(decision: Decision, asked: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json({**asked, **decision.as_dict()})
        return
    click.echo(f"{decision.effect.value}: {decision.reason}")
    click.echo(f"rule: {decision.rule}" + ("  (cannot be taken back)" if decision.irreversible else ""))
    for part in decision.parts:
        words = _shown(" ".join("…" if word is None else word for word in part.argv))
        click.echo(f"  {part.effect.value:5}  {words}  [{part.rule}]")
