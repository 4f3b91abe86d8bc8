"""What can be known of a repository without asking: commands, lock files, base branch, agents at hand.

Nothing of the project is executed; git is asked harmless questions with a time limit, and may be missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.workspace.ecosystems import ECOSYSTEMS, LOCK_FILES, from_targets
from proctor.workspace.root import Ecosystem, Root

__all__ = ["AGENT_PROGRAMS", "Detected", "detect", "detect_agents", "detect_base_branch", "exclude_file"]

AGENT_PROGRAMS = ("claude", "codex", "gemini", "qwen", "opencode")
GIT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Detected:
    """What was found in a directory."""

    name: str
    kinds: tuple[str, ...]
    setup: tuple[str, ...]
    test: tuple[str, ...]
    lint: tuple[str, ...]
    lock_files: tuple[str, ...]
    base_branch: str | None
    agents: tuple[str, ...]


def detect(root: Path, environ: Mapping[str, str]) -> Detected:
    """Look at a directory; `environ` gives the PATH on which git and agents are sought."""
    place = Root(root)
    found = [each for look in ECOSYSTEMS if (each := look(place)) is not None]
    if (targets := from_targets(place)) is not None:
        found.append(_only_missing(targets, found))
    kinds = tuple(each.name for each in found if each.setup or each.test or each.lint)
    return Detected(
        name="".join(letter if letter.isprintable() else "?" for letter in root.name) or "workspace",
        kinds=kinds,
        setup=tuple(command for each in found for command in each.setup),
        test=tuple(command for each in found for command in each.test),
        lint=tuple(command for each in found for command in each.lint),
        lock_files=tuple(name for name in LOCK_FILES if place.has(name)),
        base_branch=detect_base_branch(root, environ),
        agents=detect_agents(environ),
    )


def _only_missing(targets: Ecosystem, found: list[Ecosystem]) -> Ecosystem:
    """A make target fills only a role for which the languages gave no command."""
    return Ecosystem(
        targets.name,
        () if any(each.setup for each in found) else targets.setup,
        () if any(each.test for each in found) else targets.test,
        () if any(each.lint for each in found) else targets.lint,
    )


def detect_agents(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Name the agents' programs that are installed."""
    path = environ.get("PATH", os.defpath)
    return tuple(name for name in AGENT_PROGRAMS if shutil.which(name, path=path))


def detect_base_branch(root: Path, environ: Mapping[str, str]) -> str | None:
    """The remote's default branch, else main, else master, else the branch that is checked out."""
    if not os.path.lexists(root / ".git"):
        return None
    remote = _git(root, environ, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    if remote.startswith("origin/"):
        return remote.removeprefix("origin/")
    for name in ("main", "master"):
        if _git(root, environ, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}"):
            return name
    return _git(root, environ, "symbolic-ref", "--quiet", "--short", "HEAD") or None


def _git(root: Path, environ: Mapping[str, str], *arguments: str) -> str:
    """Ask git about this very directory; no answer is an empty one."""
    # Inside a hook these name another repository.
    clean = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    program = shutil.which("git", path=environ.get("PATH", os.defpath))
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "-C", str(root), *arguments],
            env={**clean, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", errors="replace").strip() if done.returncode == 0 else ""


def exclude_file(root: Path) -> Path | None:
    """The private ignore list of the repository, also of a linked worktree; None without git."""
    git = root / ".git"
    if git.is_dir():
        return git / "info" / "exclude"
    words = Root(root).text(".git").splitlines()[:1]
    if not words or not words[0].startswith("gitdir:"):
        return None
    directory = root / words[0].removeprefix("gitdir:").strip()
    # A linked worktree has its own directory; the ignore list is in the one they share.
    shared = Root(directory).text("commondir").strip()
    common = directory / shared if shared else directory
    return common / "info" / "exclude" if common.is_dir() else None
