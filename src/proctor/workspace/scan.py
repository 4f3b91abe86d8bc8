"""Lists the files of a workspace by its ignore rules: git where there is git, else our own walk.

Never follows a symlink, never fails for a broken one, and never gives more than the cap: then it says truncated.
A listing is kept for two seconds at most, and only while index, HEAD, ignore files and known directories stand.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from proctor.workspace.descent import Descent
from proctor.workspace.ignore import SEED_IGNORES, IgnoreRules
from proctor.workspace.snapshot import real_directory
from proctor.workspace.tracked import list_tracked

__all__ = ["Listing", "Scanner"]

CAP = 200_000
SECONDS = 30.0
KEEP_SECONDS = 2.0
KEPT_LISTINGS = 16
RACY_NS = 100_000_000
IGNORE_FILE_BYTES = 1 << 20
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Listing:
    """Paths relative to the root, sorted; `by` says who listed: git or walk."""

    paths: tuple[str, ...]
    truncated: bool
    by: str
    unreadable: tuple[str, ...] = ()
    folders: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """The directories that were looked into, each without a slash at its end."""


@dataclass(frozen=True)
class _Kept:
    listing: Listing
    stamp: Stamp
    until: float


class Scanner:
    """Lists files and keeps what it listed for a moment; safe to share between threads."""

    def __init__(
        self, *, cap: int = CAP, ignores: Sequence[str] = SEED_IGNORES, seconds: float = SECONDS
    ) -> None:
        self._cap = cap
        self._ignores = tuple(ignores)
        self._seconds = seconds
        self._kept: dict[Path, _Kept] = {}
        self._lock = threading.Lock()

    def files(self, root: Path, *, fresh: bool = False) -> Listing:
        """List the files below a directory; `fresh` looks again in any case."""
        place = real_directory(root)
        if not fresh and (kept := self._still_good(place)) is not None:
            return kept
        listing = self._list(place)
        stamp = _stamp(place, listing)
        if max(changed for _name, changed, _size in stamp) > time.time_ns() - RACY_NS:
            return listing  # a further change could carry the same time and go unseen: look again next time
        with self._lock:
            while len(self._kept) >= KEPT_LISTINGS:
                self._kept.pop(next(iter(self._kept)))
            until = time.monotonic() + KEEP_SECONDS
            self._kept[place] = _Kept(listing, stamp, until)
        return listing

    def _still_good(self, place: Path) -> Listing | None:
        with self._lock:
            kept = self._kept.get(place)
        if kept is None or time.monotonic() > kept.until or kept.stamp != _stamp(place, kept.listing):
            return None
        return kept.listing

    def _list(self, place: Path) -> Listing:
        if _git_root(place) is not None:
            found = self._by_git(place)
            # Nothing at all in a subdirectory: it is ignored as a whole, yet the user works in it.
            if found is not None and (found.paths or (place / ".git").exists()):
                return found
        return self._by_walk(place)

    def _by_git(self, place: Path) -> Listing | None:
        """Ask git; None when it does not answer, so that the walk takes over."""
        found = list_tracked(place, self._cap, self._seconds)
        if found is None:
            return None
        paths, folders, cut = found.paths, found.folders, found.cut
        unreadable = set(found.unreadable)
        for name in found.nested:
            below = self._list(place / name)
            paths += [f"{name}/{path}" for path in below.paths]
            folders.update(f"{name}/{folder}" for folder in below.folders)
            unreadable.update(f"{name}/{folder}" for folder in below.unreadable)
            cut = cut or below.truncated
        listing = _listing(paths, cut, self._cap, "git")
        return replace(listing, unreadable=tuple(sorted(unreadable)), folders=frozenset(folders))

    def _by_walk(self, place: Path) -> Listing:
        walk = _Walk(IgnoreRules(self._ignores), self._cap, time.monotonic() + self._seconds)
        descent = Descent(str(place))
        descent.run(walk.visit, walk.go_on)
        listing = _listing(walk.found + descent.refused, walk.cut, self._cap, "walk")
        unreadable = tuple(sorted(descent.unreadable))
        return replace(listing, unreadable=unreadable, folders=frozenset(descent.folders))


def _listing(paths: Iterable[str], cut: bool, cap: int, by: str) -> Listing:
    ordered = sorted(paths)
    return Listing(tuple(ordered[:cap]), cut or len(ordered) > cap, by)


class _Walk:
    """One walk with pruning; symlinks are listed as files."""

    def __init__(self, rules: IgnoreRules, cap: int, deadline: float) -> None:
        self._rules = {"": rules}
        self._cap = cap
        self._deadline = deadline
        self.cut = False
        self.found: list[str] = []

    def go_on(self) -> bool:
        """Whether there is room and time for more."""
        self.cut = self.cut or len(self.found) > self._cap or time.monotonic() > self._deadline
        return not self.cut

    def visit(self, handle: int, prefix: str) -> list[str]:
        """Take in one directory and give the names to go into; flat, for it is the hot loop."""
        with os.scandir(handle) as listing:
            items = list(listing)
            names = [item.name for item in items]
            folders = {item.name for item in items if item.is_dir(follow_symlinks=False)}
        rules = self._rules.pop(prefix)
        if ".gitignore" in names:
            rules = _own_rules(handle, prefix, rules)
        ignored = {
            name for name in rules.suspects(names, prefix) if rules.ignores(prefix + name, name in folders)
        }
        leave = folders | ignored
        self.found += [prefix + name for name in names if name not in leave]
        below = sorted(folders - ignored, reverse=True)
        self._rules.update((f"{prefix}{name}/", rules) for name in below)
        return below


def _own_rules(folder: int, prefix: str, above: IgnoreRules) -> IgnoreRules:
    """Add the directory's own .gitignore, if it is a file that can be read."""
    try:
        handle = os.open(".gitignore", _FILE_FLAGS, dir_fd=folder)
    except OSError:
        return above
    with open(handle, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a handle, not a path
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return above
        lines = file.read(IGNORE_FILE_BYTES).splitlines()
    return IgnoreRules(lines, base=prefix, above=above)


def _git_root(place: Path) -> Path | None:
    return next((above for above in (place, *place.parents) if (above / ".git").exists()), None)


def _stamp(place: Path, listing: Listing) -> Stamp:
    """What must not have changed for a kept listing to be given again."""
    root = _git_root(place)
    places = [f"{place}/{name}" for name in listing.folders] + [str(place)]
    places += [f"{name}/.gitignore" for name in places]
    if root is not None:
        places += [str(root / ".git" / name) for name in ("index", "HEAD", "info/exclude")]
    rows = []
    for name in places:
        try:
            state = os.stat(name)  # noqa: PTH116 - thousands of them, and Path costs twice as much
        except OSError:
            rows.append((name, 0, 0))
        else:
            rows.append((name, state.st_mtime_ns, state.st_size))
    return tuple(rows)
