"""Backups as people see them: directories `<base>/<workspace>_<YYYYMMDD_HHMMSS>` that hold a manifest.

A backup exists from the moment its `manifest` has its name; until then it is a leftover that prune takes
away. Three kinds: `backup` (asked for), `auto` (before the first write of a governed run), `safety` (before
a restore or an undo). The last ten of each kind are kept per workspace, and never is one removed that is
pinned or named by an unfinished restore.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from proctor.protocol.errors import IntegrityError, NotFoundError, RefusedError, UnavailableError
from proctor.protocol.ids import new_id
from proctor.protocol.ports import Clock, SystemClock
from proctor.workspace import gc, snapshot
from proctor.workspace.catalog import Backup, BackupKind, Catalog, file_key
from proctor.workspace.history import History, history_of
from proctor.workspace.journal import JournalFile
from proctor.workspace.locks import file_lock
from proctor.workspace.manifest import Entry, Manifest
from proctor.workspace.packs import BlobIndex, PackStore
from proctor.workspace.tree import ProgressCallback

__all__ = ["Backup", "BackupKind", "Backups", "Pruned", "Verified"]

KEEP = 10
COLLECT_AFTER = 5  # so many expired backups are gathered before the packs are gone through


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


class Backups(Catalog):
    """All backups of one user, in one base directory with one pack store."""

    def __init__(self, base: Path, *, keep: int = KEEP, clock: Clock | None = None) -> None:
        super().__init__(base)
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
        stood = history_of(workspace) or History("", "", "")
        try:
            manifest, stored = snapshot.take(
                self.store, workspace, previous=previous, exclude=exclude, index=index, progress=progress
            )
            backup = Backup(
                id=new_id("bk"),
                path=self.claim(workspace, self._clock.now()),
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
                branch=stood.branch,
                head=stood.head,
                history=stood.digest,
            )
            self.publish(backup, manifest, pin)
        except OSError as error:
            raise UnavailableError(
                what=f"A backup of {workspace}", reason=str(error), cure=f"Check the disk and {self.base}."
            ) from error
        return backup, manifest

    def verify(self, names: Sequence[str] = (), *, progress: ProgressCallback | None = None) -> Verified:
        """Read back every byte the named backups (or all) need, and say which paths are damaged."""
        with self.store.shared():
            backups = [self.find(name) for name in names] or self.listing()
            manifests, damaged = self.manifests(backups)
            digests = {digest for manifest in manifests.values() for digest in manifest.digests()}
            bad = gc.find_damage(self.store, digests, progress=progress)
        for name, manifest in manifests.items() if bad else ():
            for entry in manifest.entries:
                damaged += [(name, entry.path, bad[digest]) for digest in entry.digests() if digest in bad]
        return Verified(len(backups), len(digests), tuple(damaged))

    def prune(
        self, *, keep: int | None = None, workspace: Path | None = None, pinned: Collection[str] = (),
        wait_seconds: float = 60.0,
    ) -> Pruned:  # fmt: skip
        """Keep the last `keep` of each kind, in one workspace or in all, and all pinned ones; free what nobody needs.

        Other workspaces than the one named keep as many as is set for all.
        """
        with self.store.alone(wait_seconds):
            wanted = self._keep if keep is None else keep
            removed, kept, leftovers = self._remove_expired(wanted, pinned, workspace)
            live = self.live_digests()
            freed = gc.collect(self.store, live)
            self._count_expired(reset=True)
        return Pruned(removed, kept, leftovers, freed.packs_removed, freed.packs_rewritten, freed.bytes_freed)

    def journal(self, workspace: Path) -> JournalFile:
        """The journal of restores into one workspace."""
        return JournalFile(self.store.root / "journals" / f"{file_key(str(workspace))}.json")

    def workspace_lock(self, workspace: Path, *, exclusive: bool) -> AbstractContextManager[None]:
        """Keep restores into one workspace apart from each other and from backups of it."""
        return file_lock(
            self.store.root / "locks" / file_key(str(workspace)), exclusive=exclusive, wait_seconds=60.0
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
                return self.manifest(backup).by_path
            except (OSError, IntegrityError, NotFoundError):
                continue
        return {}

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
        text = path.read_text() if path.exists() and not reset else "0"
        before = int(text) if text.isdigit() else COLLECT_AFTER  # cut off by a crash: due
        if more or reset:
            path.write_text(str(before + more))
        return before + more

    def _remove_expired(
        self, keep: int, pinned: Collection[str], only: Path | None = None
    ) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """Remove what is too old. The lock is held alone, so a directory without manifest is a leftover."""
        needed = self._needed() | set(pinned)
        every = self.listing()
        own = None if only is None else {backup.name for backup in self.listing(only)}
        removed: list[str] = []
        kept: list[str] = []
        seen: dict[tuple[Path, str], int] = {}
        for backup in every:
            place = (backup.workspace, backup.kind)
            seen[place] = seen.get(place, 0) + 1
            if seen[place] <= (keep if own is None or backup.name in own else self._keep):
                continue
            if backup.pinned or backup.id in needed or backup.name in needed:
                kept.append(backup.name)
                continue
            self.discard(backup)
            removed.append(backup.name)
        return tuple(removed), tuple(kept), self.remove_leftovers()

    def _needed(self) -> set[str]:
        """Backups that unfinished restores name."""
        files = (self.store.root / "journals").glob("*.json")
        journals = [journal for path in files if (journal := JournalFile(path).read()) is not None]
        return {name for journal in journals for name in (journal.backup_id, journal.safety_id)}
