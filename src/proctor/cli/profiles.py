"""`proctor profiles`: what each set of rules allows, in plain words, and which one holds here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from proctor.gate.limits import Limits
    from proctor.gate.profiles import Profile

__all__ = ["profiles"]

_LINE = re.compile(r"(?m)^[ \t]*profile[ \t]*=.*$")
_TABLE = re.compile(r"(?m)^[ \t]*\[")


@click.group(cls=Commands, default="list")
def profiles() -> None:
    """Show and choose the rules that the gate applies."""


@profiles.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List all profiles, the built-in ones and those of proctor.toml; a star marks the one that holds here."""
    from proctor.config import load_settings
    from proctor.gate.profiles import all_profiles

    settings = load_settings()
    found = all_profiles(settings.profiles)
    if as_json:
        print_json([{**_facts(one), "active": one.name == settings.profile} for one in found])
        return
    rows = [("*" if one.name == settings.profile else "", one.name, one.description) for one in found]
    print_table(("", "PROFILE", "WHAT IT MEANS"), rows)


@profiles.command("show")
@click.argument("name", required=False)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Say in plain words what a profile allows; the one that holds here by default."""
    from proctor.config import load_settings
    from proctor.gate.profiles import find_profile

    settings = load_settings()
    found = find_profile(name or settings.profile, settings.profiles)
    if as_json:
        print_json(_facts(found))
        return
    click.echo(found.name)
    for sentence in found.sentences():
        click.echo(f"  {sentence}")


@profiles.command("use")
@click.argument("name")
@json_option
def use(name: str, as_json: bool) -> None:
    """Let a profile hold in this repository, for you: writes it into proctor.local.toml."""
    from proctor.cli.approve import recognised
    from proctor.config import LOCAL_FILE, load_settings
    from proctor.gate.profiles import find_profile
    from proctor.protocol.errors import UsageError
    from proctor.workspace.initial import exclude_locally

    settings = load_settings()
    recognised(settings)
    found = find_profile(name, settings.profiles)
    if settings.workspace is None:
        raise UsageError(message="There is no project here. Go to one, or set PROCTOR_PROFILE.")
    path = settings.workspace / LOCAL_FILE
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    _replace(path, _with_profile(before, found.name))
    exclude_locally(settings.workspace, LOCAL_FILE)
    active = load_settings().profile
    if as_json:
        print_json({"profile": found.name, "active": active, "file": path})
        return
    click.echo(f"{found.name}: {found.description}")
    if active != found.name:
        click.echo(f"But a variable of the environment says {active}; that wins.")


def _replace(path: Path, text: str) -> None:
    """Put the file in place in one step; it may hold secrets, so it stays as closed as it was, or is yours alone."""
    import os
    import stat
    import tempfile

    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        path.parent.joinpath(draft).replace(path)
    finally:
        path.parent.joinpath(draft).unlink(missing_ok=True)


def _with_profile(text: str, name: str) -> str:
    """The file with this profile: in place of the old line, or before everything else."""
    table = _TABLE.search(text)
    end = table.start() if table else len(text)
    line = f'profile = "{name}"'
    if _LINE.search(text[:end]):
        return _LINE.sub(lambda _: line, text[:end], count=1) + text[end:]
    return f"{line}\n{text}"


def _facts(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "description": profile.description,
        "guardrails": profile.guardrails,
        "says": profile.sentences(),
        "approval_required": sorted(profile.asks),
        "never_asks": profile.never_asks,
        "once_per_task": profile.once_per_task,
        "allowed_adapters": None if profile.adapters is None else list(profile.adapters),
        "hosts": None if profile.hosts is None else list(profile.hosts),
        "simulated": not profile.local,
        "limits": _limits(profile.limits),
        "ceiling": _limits(profile.ceiling),
        "runtime": {
            "seconds": profile.runtime.seconds,
            "memory_mb": profile.runtime.memory_mb,
            "cpu_percent": profile.runtime.cpu_percent,
        },
    }


def _limits(limits: Limits) -> dict[str, Any]:
    return {
        "calls": limits.calls,
        "tokens": limits.tokens,
        "usd": None if limits.micro_usd is None else limits.micro_usd / 1_000_000,
        "seconds": None if limits.millis is None else limits.millis / 1000,
        "domains": dict(limits.domains),
        "tools": dict(limits.tools),
    }
