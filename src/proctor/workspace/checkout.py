"""Clean checkouts for proof runs: a warm pool on disk, each with a git directory of its own.

A slot is `files` (what a command may wreck) and `git` (our index of it, never shown to a command). Taking a slot
makes `files` exactly the wanted tree again, whatever the command before did to it, and gives it a `.git` that
borrows objects by the paths the command will see. Locks hold between processes and die with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.protocol.errors import UnavailableError
from proctor.workspace.git import Git, GitError
from proctor.workspace.submodules import fill_submodules
from proctor.workspace.trees import Trees
from proctor.workspace.worktree import delete_tree

__all__ = ["Checkout", "CheckoutPool"]

SETTINGS = (
    "core.autocrlf",
    "core.eol",
    "core.symlinks",
    "core.filemode",
    "core.ignorecase",
    "core.longpaths",
)
_LOG = {"GIT_LFS_SKIP_SMUDGE": "1"}


@dataclass(frozen=True, slots=True)
class Checkout:
    """One tree on disk, held by us until it is given back."""

    path: Path
    tree: str
    head: str
    slot: int
    lock: int
    absent: tuple[str, ...] = ()  # submodules that stay empty, as in the user's own checkout


class CheckoutPool:
    """The checkouts of one repository; at most `slots` at a time over all processes."""

    def __init__(self, trees: Trees, home: Path, *, slots: int, alternates: Sequence[str] = ()) -> None:
        """Keep slots below `home`; `alternates` are the object directories as a command will see them."""
        self._trees = trees
        self.home = home
        self._slots = max(1, slots)
        self._alternates = tuple(alternates) or (str(trees.objects), str(trees.store))
        home.mkdir(parents=True, exist_ok=True)
        self._settings = self._kept_settings()
        names = ("refs/heads", "refs/tags")
        self._refs = trees.git("for-each-ref", "--format=%(objectname) %(refname)", *names)

    def _kept_settings(self) -> str:
        """The few settings of the repository that decide what a checked-out file looks like."""
        lines = ["[core]", "\trepositoryformatversion = 0", "\tbare = false", "\tlogallrefupdates = false"]
        listed = self._trees.git.run("config", "--local", "--get-regexp", "^core\\.").stdout
        for line in listed.splitlines():
            name, _, value = line.partition(" ")
            if name in SETTINGS:
                lines.append(f"\t{name.removeprefix('core.')} = {value}")
        return "\n".join(lines) + "\n"

    @contextlib.contextmanager
    def hold(self, tree: str, head: str, *, seconds: float = 600.0) -> Iterator[Checkout]:
        """Take a checkout for the length of a block."""
        taken = self.take(tree, head, seconds=seconds)
        try:
            yield taken
        finally:
            self.give_back(taken)

    def take(self, tree: str, head: str, *, seconds: float = 600.0) -> Checkout:
        """Wait for a free slot and make it exactly this tree; `head` is the commit its git shows."""
        slot, lock = self._reserve(tree, seconds)
        try:
            absent = self._fill(self.home / str(slot), tree, head)
        except BaseException:
            os.close(lock)
            raise
        return Checkout(self.home / str(slot) / "files", tree, head, slot, lock, absent)

    def give_back(self, checkout: Checkout) -> None:
        """Let others have the slot; it is cleaned when it is taken next."""
        os.close(checkout.lock)

    def _reserve(self, tree: str, seconds: float) -> tuple[int, int]:
        deadline = time.monotonic() + seconds
        while True:
            for slot in sorted(range(self._slots), key=lambda number: (self._was(number) != tree, number)):
                if (lock := self._lock(slot)) is not None:
                    return slot, lock
            if time.monotonic() >= deadline:
                reason = f"all {self._slots} have been in use for {seconds:g} s"
                raise UnavailableError(what="A checkout", reason=reason, cure="Try again later.")
            time.sleep(0.02)

    def _was(self, slot: int) -> str:
        """Which tree a slot held last: the same one again costs least."""
        try:
            return (self.home / str(slot) / "was").read_text()
        except OSError:
            return ""

    def _lock(self, slot: int) -> int | None:
        place = self.home / str(slot)
        place.mkdir(exist_ok=True)
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever clears the cache may have removed it between the two; the next look makes it anew.
            there = os.path.samestat(place.stat(), os.fstat(handle))
        except (BlockingIOError, FileNotFoundError):
            there = False
        if not there:
            os.close(handle)
            return None
        return handle

    def _fill(self, place: Path, tree: str, head: str) -> tuple[str, ...]:
        """Bring the slot to the tree; one that cannot be mended is made anew. Gives submodules that stay empty."""
        try:
            clean = self._reset(place, tree)
        except (GitError, OSError):
            clean = False
        if not clean:
            for name in ("files", "git", "modules"):
                delete_tree(place / name)
            if not self._reset(place, tree):
                raise GitError(action="read-tree", place=str(place), reason="the files differ from the tree")
        absent = fill_submodules(
            self._trees.root, Git(place / "files", place / "git"), place, self._borrowing, tree
        )
        self._show_git(place, head)
        (place / "was").write_text(tree)
        return absent

    def _borrowing(self, place: Path, objects: Sequence[str]) -> None:
        """Make a git directory of ours that reads these objects, unless it is there."""
        if not (place / "HEAD").exists():
            _git_directory(place, self._settings, objects)
            (place / "HEAD").write_text("ref: refs/heads/none\n")

    def _reset(self, place: Path, tree: str) -> bool:
        """Undo all that a command did and check out; says whether files and tree are now the same."""
        files = place / "files"
        files.mkdir(exist_ok=True)
        self._hide_git(place, files)
        _mend_modes(files)
        git = Git(files, place / "git")
        fresh = not (place / "git" / "index").exists()
        if not fresh:
            git("clean", "-ffdxq")
        git("read-tree", "--reset", "-u", tree, env=_LOG)
        # Neither a tracked file that differs nor any other file, ignored or not.
        return fresh or not git("ls-files", "--modified", "--deleted", "--others", "-z")

    def _hide_git(self, place: Path, files: Path) -> None:
        """Remove what the last command saw and perhaps changed; make our own if it is not there yet."""
        shown = files / ".git"
        if shown.is_dir() and not shown.is_symlink():
            delete_tree(shown)
        else:
            shown.unlink(missing_ok=True)
        own = place / "git"
        if not (own / "HEAD").exists():
            _git_directory(own, self._settings, (str(self._trees.objects), str(self._trees.store)))
            (own / "HEAD").write_text("ref: refs/heads/none\n")
        (own / "index.lock").unlink(missing_ok=True)

    def _show_git(self, place: Path, head: str) -> None:
        """Give the checkout a git directory of its own: commit, tags and branches, borrowed objects."""
        shown = place / "files" / ".git"
        _git_directory(shown, self._settings, self._alternates)
        shutil.copy2(place / "git" / "index", shown / "index")
        (shown / "packed-refs").write_text(self._refs + "\n", errors="surrogateescape")
        (shown / "HEAD").write_text(f"{head}\n")


def _git_directory(place: Path, settings: str, alternates: Sequence[str]) -> None:
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "config").write_text(settings)
    (place / "objects" / "info" / "alternates").write_text("".join(f"{path}\n" for path in alternates))


def _mend_modes(root: Path) -> None:
    """Give ourselves back what a command took away: git looks at contents and not at who may read them."""
    queue = [str(root)]
    while queue:
        folder = queue.pop()
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        if mode & 0o700 != 0o700 or mode & 0o7000:
            os.chmod(folder, 0o755)  # noqa: PTH101, S103 - a checkout, and names may be no UTF-8
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    queue.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    _mend_file(entry)


def _mend_file(entry: os.DirEntry[str]) -> None:
    mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
    if mode & 0o600 != 0o600 or mode & 0o7000:
        os.chmod(entry.path, 0o755 if mode & 0o100 else 0o644)  # noqa: PTH101 - names may be no UTF-8
