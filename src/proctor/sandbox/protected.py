"""Hooks and configuration of git in a writable root: remembered before a run, compared and put back after it.

Who can write them runs code outside the sandbox at the user's next git command. Level 3 mounts them read-only;
Landlock cannot say "all but these", so below level 3 (and for what did not exist before) this comparison is
the protection. Runs only when nobody of the command's tree is left, so nothing changes under its hands.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from proctor.sandbox.spec import Altered

__all__ = ["Memory", "git_anchors", "git_guarded"]

_NAMES = ("config", "config.worktree", "commondir", "hooks", "info/attributes")
_FILE_CAP = 1 << 20
_ENTRY_CAP = 512


@dataclass(frozen=True, slots=True)
class _Saved:
    """A file as it was: type, mode and bytes (a symbolic link's target)."""

    kind: int
    mode: int
    data: bytes | None  # None: too long to keep, compared by size and times
    stamp: tuple[int, int, int]


def git_anchors(roots: tuple[str, ...]) -> tuple[str, ...]:
    """The `.git` directories themselves: mounted upon themselves they cannot be moved aside and replaced."""
    return tuple(path for root in roots if _type(path := f"{root}/.git") == stat.S_IFDIR)


def git_guarded(roots: tuple[str, ...]) -> tuple[str, ...]:
    """What must not change in these roots; a worktree's `.git` is a file and guarded itself."""
    found: list[str] = []
    for root in roots:
        dot = f"{root}/.git"
        if _type(dot) in {stat.S_IFREG, stat.S_IFLNK}:
            found.append(dot)
        else:
            found += [f"{dot}/{name}" for name in _NAMES]
    return tuple(found)


def _type(path: str) -> int:
    """The type of what a path names itself; 0 when there is nothing."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0


class Memory:
    """What guarded paths held before the run."""

    def __init__(self, guarded: tuple[str, ...]) -> None:
        self._guarded = guarded
        # Where there was no repository, a new one is told of but left: `git init` is an honest command.
        parents = {path: path.rpartition("/")[0] for path in guarded}
        there = {parent: os.path.lexists(parent) for parent in set(parents.values())}
        self._restorable = {path for path, parent in parents.items() if there[parent]}
        self._before: dict[str, _Saved] = {}

    def cheap(self) -> bool:
        """Say whether there is nothing to read at the moment: then a thread is not worth its switch."""
        return not any(os.path.lexists(path) for path in self._guarded)

    def remember(self) -> None:
        """Save what is there before the run."""
        self._before = {path: saved for root in self._guarded for path, saved in _look(root).items()}

    def compare(self) -> tuple[Altered, ...]:
        """Find what changed, put back what can be put back, and tell all of it."""
        after = {path: saved for root in self._guarded for path, saved in _look(root).items()}
        altered: list[Altered] = []
        for path in sorted(self._before.keys() | after.keys()):
            before, now = self._before.get(path), after.get(path)
            if _same(before, now):
                continue
            what = "added" if before is None else "removed" if now is None else "changed"
            mended = self._may_restore(path) and _restore(path, before, now)
            altered.append(Altered(path, what, restored=mended))
        return tuple(altered)

    def _may_restore(self, path: str) -> bool:
        return path in self._restorable or str(Path(path).parent) in self._restorable


def _look(root: str) -> dict[str, _Saved]:
    """Save a path and, if it is a directory, what lies directly in it."""
    found: dict[str, _Saved] = {}
    try:
        state = os.lstat(root)
    except OSError:
        return found
    found[root] = _save(root, state)
    if stat.S_ISDIR(state.st_mode):
        for index, entry in enumerate(os.scandir(root)):
            if index >= _ENTRY_CAP:
                break
            found[entry.path] = _save(entry.path, entry.stat(follow_symlinks=False))
    return found


def _save(path: str, state: os.stat_result) -> _Saved:
    kind, mode = stat.S_IFMT(state.st_mode), stat.S_IMODE(state.st_mode)
    stamp = (state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    data: bytes | None = b""
    if kind == stat.S_IFLNK:
        data = os.fsencode(Path(path).readlink())
    elif kind == stat.S_IFREG:
        data = _read(path) if state.st_size <= _FILE_CAP else None
    return _Saved(kind, mode, data, stamp)


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(_FILE_CAP)


def _same(before: _Saved | None, now: _Saved | None) -> bool:
    if before is None or now is None:
        return before is now
    if (before.kind, before.mode) != (now.kind, now.mode):
        return False
    return before.data == now.data if before.data is not None else before.stamp == now.stamp


def _restore(path: str, before: _Saved | None, now: _Saved | None) -> bool:
    """Put one path back; never through a directory that is now a link to somewhere else."""
    parent = Path(path).parent
    if os.path.realpath(parent) != str(parent):
        return False
    try:
        if before is not None and now is not None and before.kind == now.kind == stat.S_IFDIR:
            Path(path).chmod(before.mode)
            return True
        if now is not None:
            _remove(path, now)
        if before is not None:
            return _put(path, before)
    except OSError:
        return False
    return True


def _remove(path: str, now: _Saved) -> None:
    """Set aside a directory (it may hold much); unlink everything else."""
    if now.kind == stat.S_IFDIR:
        Path(path).rename(f"{path}.altered-{now.stamp[2]}")
    else:
        Path(path).unlink(missing_ok=True)  # perhaps set aside with its directory


def _put(path: str, before: _Saved) -> bool:
    if before.kind == stat.S_IFDIR:
        Path(path).mkdir(mode=before.mode)
    elif before.kind == stat.S_IFLNK and before.data is not None:
        Path(path).symlink_to(os.fsdecode(before.data))
    elif before.kind == stat.S_IFREG and before.data is not None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(before.data)
            os.fchmod(file.fileno(), before.mode)
    else:
        return False
    return True
