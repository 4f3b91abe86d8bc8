"""Clearing what proofs leave in the cache: checkouts nobody uses, remembered results, what killed runs left behind.

All of it can be made again. A checkout in use is locked and never touched; a repository's objects go only when nothing
of it was used for a day. By age first, then the least recently used until the rest fits the size.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.workspace.locks import try_lock
from proctor.workspace.worktree import delete_tree

__all__ = ["ProofsCollected", "collect_proofs"]

KEEP_RESULTS: Final = 1000
_LEFT_BEHIND: Final = 3600.0  # a temporary index or half-written file this old has no owner
_QUIET: Final = 86_400.0  # a repository's own objects may be needed between two commands of one run
MAX_BYTES: Final = 10 << 30


@dataclass(frozen=True, slots=True)
class ProofsCollected:
    """What left, or would leave."""

    repositories: int = 0
    checkouts: int = 0
    results: int = 0
    left_behind: int = 0
    bytes: int = 0
    kept_bytes: int = 0


@dataclass
class _Tally:
    dry_run: bool
    repositories: int = 0
    checkouts: int = 0
    results: int = 0
    left_behind: int = 0
    bytes: int = 0

    def remove(self, place: Path, kind: str) -> None:
        self.bytes += _size(place)
        setattr(self, kind, getattr(self, kind) + 1)
        if not self.dry_run:
            delete_tree(place) if place.is_dir() and not place.is_symlink() else place.unlink(missing_ok=True)


def collect_proofs(
    folder: Path, *, days: float, keep: int = KEEP_RESULTS, max_bytes: int = MAX_BYTES, dry_run: bool = False
) -> ProofsCollected:
    """Clear the cache of proofs; `folder` holds one directory per repository."""
    tally = _Tally(dry_run)
    now = time.time()
    homes = [home for home in _entries(folder) if home.is_dir() and not home.is_symlink()]
    for home in homes:
        if now - _used(home) > max(days * 86_400, _QUIET):
            _forget(home, tally)
        else:
            _tidy(home, tally, now=now, days=days, keep=keep)
    left = _fit(homes, tally, max_bytes)
    found = (tally.repositories, tally.checkouts, tally.results, tally.left_behind, tally.bytes)
    return ProofsCollected(*found, kept_bytes=left)


def _forget(home: Path, tally: _Tally) -> bool:
    """Remove a repository's whole cache, unless one of its checkouts is in use."""
    with _all_locked(home) as free:
        if free:
            tally.remove(home, "repositories")
        return free


def _tidy(home: Path, tally: _Tally, *, now: float, days: float, keep: int) -> None:
    for slot in _slots(home):
        if now - _moment(slot / "was") > days * 86_400:
            with _locked(slot) as free:
                if free:
                    tally.remove(slot, "checkouts")
    results = sorted(_entries(home / "results"), key=_moment, reverse=True)
    for place in [one for n, one in enumerate(results) if n >= keep or now - _moment(one) > days * 86_400]:
        tally.remove(place, "results")
    for place in _entries(home):
        stray = place.name.startswith("index-") or place.suffix.removeprefix(".").isdigit()
        if stray and now - _moment(place) > _LEFT_BEHIND:
            tally.remove(place, "left_behind")


def _fit(homes: list[Path], tally: _Tally, max_bytes: int) -> int:
    """Let the least recently used go until the rest fits; gives what is left."""
    sizes = {home: _size(home) for home in homes if home.is_dir()}
    total = sum(sizes.values())
    for home in sorted(sizes, key=_used):
        if total <= max_bytes:
            break
        if time.time() - _used(home) > _LEFT_BEHIND and _forget(home, tally):
            total -= sizes[home]
    return total


def _used(home: Path) -> float:
    """When anything of a repository's cache was used last."""
    marks = [home, home / "durations.json", *(slot / "was" for slot in _slots(home))]
    return max(_moment(place) for place in marks)


def _slots(home: Path) -> list[Path]:
    return [slot for kind in _entries(home / "slots") for slot in _entries(kind) if slot.is_dir()]


@contextlib.contextmanager
def _locked(slot: Path) -> Iterator[bool]:
    """Hold a checkout as a run would; False when a run has it."""
    handle = os.open(slot, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield try_lock(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _all_locked(home: Path) -> Iterator[bool]:
    with contextlib.ExitStack() as stack:
        yield all(stack.enter_context(_locked(slot)) for slot in _slots(home))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _moment(place: Path) -> float:
    try:
        return place.lstat().st_mtime
    except OSError:
        return 0.0


def _size(place: Path) -> int:
    total, queue = 0, [str(place)]
    if not place.is_dir():
        return place.lstat().st_size if os.path.lexists(place) else 0
    while queue:
        with contextlib.suppress(OSError), os.scandir(queue.pop()) as entries:
            for entry in entries:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    queue.append(entry.path)
    return total
