"""How a tool's command is confined: the workspace is writable, secrets and Proctor's own state are hidden, the
environment is an allow-list, and network and level are what the gate said.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from proctor.config import LOCAL_FILE, SHARED_FILE
from proctor.gate.context import Context
from proctor.protocol.errors import NotFoundError, RefusedError
from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Reaches, Runs, Touch
from proctor.sandbox.environment import allowed_environment, shell_argv
from proctor.sandbox.paths import language_homes, secret_paths, within
from proctor.sandbox.spec import Confinement, Limits, Spec

__all__ = ["Shell", "command_spec", "runs", "sandbox_facts", "working_directory"]

Shell = Literal["bash", "pwsh"]
_GIT_FILE_BYTES: Final = 4096


def runs(command: str, cwd: str, shell: Shell, hosts: Sequence[str] = ()) -> Sequence[Touch]:
    """Name what would run, in the words the policy reads: PowerShell is a program to it, and its text one word."""
    reaches = tuple(Reaches(host) for host in hosts)
    if shell == "bash":
        return (Runs(command, cwd), *reaches)
    return (Runs(f"pwsh -NoProfile -NonInteractive -Command {shlex.quote(command)}", cwd), *reaches)


def sandbox_facts(box: Confinement) -> dict[str, Any]:
    """How well a command was confined, for results and events."""
    return {
        "level": int(box.level),
        "net": box.net.value,
        "missing": list(box.missing),
        "limits": dict(box.limits),
        "reached": [one.host for one in box.reached if one.allowed],
        "refused": list(box.refused),
    }


def command_spec(context: Context, command: str, cwd: str, shell: Shell, seconds: float) -> Spec:
    """Describe the command for the sandbox."""
    settings, root = context.settings, os.path.realpath(context.root)
    env = allowed_environment(settings.environ, extra=settings.project.env)
    home, paths = env.get("HOME", "/"), settings.paths
    state = (paths.state_dir, paths.runtime_dir, paths.backups_dir, paths.blobs_dir)
    hidden = (*secret_paths(home), *map(str, state))
    return Spec(
        argv=shell_argv(command, shell, path=env["PATH"]),
        cwd=working_directory(context.root, cwd),
        env=env,
        writable=(root,),
        readable=(*language_homes(home), *_programs(env["PATH"]), *_git_places(Path(root))),
        hidden=hidden,
        protected=_own_settings(context, root),
        network=context.confined.network,
        hosts=context.confined.hosts,
        hosts_optional=context.confined.hosts_optional,
        level_required=context.confined.level_required,
        limits=Limits(seconds=seconds),
    )


def _own_settings(context: Context, root: str) -> tuple[str, ...]:
    """What decides over an agent's calls is not an agent's to write, by whatever program; a person's it is."""
    if context.call.actor.kind is ActorKind.HUMAN:
        return ()
    return tuple(f"{root}/{name}" for name in (SHARED_FILE, LOCAL_FILE))


def working_directory(root: Path, cwd: str) -> str:
    """Resolve the directory a command starts in; it must be one inside the workspace."""
    if "\0" in cwd:
        raise RefusedError(reason="the directory's name holds a NUL", cure="Name a directory.")
    base = os.path.realpath(root)
    place = os.path.realpath(root / cwd)
    if not within(place, base):
        raise RefusedError(reason=f"{cwd[:200]!r} lies outside the workspace", cure="Name one inside it.")
    if not Path(place).is_dir():
        raise NotFoundError(kind="directory", name=cwd[:200], cure=f"It is not in {base}.")
    return place


def _programs(path: str) -> Iterator[str]:
    """Where the programs of PATH lie; a virtual environment is needed whole."""
    for entry in path.split(os.pathsep):
        if entry.startswith("/") and Path(entry).is_dir():
            above = Path(entry).parent
            yield str(above) if (above / "pyvenv.cfg").is_file() else entry


def _git_places(root: Path) -> Iterator[str]:
    """Where a worktree's repository lies, when its `.git` is a file that names another place."""
    try:
        if not (root / ".git").is_file():
            return
        with (root / ".git").open("rb") as file:
            text = file.read(_GIT_FILE_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return
    label, _, place = text.strip().partition("gitdir: ")
    own = root / place
    if not label and place and "\0" not in place and own.is_dir():
        yield str(own.absolute())
        if own.parent.name == "worktrees":
            yield str(own.parent.parent.absolute())
