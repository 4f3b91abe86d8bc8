"""Where git's history of a workspace stands: branch, commit and all refs; and whether it moved since a backup.

An undo must not take commits away that came after what it takes back, so each backup says where history stood.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proctor.protocol.errors import ProctorError, RefusedError
from proctor.workspace.git import Git

__all__ = ["Choice", "History", "HistoryMovedError", "Moved", "history_of", "moved_since"]

MAX_COMMITS = 10
DETACHED = "HEAD"

Choice = Literal["refuse", "keep", "restore"]
"""What an undo does when history moved: nothing, leave git alone, or bring git back too."""


class HistoryMovedError(RefusedError):
    """Refused: {what} since {backup} was saved. `proctor undo {point}--keep-commits` brings the files back and leaves git as it is; `proctor undo {point}--with-git` brings branches and index back too, and the commits stay in the repository by their hash."""  # noqa: E501

    code = "history_moved"


@dataclass(frozen=True)
class History:
    """Branch (`HEAD` when detached), commit, and a digest of these and every ref."""

    branch: str
    head: str
    digest: str


@dataclass(frozen=True)
class Moved:
    """How history stands now, against how it stood."""

    before: History
    now: History | None
    commits: tuple[str, ...]
    """What was committed on top since, one line each, the newest first, at most ten."""
    count: int

    def sentence(self) -> str:
        """What happened, in words."""
        was = f"{_short(self.before.branch)} at {self.before.head[:12]}"
        if self.now is None:
            return f"git's history, then {was}, cannot be read any more"
        if self.now.branch != self.before.branch:
            return f"the branch was changed (then {was}, now {_short(self.now.branch)})"
        if self.count:
            plural = "s were" if self.count > 1 else " was"
            return f"{self.count} commit{plural} made on {_short(self.now.branch)}"
        if self.now.head != self.before.head:
            return f"{_short(self.now.branch)} was moved from {self.before.head[:12]} to {self.now.head[:12]}"
        return "branches, tags or stashes were made, moved or deleted"


def history_of(place: Path) -> History | None:
    """Look where history stands; None where there is no commit, no repository or no git."""
    if not any((above / ".git").exists() for above in (place, *place.parents)):
        return None
    git = Git(place)
    try:
        found = git.run("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
        if found.returncode != 0:
            return None
        head, branch = found.stdout.split()[:2]
        refs = git("for-each-ref", "--format=%(objectname) %(refname)")
    except (ProctorError, ValueError):
        return None
    text = "\n".join((branch, head, refs))
    return History(branch, head, hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest())


def moved_since(before: History | None, place: Path) -> Moved | None:
    """Compare with how it stood; None when nothing moved, or when it was not noted."""
    if before is None or not before.digest or not place.is_dir():
        return None
    now = history_of(place)
    if now is not None and now.digest == before.digest:
        return None
    commits, count = _commits(place, before.head, now.head) if now is not None else ((), 0)
    return Moved(before, now, commits, count)


def _commits(place: Path, old: str, new: str) -> tuple[tuple[str, ...], int]:
    git = Git(place)
    try:
        if not git.ok("merge-base", "--is-ancestor", old, new):
            return (), 0
        count = int(git("rev-list", "--count", f"{old}..{new}") or 0)
        lines = git("log", "--no-color", "--format=%h %s", "-n", str(MAX_COMMITS), f"{old}..{new}")
    except (ProctorError, ValueError):
        return (), 0
    return tuple(lines.splitlines()), count


def _short(branch: str) -> str:
    return "no branch" if branch == DETACHED else branch.removeprefix("refs/heads/")
