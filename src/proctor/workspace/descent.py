"""Goes down a tree by directory handles, never through a symlink, so that no race leads a listing out of it.

What cannot be opened is named, never passed over in silence; a tree deeper than the cap is cut and named too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

__all__ = ["Descent"]

MAX_DEPTH = 200  # one open handle per level
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Visit = Callable[[int, str], Sequence[str]]
"""Looks at one directory (its handle, and its path with a slash at the end) and gives the names to go into."""


class Descent:
    """One way down; `folders` are those looked into, `refused` the names that are no directory (any more)."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.folders: list[str] = []
        self.refused: list[str] = []
        self.unreadable: list[str] = []

    def run(self, visit: Visit, go_on: Callable[[], bool] = lambda: True) -> None:
        """Visit every directory once, as long as `go_on` says so."""
        frames: list[tuple[int, str, list[str]]] = []
        try:
            root = os.open(self._root, _FLAGS)
        except OSError:
            self.unreadable.append("")
            return
        try:
            self._enter(frames, root, "", visit)
            while frames and go_on():
                handle, prefix, names = frames[-1]
                if names:
                    self._down(frames, handle, prefix + names[-1], names.pop(), visit)
                else:
                    frames.pop()
                    os.close(handle)
        finally:
            for handle, _prefix, _names in frames:
                os.close(handle)

    def _down(
        self, frames: list[tuple[int, str, list[str]]], parent: int, path: str, name: str, visit: Visit
    ) -> None:
        if len(frames) >= MAX_DEPTH:
            self.unreadable.append(path)
            return
        try:
            handle = os.open(name, _FLAGS, dir_fd=parent)
        except OSError as error:
            bucket = self.refused if error.errno in {errno.ENOTDIR, errno.ELOOP} else self.unreadable
            if error.errno != errno.ENOENT:
                bucket.append(path)
        else:
            self._enter(frames, handle, path + "/", visit)

    def _enter(
        self, frames: list[tuple[int, str, list[str]]], handle: int, prefix: str, visit: Visit
    ) -> None:
        below: list[str] = []
        frames.append((handle, prefix, below))  # from here on `run` closes it, whatever happens
        try:
            below.extend(visit(handle, prefix))
        except OSError:
            self.unreadable.append(prefix[:-1])
        else:
            self.folders.append(prefix[:-1])
