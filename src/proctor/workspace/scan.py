"""Lists the files of a workspace by its ignore rules: git where there is git, else our own walk.

Never follows a symlink, never fails for a broken one, and never gives more than the cap: then it says truncated.
A listing is kept for two seconds at most, and only while index, HEAD, ignore files and known directories stand.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from proctor.config import environment
from proctor.workspace.git import QUIET
from proctor.workspace.ignore import SEED_IGNORES, IgnoreRules
from proctor.workspace.snapshot import real_directory

__all__ = ["Listing", "Scanner"]

CAP = 200_000
SECONDS = 30.0
KEEP_SECONDS = 2.0
KEPT_LISTINGS = 16
RACY_NS = 100_000_000
IGNORE_FILE_BYTES = 1 << 20

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
        shown = _start(place, "ls-files", "-z", "-c", "-o", "--exclude-standard")
        names, cut = _read(shown, self._cap, self._seconds)
        if names is None:
            return None
        paths, nested, folders = _there(str(place), names)
        nested += _submodules(place, paths)
        for name in nested:
            paths.pop(name, None)
            below = self._list(place / name)
            paths.update(dict.fromkeys(f"{name.rstrip('/')}/{path}" for path in below.paths))
            folders.update(f"{name.rstrip('/')}/{folder}" for folder in below.folders)
            cut = cut or below.truncated
        listing = _listing(paths, cut, self._cap, "git")
        return replace(listing, folders=frozenset(folders))

    def _by_walk(self, place: Path) -> Listing:
        walk = _Walk(place, IgnoreRules(self._ignores), self._cap, time.monotonic() + self._seconds)
        found = list(walk.run())
        listing = _listing(found, walk.cut, self._cap, "walk")
        return replace(listing, unreadable=tuple(sorted(walk.unreadable)), folders=frozenset(walk.folders))


def _listing(paths: Iterable[str], cut: bool, cap: int, by: str) -> Listing:
    ordered = sorted(paths)
    return Listing(tuple(ordered[:cap]), cut or len(ordered) > cap, by)


class _Walk:
    """One walk with pruning; symlinks are listed as files."""

    def __init__(self, root: Path, rules: IgnoreRules, cap: int, deadline: float) -> None:
        self._stack: list[tuple[str, IgnoreRules]] = [("", rules)]
        self._root = str(root)
        self._cap = cap
        self._deadline = deadline
        self.cut = False
        self.unreadable: list[str] = []
        self.folders: list[str] = []

    def run(self) -> Iterator[str]:
        """Give the paths, at most the cap and one more."""
        given = 0
        while self._stack:
            prefix, rules = self._stack.pop()
            self.folders.append(prefix.rstrip("/"))
            for path in self._folder(prefix, rules):
                given += 1
                yield path
            if given > self._cap or time.monotonic() > self._deadline:
                self.cut = True
                return

    def _folder(self, prefix: str, rules: IgnoreRules) -> list[str]:
        try:
            with os.scandir(f"{self._root}/{prefix}") as listing:
                items = list(listing)
        except OSError:
            self.unreadable.append(prefix.rstrip("/"))
            return []
        here = _own_rules(items, prefix, rules)
        ignores, found = here.ignores, []
        for item in items:
            name = item.name
            path = prefix + name
            folder = item.is_dir(follow_symlinks=False)
            if ignores(path, name, folder):
                continue
            if folder:
                self._stack.append((path + "/", here))
            else:
                found.append(path)
        return found


def _own_rules(items: list[os.DirEntry[str]], prefix: str, above: IgnoreRules) -> IgnoreRules:
    """Add the directory's own .gitignore, if it has one that can be read."""
    for item in items:
        if item.name == ".gitignore" and item.is_file(follow_symlinks=False):
            try:
                with open(item.path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                    lines = file.read(IGNORE_FILE_BYTES).splitlines()
            except OSError:
                return above
            return IgnoreRules(lines, depth=len(prefix), above=above)
    return above


def _git_root(place: Path) -> Path | None:
    return next((above for above in (place, *place.parents) if (above / ".git").exists()), None)


def _start(place: Path, *words: str) -> subprocess.Popen[bytes] | None:
    """Start git with hooks and fsmonitor off: a repository may be hostile."""
    options = [word for name, value in QUIET for word in ("-c", f"{name}={value}")]
    own = {name: value for name, value in environment().items() if not name.startswith("GIT_")}
    try:
        return subprocess.Popen(
            ["git", "-C", str(place), *options, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**own, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        )
    except OSError:
        return None


def _read(process: subprocess.Popen[bytes] | None, cap: int, seconds: float) -> tuple[list[str] | None, bool]:
    """Read NUL-separated names up to the cap within the time; None when git failed."""
    if process is None or process.stdout is None:
        return None, False
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    parts: list[bytes] = []
    count = 0
    with process:
        while count <= cap and (part := os.read(process.stdout.fileno(), 1 << 20)):
            parts.append(part)
            count += part.count(b"\0")
        cut = count > cap
        if cut:
            process.kill()
        process.wait()
        timer.cancel()
    if process.returncode != 0 and not cut:
        return None, False
    return os.fsdecode(b"".join(parts)).split("\0")[:-1], cut


def _there(place: str, names: list[str]) -> tuple[dict[str, None], list[str], set[str]]:
    """Leave out what git knows and nobody has any more; a look at each directory is cheaper than one at each file.

    In git's order, which is nearly ours; apart the repositories inside, which git names with a slash, and the directories.
    """
    paths: dict[str, None] = {}
    nested: list[str] = []
    folders: set[str] = set()
    last, inside = None, frozenset[str]()
    for path in names:
        folder, _, name = path.rpartition("/")
        if not name:
            nested.append(path)
            continue
        if folder != last:
            last, inside = folder, _names(f"{place}/{folder}")
            folders.add(folder)
        if name in inside:
            paths[path] = None
    return paths, sorted(nested), folders


def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return frozenset()


def _submodules(place: Path, paths: Container[str]) -> list[str]:
    """Submodules stand in the index as one name; only a repository that has some is asked for them."""
    if ".gitmodules" not in paths:
        return []
    staged, _cut = _read(_start(place, "ls-files", "-z", "-s"), CAP, SECONDS)
    links = [row.partition("\t")[2] for row in staged or () if row.startswith("160000 ")]
    return [name for name in links if name in paths and (place / name).is_dir()]


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
