"""`proctor integrate`: put Proctor's MCP entry and commands into a CLI agent's own settings, and take them out again."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from proctor.cli.integrate_agents import MARK, NAMES, Change, changes_for
from proctor.cli.output import json_option, print_json
from proctor.protocol.errors import RefusedError, UnavailableError, UsageError

__all__ = ["integrate"]

MAX_FILE = 64 * 1024 * 1024
NEXT = {
    "claude": "Start claude again: /orchestrate, /orch-status, /orch-review, /orch-pause, /orch-resume, /orch-stop.",
    "codex": "Start codex again: $orchestrate, $orch-status, $orch-review, $orch-pause, $orch-resume, $orch-stop.",
    "gemini": "Start gemini again: /orchestrate, /orch-status, /orch-review, /orch-pause, /orch-resume, /orch-stop.",
}
TRUST = {
    "claude": " It asks once whether this project's server may be used.",
    "codex": " It reads a project's settings only where you have told it to trust the project.",
    "gemini": "",
}


@dataclass(frozen=True, slots=True)
class _Edit:
    """A file with its text before and after; None: there is none."""

    path: Path
    before: str | None
    after: str | None

    @property
    def action(self) -> str:
        """What happens to it."""
        if self.before == self.after:
            return "unchanged"
        return "created" if self.before is None else "removed" if self.after is None else "changed"


@click.command()
@click.argument("agent", type=click.Choice(NAMES))
@click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="user: your own settings, in every repository; project: files of this repository, for everybody who works in it.",
)
@click.option("--remove", is_flag=True, help="Take out what was put in.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@json_option
def integrate(agent: str, scope: str, remove: bool, dry_run: bool, as_json: bool) -> None:
    """Let claude, codex or gemini use Proctor: writes the MCP entry and the commands into its own settings.

    Everything else in those files stays as it is, byte for byte. No secret is written. Repeating it changes nothing.
    """
    edits = [_planned(change, remove=remove) for change in _changes(agent, scope)]
    if not dry_run:
        for edit in edits:
            _carry_out(edit)
    note = "" if remove else NEXT[agent] + (TRUST[agent] if scope == "project" else "")
    if as_json:
        files = [{"path": str(one.path), "action": one.action, "diff": _diff(one)} for one in edits]
        print_json({"agent": agent, "scope": scope, "dry_run": dry_run, "files": files, "next": note})
        return
    _print(edits, dry_run=dry_run)
    if note and not dry_run:
        click.echo(note)


def _changes(agent: str, scope: str) -> list[Change]:
    from proctor.config import load_settings

    settings = load_settings()
    home = settings.environ.get("HOME")
    if not home:
        raise UsageError(message="HOME is not set, so nobody knows whose settings are meant.")
    project = settings.workspace if scope == "project" else None
    if scope == "project" and project is None:
        raise UsageError(message="There is no repository here. Run it inside one, or use --scope user.")
    # What is committed must work for others: there the program is found by its name.
    program = ["proctor"] if project else _program()
    return changes_for(agent, home=Path(home), project=project, environ=settings.environ, program=program)


def _program() -> list[str]:
    """How this very Proctor is started, wherever the agent looks for programs."""
    script = Path(sys.executable).with_name("proctor")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "proctor"]


def _planned(change: Change, *, remove: bool) -> _Edit:
    before = _read(change.path)
    if change.own and before is not None and MARK not in before:
        if remove:
            return _Edit(change.path, before, before)
        raise RefusedError(
            reason=f"{change.path} is somebody else's",
            cure="Rename that command, or remove it, and try again.",
        )
    after = change.take(before or "") if remove else change.put(before or "")
    empty = after.strip() in {"", "{}"}
    gone = remove and empty and (before or "").strip() not in {"", "{}"}
    return _Edit(change.path, before, None if gone or (before is None and empty) else after)


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RefusedError(
            reason=f"{path}: {error.strerror}", cure="Mend its rights, and try again."
        ) from error
    if len(raw) > MAX_FILE:
        raise RefusedError(reason=f"{path} is larger than {MAX_FILE} bytes", cure="Look what is in it.")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(reason=f"{path} is not UTF-8", cure="Look what is in it.") from error


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _carry_out(edit: _Edit) -> None:
    if edit.action == "unchanged":
        return
    target = edit.path.resolve()  # a link of the user's stays a link
    try:
        if _read(target) != edit.before:
            raise RefusedError(
                reason=f"{edit.path} changed meanwhile", cure="Close the agent, and try again."
            )
        if edit.after is None:
            target.unlink()
            with suppress(OSError):
                target.parent.rmdir()  # only when nothing else is in it
        else:
            _replace(target, edit.after)
    except OSError as error:
        cure = "Make it writable and try again; `--dry-run` shows what to put in by hand."
        raise UnavailableError(what=edit.path, reason=error.strerror, cure=cure) from error


def _replace(path: Path, text: str) -> None:
    """Put a whole file in place, with the rights it had: nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()


# ── showing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _print(edits: list[_Edit], *, dry_run: bool) -> None:
    for edit in edits:
        would = "would be " if dry_run and edit.action != "unchanged" else ""
        click.echo(f"{would}{edit.action}: {edit.path}")
        for line in _diff(edit):
            click.echo(f"    {line}")


def _diff(edit: _Edit) -> list[str]:
    """What changes and nothing around it, which may hold a key of the agent's; of a command of ours only its length."""
    before, after = edit.before or "", edit.after or ""
    if MARK in before + after:
        lines = [("-", before), ("+", after)]
        return [f"{sign} {len(text.splitlines())} lines" for sign, text in lines if text and before != after]
    start = _alike(before, after)
    end = _alike(before[start:][::-1], after[start:][::-1])
    parts = ("-", before[start : len(before) - end]), ("+", after[start : len(after) - end])
    return [f"{sign} {line}" for sign, text in parts for line in text.splitlines() if line.strip()]


def _alike(one: str, other: str) -> int:
    """How many letters they begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (here, there) in pairs if here != there), min(len(one), len(other)))
