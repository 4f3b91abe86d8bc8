"""Backups as people see them: directories `<base>/<workspace>_<YYYYMMDD_HHMMSS>` that hold a manifest.

A backup exists from the moment its `manifest` has its name; until then it is a leftover that prune takes
away. Three kinds: `backup` (asked for), `auto` (before the first write of a governed run), `safety` (before
a restore or an undo). The last ten of each kind are kept per workspace, and never is one removed that is
pinned or named by an unfinished restore.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from proctor.protocol.errors import IntegrityError, NotFoundError, RefusedError, UnavailableError
from proctor.protocol.ids import new_id
from proctor.protocol.ports import Clock, SystemClock
from proctor.workspace import gc, snapshot
from proctor.workspace.journal import JournalFile, write_durably
from proctor.workspace.locks import file_lock
from proctor.workspace.manifest import Entry, Manifest, decode, encode
from proctor.workspace.packs import BlobIndex, PackStore, fsync_dir
from proctor.workspace.tree import ProgressCallback

__all__ = ["Backup", "BackupKind", "Backups", "Pruned", "Verified"]

BackupKind = Literal["backup", "auto", "safety"]
KEEP = 10
COLLECT_AFTER = 5  # so many expired backups are gathered before the packs are gone through

_META, _MANIFEST, _PINS = "backup.json", "manifest", "pins"
_OURS = re.compile(r"_\d{8}_\d{6}(_\d+)?$")


@dataclass(frozen=True)
class Backup:
    """One backup, without its manifest."""

    id: str
    path: Path
    workspace: Path
    created_at: datetime
    kind: BackupKind
    reason: str
    entries: int
    size: int
    stored_bytes: int
    problems: tuple[tuple[str, str], ...]  # path and why it could not be read
    excluded: tuple[str, ...] = ()
    undoes: str = ""  # the backup an undo went back to, when this was taken before that undo
    undoable: bool = False
    pinned: bool = False

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.path.name

    @property
    def timestamp(self) -> str:
        """`YYYY-MM-DD_HHMMSS`, with the suffix of a second one in the same second."""
        day, _, rest = self.name.removeprefix(f"{_slug(self.workspace)}_").partition("_")
        return f"{day[:4]}-{day[4:6]}-{day[6:]}_{rest}"

    @property
    def complete(self) -> bool:
        """Tell whether everything could be read."""
        return not self.problems


@dataclass(frozen=True)
class Verified:
    """What a check found."""

    checked: int
    blobs: int
    damaged: tuple[tuple[str, str, str], ...]  # backup, path, reason


@dataclass(frozen=True)
class Pruned:
    """What pruning took away."""

    removed: tuple[str, ...]
    kept_pinned: tuple[str, ...]
    leftovers: int
    packs_removed: int = 0
    packs_rewritten: int = 0
    bytes_freed: int = 0


class Backups:
    """All backups of one user, in one base directory with one pack store."""

    def __init__(self, base: Path, *, keep: int = KEEP, clock: Clock | None = None) -> None:
        self.base = base
        self.store = PackStore(base / ".store")
        self._keep = keep
        self._clock = clock or SystemClock()

    def create(
        self,
        workspace: Path,
        *,
        reason: str = "",
        kind: BackupKind = "backup",
        exclude: Sequence[str] = (),
        pin: str = "",
        progress: ProgressCallback | None = None,
    ) -> Backup:
        """Take a backup; when it returns, it is durable. Old ones are let go, but never a pinned one."""
        place = snapshot.real_directory(workspace)
        with self.store.shared(), self.workspace_lock(place, exclusive=False):
            self._refuse_unfinished(place)
            backup, _manifest = self.record(
                place,
                kind=kind,
                reason=reason,
                exclude=exclude,
                pin=pin,
                undoable=kind == "auto",
                progress=progress,
            )
        self.expire()
        return backup

    def record(
        self,
        workspace: Path,
        *,
        kind: BackupKind,
        reason: str,
        exclude: Sequence[str] = (),
        pin: str = "",
        undoes: str = "",
        undoable: bool = False,
        known: Mapping[str, Entry] | None = None,
        index: BlobIndex | None = None,
        progress: ProgressCallback | None = None,
    ) -> tuple[Backup, Manifest]:
        """Take a backup inside locks that the caller holds; `known` are entries of a stored manifest."""
        if self.store.has_damage():
            previous: Mapping[str, Entry] = {}
        else:
            previous = self._previous(workspace) if known is None else known
        try:
            manifest, stored = snapshot.take(
                self.store, workspace, previous=previous, exclude=exclude, index=index, progress=progress
            )
            backup = Backup(
                id=new_id("bk"),
                path=self._claim(workspace),
                workspace=workspace,
                created_at=self._clock.now().astimezone(UTC),
                kind=kind,
                reason=reason,
                entries=len(manifest.entries),
                size=manifest.size,
                stored_bytes=stored,
                problems=tuple((entry.path, entry.problem) for entry in manifest.problems),
                excluded=tuple(exclude),
                undoes=undoes,
                undoable=undoable,
                pinned=bool(pin),
            )
            self._publish(backup, manifest, pin)
        except OSError as error:
            raise UnavailableError(
                what=f"A backup of {workspace}", reason=str(error), cure=f"Check the disk and {self.base}."
            ) from error
        return backup, manifest

    def listing(self, workspace: Path | None = None) -> list[Backup]:
        """All backups, the newest first; of one workspace when it is named."""
        place = None if workspace is None else _resolved(workspace)
        found = [backup for backup in map(self._load, self._directories()) if backup is not None]
        mine = [backup for backup in found if place is None or backup.workspace == place]
        return sorted(mine, key=lambda backup: (backup.created_at, backup.id), reverse=True)

    def find(self, name: str, workspace: Path | None = None) -> Backup:
        """Find one by path, directory name, id or timestamp; anything else is not a backup."""
        every = self.listing(workspace)
        wanted = name.rstrip("/") or name
        for backup in every:
            if wanted in {backup.id, backup.name} or _same_place(wanted, backup.path):
                return backup
        by_time = [
            backup for backup in every if wanted in {backup.timestamp, backup.timestamp.replace("-", "")}
        ]
        if len(by_time) > 1:
            names = ", ".join(backup.name for backup in by_time)
            raise RefusedError(reason=f"{name!r} fits several backups: {names}", cure="Name one of them.")
        if not by_time:
            raise NotFoundError(kind="backup", name=name, cure="`proctor backup list` shows what there is.")
        return by_time[0]

    def manifest(self, backup: Backup) -> Manifest:
        """Load and check what a backup holds."""
        try:
            manifest = decode((backup.path / _MANIFEST).read_bytes())
        except FileNotFoundError:
            raise NotFoundError(kind="backup", name=backup.name, cure="It was removed meanwhile.") from None
        except (ValueError, EOFError) as error:
            raise IntegrityError(what=f"The manifest of {backup.name}", reason=str(error)) from error
        manifest.check()
        return manifest

    def verify(self, names: Sequence[str] = (), *, progress: ProgressCallback | None = None) -> Verified:
        """Read back every byte the named backups (or all) need, and say which paths are damaged."""
        with self.store.shared():
            backups = [self.find(name) for name in names] or self.listing()
            manifests, damaged = self._manifests(backups)
            digests = {digest for manifest in manifests.values() for digest in manifest.digests()}
            bad = gc.find_damage(self.store, digests, progress=progress)
        for name, manifest in manifests.items() if bad else ():
            for entry in manifest.entries:
                damaged += [(name, entry.path, bad[digest]) for digest in entry.digests() if digest in bad]
        return Verified(len(backups), len(digests), tuple(damaged))

    def prune(
        self, *, keep: int | None = None, pinned: Collection[str] = (), wait_seconds: float = 60.0
    ) -> Pruned:
        """Keep the last `keep` of each kind and workspace and all pinned ones; free what nobody needs."""
        with self.store.alone(wait_seconds):
            removed, kept, leftovers = self._remove_expired(self._keep if keep is None else keep, pinned)
            manifests, unreadable = self._manifests(self.listing())
            if unreadable:
                name, _path, reason = unreadable[0]
                raise IntegrityError(
                    what=f"The manifest of {name}", reason=f"{reason}; nothing was collected"
                )
            live = {digest for manifest in manifests.values() for digest in manifest.digests()}
            freed = gc.collect(self.store, live)
            self._count_expired(reset=True)
        return Pruned(removed, kept, leftovers, freed.packs_removed, freed.packs_rewritten, freed.bytes_freed)

    def discard(self, backup: Backup) -> None:
        """Take back a backup that turned out to be needless; its blobs stay until the next collection."""
        _remove(backup.path)

    def pin(self, backup: Backup, owner: str) -> None:
        """Keep a backup for as long as `owner` (an open run) needs it."""
        write_durably(backup.path / _PINS / _key(owner), owner.encode())

    def unpin(self, backup: Backup, owner: str) -> None:
        """Let go of it again."""
        (backup.path / _PINS / _key(owner)).unlink(missing_ok=True)

    def is_pinned_by(self, backup: Backup, owner: str) -> bool:
        """Tell whether that owner holds it."""
        return (backup.path / _PINS / _key(owner)).exists()

    @staticmethod
    def owner_key(owner: str) -> str:
        """Give a file name that stands for an owner."""
        return _key(owner)

    def journal(self, workspace: Path) -> JournalFile:
        """The journal of restores into one workspace."""
        return JournalFile(self.store.root / "journals" / f"{_key(str(workspace))}.json")

    def workspace_lock(self, workspace: Path, *, exclusive: bool) -> AbstractContextManager[None]:
        """Keep restores into one workspace apart from each other and from backups of it."""
        return file_lock(
            self.store.root / "locks" / _key(str(workspace)), exclusive=exclusive, wait_seconds=60.0
        )

    def _refuse_unfinished(self, workspace: Path) -> None:
        unfinished = self.journal(workspace).read()
        if unfinished is not None:
            raise RefusedError(
                reason=f"a restore of {workspace} was interrupted; it is neither the old nor the new state",
                cure=f"Run `proctor backup restore {unfinished.backup_name}` again to finish it.",
            )

    def _previous(self, workspace: Path) -> Mapping[str, Entry]:
        """The entries of the newest backup that still reads; only a help, so a damaged one is passed over."""
        for backup in self.listing(workspace):
            try:
                return decode((backup.path / _MANIFEST).read_bytes()).by_path
            except (OSError, ValueError, IntegrityError):
                continue
        return {}

    def _claim(self, workspace: Path) -> Path:
        """Make the directory of a new backup; a second one in the same second gets a suffix."""
        self.base.mkdir(parents=True, exist_ok=True, mode=0o700)
        stem = f"{_slug(workspace)}_{self._clock.now().astimezone().strftime('%Y%m%d_%H%M%S')}"
        number = 1
        while True:
            path = self.base / (stem if number == 1 else f"{stem}_{number}")
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                number += 1
            else:
                return path

    def _publish(self, backup: Backup, manifest: Manifest, pin: str) -> None:
        """Give the backup its facts, its pin and, last, the manifest that makes it one."""
        raw = encode(manifest)
        facts = asdict(backup) | {
            "workspace": str(backup.workspace),
            "created_at": backup.created_at.isoformat(),
        }
        del facts["path"], facts["pinned"]
        with (backup.path / _META).open("xb") as file:
            file.write(json.dumps(facts, indent=2).encode())
            file.flush()
            os.fsync(file.fileno())
        if pin:
            self.pin(backup, pin)
        write_durably(backup.path / _MANIFEST, raw)
        fsync_dir(self.base)

    def _directories(self) -> list[Path]:
        if not self.base.is_dir():
            return []
        with os.scandir(self.base) as listing:
            return [
                Path(item.path)
                for item in listing
                if item.name != ".store" and item.is_dir(follow_symlinks=False)
            ]

    def _load(self, path: Path) -> Backup | None:
        """Read a backup's facts; a directory without manifest and facts is not a backup."""
        if not (path / _MANIFEST).is_file():
            return None
        try:
            facts: dict[str, Any] = json.loads((path / _META).read_text())
            pins = path / _PINS
            return Backup(
                **facts
                | {
                    "path": path,
                    "workspace": Path(facts["workspace"]),
                    "created_at": datetime.fromisoformat(facts["created_at"]),
                    "problems": tuple((where, why) for where, why in facts["problems"]),
                    "excluded": tuple(facts["excluded"]),
                    "pinned": pins.is_dir() and any(pins.iterdir()),
                }
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _manifests(self, backups: Sequence[Backup]) -> tuple[dict[str, Manifest], list[tuple[str, str, str]]]:
        good: dict[str, Manifest] = {}
        bad: list[tuple[str, str, str]] = []
        for backup in backups:
            try:
                good[backup.name] = self.manifest(backup)
            except (IntegrityError, NotFoundError) as error:
                bad.append((backup.name, "manifest", str(error.facts.get("reason", error))))
        return good, bad

    def expire(self) -> None:
        """Let old ones go when nobody is at work; the packs are gone through only now and then."""
        try:
            with self.store.alone(0.0):
                removed, _kept, _leftovers = self._remove_expired(self._keep, ())
                due = self._count_expired(len(removed)) >= COLLECT_AFTER
            if due:
                self.prune(wait_seconds=0.0)
        except (UnavailableError, IntegrityError):
            return  # the next backup or `proctor backup prune` does it

    def _count_expired(self, more: int = 0, *, reset: bool = False) -> int:
        path = self.store.root / "expired"
        before = int(path.read_text()) if path.exists() and not reset else 0
        if more or reset:
            path.write_text(str(before + more))
        return before + more

    def _remove_expired(
        self, keep: int, pinned: Collection[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """Remove what is too old. The lock is held alone, so a directory without manifest is a leftover."""
        needed = self._needed() | set(pinned)
        every = self.listing()
        removed: list[str] = []
        kept: list[str] = []
        seen: dict[tuple[Path, str], int] = {}
        for backup in every:
            place = (backup.workspace, backup.kind)
            seen[place] = seen.get(place, 0) + 1
            if seen[place] <= keep:
                continue
            if backup.pinned or backup.id in needed or backup.name in needed:
                kept.append(backup.name)
                continue
            _remove(backup.path)
            removed.append(backup.name)
        leftovers = [path for path in self._directories() if _is_leftover(path)]
        for path in leftovers:
            shutil.rmtree(path, ignore_errors=True)
        return tuple(removed), tuple(kept), len(leftovers)

    def _needed(self) -> set[str]:
        """Backups that unfinished restores name."""
        files = (self.store.root / "journals").glob("*.json")
        journals = [journal for path in files if (journal := JournalFile(path).read()) is not None]
        return {name for journal in journals for name in (journal.backup_id, journal.safety_id)}


def _remove(path: Path) -> None:
    """Take the manifest's name away first: from then on it is no backup, whatever a crash leaves."""
    (path / _MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _is_leftover(path: Path) -> bool:
    """Tell a directory that a crashed create or removal left; never one with anything else in it."""
    if not _OURS.search(path.name) or (path / _MANIFEST).exists():
        return False
    names = {item.name.partition(".tmp")[0] for item in path.iterdir()}
    return names <= {_META, _PINS, _MANIFEST}


def _slug(workspace: Path) -> str:
    return re.sub(r"[^\w.-]", "_", workspace.name, flags=re.ASCII)[:80].lstrip(".") or "root"


def _key(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:24]


def _resolved(path: Path) -> Path:
    return path.expanduser().resolve()


def _same_place(text: str, path: Path) -> bool:
    return "/" in text and _resolved(Path(text)) == path.resolve()
