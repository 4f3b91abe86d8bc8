"""One git worktree per attempt: agents edit there, Proctor commits, the user's own checkout is never
touched.

A worktree is detached at its base commit. `commit_all` puts everything on a branch of its own and never
moves a branch that is checked out anywhere or that holds other work: it takes the next free name instead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.protocol.errors import RefusedError, UsageError
from proctor.workspace.git import Git, GitError, lock_repository

__all__ = [
    "Commit",
    "DirtyWorktreeError",
    "NoCommitError",
    "NotARepositoryError",
    "Worktree",
    "create",
    "delete_tree",
    "find",
    "half_made",
    "prune",
]

NOBODY = {"NAME": "Proctor", "EMAIL": "proctor@localhost"}
ZERO = "0" * 40


class NotARepositoryError(UsageError):
    """{path} is not a git repository. Run `git init` there and commit what it holds."""

    code = "not_a_repository"


class NoCommitError(UsageError):
    """{path} has no commit {base!r} to start from. Commit something first, or name another base."""

    code = "no_commit"


class DirtyWorktreeError(RefusedError):
    """Refused: the worktree {path} holds work that is on no branch ({what}). Commit it first, or remove
    with force.
    """

    code = "dirty_worktree"


@dataclass(frozen=True, slots=True)
class Commit:
    """What was committed and on which branch."""

    id: str
    branch: str


@dataclass(frozen=True, slots=True)
class Worktree:
    """One checkout of an attempt, with the true git directory that belongs to it."""

    common: Path
    """The git directory of the user's repository."""
    git_dir: Path
    """The worktree's own part of it."""
    path: Path
    base: str

    @property
    def git(self) -> Git:
        """git here, without asking the worktree's `.git`, which the agent may have changed."""
        return Git(self.path, self.git_dir)

    def changes(self) -> list[str]:
        """Paths that differ from the last commit, new ones included, ignored ones not."""
        listed = self.git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
        return [entry[3:] for entry in listed.split("\0") if entry]

    def commit_all(self, message: str, branch: str) -> Commit | None:
        """Commit everything on a branch; None when nothing differs from the base."""
        with lock_repository(self.common):
            self._forget_stale_locks()
            self.git("add", "--all")
            commit = self._commit(self.git("write-tree"), message)
            return None if commit == self.base else Commit(commit, self._put(commit, branch))

    def diff(self) -> str:
        """What differs from the base, as a patch; work that is not committed counts, untracked files do
        not.
        """
        return self.git("diff", "--no-ext-diff", "--no-textconv", "--binary", self.base)

    def remove(self, *, force: bool = False) -> None:
        """Remove the checkout; work that is on no branch is refused unless told otherwise."""
        if not force and self.path.exists():
            self.refuse_if_dirty()
        with lock_repository(self.common):
            delete_tree(self.path)
            delete_tree(self.git_dir)

    def refuse_if_dirty(self) -> None:
        """Refuse to go on when the checkout holds work that is on no branch."""
        if changed := self.changes():
            what = f"{len(changed)} changed files, first {changed[0]!r}"
            raise DirtyWorktreeError(path=str(self.path), what=what)
        head = self.git("rev-parse", "HEAD")
        if head != self.base and not self.git(
            "for-each-ref", "--count=1", f"--contains={head}", "refs/heads"
        ):
            raise DirtyWorktreeError(path=str(self.path), what=f"commit {head[:12]}")

    def _forget_stale_locks(self) -> None:
        """An agent killed inside git leaves its lock; nobody else works here, so it is stale."""
        for name in ("index.lock", "HEAD.lock"):
            (self.git_dir / name).unlink(missing_ok=True)

    def _commit(self, tree: str, message: str) -> str:
        head = self.git("rev-parse", "--verify", "HEAD^{commit}")
        if not self.git.ok("merge-base", "--is-ancestor", self.base, head):
            head = self.base  # the agent went elsewhere; what counts is what it left, on top of the base
        if tree == self.git("rev-parse", f"{head}^{{tree}}"):
            return head
        return self.git("commit-tree", tree, "-p", head, "-F", "-", env=self._identity(), text=message)

    def _identity(self) -> dict[str, str]:
        if self.git.ok("config", "user.email") and self.git.ok("config", "user.name"):
            return {}
        return {
            f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in NOBODY.items()
        }

    def _put(self, commit: str, branch: str) -> str:
        """Point a branch at the commit, under the first name that is free or only moves forward."""
        if not self.git.ok("check-ref-format", f"refs/heads/{branch}"):
            raise UsageError(message=f"{branch!r} is not a valid branch name.")
        taken = {
            line[7:]
            for line in self.git("worktree", "list", "--porcelain").splitlines()
            if line[:7] == "branch "
        }
        number = 1
        while not self._move(f"refs/heads/{branch}" + (f"-{number}" if number > 1 else ""), commit, taken):
            number += 1
        self.git("update-ref", "--no-deref", "HEAD", commit)
        return branch + (f"-{number}" if number > 1 else "")

    def _move(self, ref: str, commit: str, taken: set[str]) -> bool:
        old = self.git.run("rev-parse", "--verify", "--quiet", ref).stdout.strip()
        if old and (ref in taken or not self.git.ok("merge-base", "--is-ancestor", old, commit)):
            return old == commit
        self.git("update-ref", ref, commit, old or ZERO)
        return True


def create(repo: Path, dest: Path, base: str = "HEAD") -> Worktree:
    """Make a worktree of the repository that holds `repo`, detached at a commit; nothing of the user's is
    changed.
    """
    common = _common(repo)
    found = Git(repo).run("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
    if found.returncode != 0:
        raise NoCommitError(path=str(repo), base=base)
    commit = found.stdout.strip()
    dest.parent.mkdir(parents=True, exist_ok=True)
    dest = dest.parent.resolve() / dest.name
    with lock_repository(common):
        _drop_half_made(common, dest)
        Git(repo)("worktree", "add", "--detach", str(dest), commit)
        git_dir = _git_dir(common, dest)
    if git_dir is None:
        raise GitError(action="worktree add", place=str(repo), reason=f"{dest} was not registered")
    return Worktree(common, git_dir, dest, commit)


def find(repo: Path, path: Path, base: str) -> Worktree | None:
    """Find a worktree made earlier, from what was written down about it; None when it is gone."""
    common = _common(repo)
    place = path.parent.resolve() / path.name
    git_dir = _git_dir(common, place)
    if git_dir is None or not _complete(git_dir, place):
        return None
    return Worktree(common, git_dir, place, base)


def half_made(repo: Path, path: Path) -> bool:
    """Whether a process was killed while it made this worktree; `create` clears it away."""
    place = path.parent.resolve() / path.name
    record = _git_dir(_common(repo), place)
    return record is not None and not _complete(record, place)


def prune(repo: Path, root: Path) -> int:
    """Forget worktrees below our root whose directory is gone; the user's own are not looked at."""
    common, root = _common(repo), root.resolve()
    with lock_repository(common):
        gone = [d for d, place in _registered(common) if place.is_relative_to(root) and not place.exists()]
        for directory in gone:
            delete_tree(directory)
    return len(gone)


def _common(repo: Path) -> Path:
    if not repo.is_dir():
        raise NotARepositoryError(path=str(repo))
    found = Git(repo).run("rev-parse", "--path-format=absolute", "--git-common-dir")
    if found.returncode != 0:
        raise NotARepositoryError(path=str(repo))
    return Path(found.stdout.rstrip("\n"))


def _registered(common: Path) -> list[tuple[Path, Path]]:
    """Each worktree's own git directory and its place, read from the repository's own records."""
    records = []
    for record in sorted((common / "worktrees").glob("*/gitdir")):
        with contextlib.suppress(OSError):
            records.append((record.parent, Path(record.read_text().rstrip("\n")).parent))
    return records


def _git_dir(common: Path, place: Path) -> Path | None:
    return next((directory for directory, known in _registered(common) if known == place), None)


def _drop_half_made(common: Path, dest: Path) -> None:
    """Clear what a process killed inside `create` left; git marks a checkout that it has not finished."""
    record = _git_dir(common, dest)
    if record is not None and not _complete(record, dest):
        delete_tree(dest)
        delete_tree(record)


def _complete(record: Path, place: Path) -> bool:
    lock = record / "locked"
    return place.is_dir() and not (lock.exists() and lock.read_text().startswith("initializing"))


def delete_tree(place: Path) -> None:
    """Delete a directory, also where an agent took the write permission away."""

    def insist(remove: Callable[..., Any], path: str, _error: object) -> None:
        Path(path).parent.chmod(0o700)
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - names may be no UTF-8
            Path(path).chmod(0o700)
        remove(path)

    if place.exists():
        shutil.rmtree(place, onerror=insist)
