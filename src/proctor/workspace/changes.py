"""What must be done to turn one tree into another: a pure comparison of two manifests."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from proctor.workspace.manifest import Entry, Extra, Manifest

__all__ = ["Changes", "compare"]

_NONE = Extra()


@dataclass(frozen=True)
class Changes:
    """The work of a restore, by kind; empty when both trees are equal."""

    remove: list[Entry] = field(default_factory=list)  # deepest first
    folders: list[Entry] = field(default_factory=list)  # to make, parents first
    write: list[Entry] = field(default_factory=list)  # regular files whose bytes must be written
    link: list[tuple[Entry, str]] = field(default_factory=list)  # hard links and the path they share
    special: list[Entry] = field(default_factory=list)  # symlinks, FIFOs, sockets, devices
    amend: list[Entry] = field(default_factory=list)  # only mode, owner, times or attributes differ
    amend_folders: list[Entry] = field(default_factory=list)
    left: list[Entry] = field(default_factory=list)  # the snapshot could not read them: they stay as they are

    def __bool__(self) -> bool:
        return bool(self.paths())

    def paths(self) -> list[str]:
        """Every path that would be touched."""
        made = [self.folders, self.write, [entry for entry, _ in self.link], self.special]
        rest = [self.remove, self.amend, self.amend_folders]
        return sorted({entry.path for group in made + rest for entry in group})

    def leaving(self, kept: Callable[[str], bool]) -> Changes:
        """The same work without what belongs to the paths that are to stay as they are."""

        def rest(entries: list[Entry]) -> list[Entry]:
            return [entry for entry in entries if not kept(entry.path)]

        return Changes(
            remove=rest(self.remove),
            folders=rest(self.folders),
            write=rest(self.write),
            link=[(entry, shared) for entry, shared in self.link if not kept(entry.path)],
            special=rest(self.special),
            amend=rest(self.amend),
            amend_folders=rest(self.amend_folders),
            left=self.left,
        )

    def keeping(self, kept: Callable[[str], bool]) -> Changes:
        """The same work, but nothing of those paths is deleted."""
        return replace(self, remove=[entry for entry in self.remove if not kept(entry.path)])

    def rows(self) -> list[tuple[str, str]]:
        """Say for each path what would happen: write, delete or amend."""
        gone = {entry.path for entry in self.remove}
        made = [*self.folders, *self.write, *(entry for entry, _ in self.link), *self.special]
        words = dict.fromkeys(gone, "delete")
        words |= {entry.path: "write" for entry in made}
        words |= {entry.path: "amend" for entry in [*self.amend, *self.amend_folders]}
        return sorted(words.items())


def compare(now: Manifest, wanted: Manifest) -> Changes:
    """Find what turns `now` into `wanted`."""
    changes = Changes()
    current = now.by_path
    rebuilt = _linked(now, wanted, changes)
    for entry in wanted.entries:
        old = current.get(entry.path)
        if old is entry or entry.path in rebuilt:
            continue
        if entry.problem:
            changes.left.append(entry)
        elif old is None or not _same_content(old, entry):
            _make(changes, entry, old)
        elif not _same_outside(old, entry):
            _amend(changes, entry)
    _removals(changes, now, wanted)
    return changes


def _make(changes: Changes, entry: Entry, old: Entry | None) -> None:
    if old is not None and (old.is_dir or entry.is_dir):
        changes.remove.append(old)  # a file cannot be renamed over a directory, nor the other way round
    if entry.is_dir:
        changes.folders.append(entry)
    elif entry.is_file:
        changes.write.append(entry)
    else:
        changes.special.append(entry)


def _amend(changes: Changes, entry: Entry) -> None:
    if entry.is_dir:
        changes.amend_folders.append(entry)
    elif entry.is_file or stat.S_ISLNK(entry.mode):
        changes.amend.append(entry)
    else:
        changes.special.append(entry)  # opening a FIFO or device to amend it would have effects: make it anew


def _removals(changes: Changes, now: Manifest, wanted: Manifest) -> None:
    """Collect what must go; what lies below a directory the snapshot could not read is left alone."""
    target = wanted.by_path
    blind = tuple(f"{entry.path}/" for entry in wanted.problems if entry.is_dir)
    gone = [now.by_path[path] for path in now.by_path.keys() - target.keys() if not path.startswith(blind)]
    changes.remove.extend(gone)
    changes.remove.sort(key=lambda entry: (entry.path.count("/"), entry.path), reverse=True)


def _same_content(old: Entry, new: Entry) -> bool:
    if stat.S_IFMT(old.mode) != stat.S_IFMT(new.mode) or old.problem:
        return False
    if old.content != new.content or old.target != new.target:
        return False
    if new.is_file and old.size != new.size:
        return False
    first, second = old.extra or _NONE, new.extra or _NONE
    return first.segments == second.segments and first.rdev == second.rdev


def _same_outside(old: Entry, new: Entry) -> bool:
    return (
        old.mtime_ns == new.mtime_ns
        and old.mode == new.mode
        and old.uid == new.uid
        and old.gid == new.gid
        and (old.extra or _NONE).xattrs == (new.extra or _NONE).xattrs
    )


def _linked(now: Manifest, wanted: Manifest, changes: Changes) -> set[str]:
    """Plan hard links: a group that differs is built anew; a file that got linked is split off."""
    current = now.by_path
    groups, found = _groups(wanted.entries), _groups(now.entries)
    partners = {path: frozenset(paths) for paths in found for path in paths}
    rebuilt: set[str] = set()
    for paths in groups:
        members = [wanted.by_path[path] for path in paths]
        intact = all(partners.get(path) == frozenset(paths) for path in paths)
        if any(member.problem for member in members):
            continue
        if intact and all(
            _same_content(current[m.path], m) and _same_outside(current[m.path], m) for m in members
        ):
            rebuilt.update(paths)
            continue
        first, *others = members
        _make(changes, first, current.get(first.path))
        for other in others:
            old = current.get(other.path)
            if old is not None and old.is_dir:
                changes.remove.append(old)
            changes.link.append((other, first.path))
        rebuilt.update(paths)
    grouped = {path for paths in groups for path in paths}
    for path in partners.keys() - grouped:
        entry = wanted.by_path.get(path)
        if entry is not None and entry.is_file and not entry.problem:
            _make(changes, entry, current[path])
            rebuilt.add(path)
    return rebuilt


def _groups(entries: Iterable[Entry]) -> list[list[str]]:
    """Paths that share an inode, as far as they lie inside the tree."""
    by_inode: dict[tuple[int, int], list[str]] = {}
    for entry in entries:
        if entry.nlink > 1 and entry.is_file:
            by_inode.setdefault((entry.dev, entry.ino), []).append(entry.path)
    return [paths for paths in by_inode.values() if len(paths) > 1]
