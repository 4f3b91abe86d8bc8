"""Turns a workspace back into what a backup holds, exactly and all or nothing.

Safety snapshot first; then the journal; then the changes; then the journal goes. A failure on the way puts
the workspace back; a kill leaves the journal, and running a restore again finishes it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.protocol.errors import NotFoundError, ProctorError, RefusedError
from proctor.protocol.permits import Permit, redeem_permit
from proctor.workspace import snapshot
from proctor.workspace.backups import Backup, Backups
from proctor.workspace.changes import Changes, compare
from proctor.workspace.history import Choice, HistoryMovedError, Moved, moved_since
from proctor.workspace.journal import Journal
from proctor.workspace.manifest import Manifest
from proctor.workspace.packs import BlobIndex, PackReader
from proctor.workspace.rebuild import STAGING_PREFIX, Rebuilder
from proctor.workspace.tree import ProgressCallback

__all__ = ["RESTORE_TOOL", "RestoreFailedError", "Restored", "preview", "restore"]

RESTORE_TOOL = "restore_backup"  # the permit must be for this tool


class RestoreFailedError(ProctorError):
    """The restore of {backup} failed: {reason}. {state}"""

    code = "restore_failed"


@dataclass(frozen=True)
class Restored:
    """What a restore did."""

    backup: Backup
    target: Path
    safety: Backup  # restoring this one takes the restore back
    changed: tuple[str, ...]
    left: tuple[str, ...]  # the backup could not read them when it was made: untouched
    notes: tuple[str, ...]  # what this user may not set, such as foreign owners
    resumed: bool
    moved: Moved | None = None  # how git's history had moved since the backup


def preview(
    backups: Backups, backup: Backup, target: Path | None = None, *, about_git: str = "restore"
) -> Changes:
    """Say what a restore would change, without changing or storing anything."""
    place = target or backup.workspace
    wanted = backups.manifest(backup)
    if not place.exists():
        return compare(Manifest([]), wanted)
    now = snapshot.look(snapshot.real_directory(place), previous=wanted.by_path, exclude=backup.excluded)
    return _about_git(compare(now, wanted), about_git)


def _about_git(changes: Changes, about_git: str) -> Changes:
    """Leave git's own files alone, or at least every object: a commit that came later is not deleted by an undo."""
    if about_git == "keep":
        return changes.leaving(lambda path: path == ".git" or path.startswith(".git/"))
    if about_git == "objects":
        return changes.keeping(lambda path: path.startswith(".git/objects/"))
    return changes


def restore(
    backups: Backups,
    backup: Backup,
    *,
    permit: Permit,
    target: Path | None = None,
    allowed_roots: Sequence[Path] = (),
    undoes: str = "",
    history: Choice = "restore",
    progress: ProgressCallback | None = None,
    step: Callable[[], None] | None = None,
) -> Restored:
    """Restore into the backup's own workspace, or into an empty directory inside the allowed roots.

    `history` is what happens when git's history moved since; an undo (`undoes`) never deletes a git object.
    """
    redeem_permit(permit, now=time.monotonic(), tool=RESTORE_TOOL)
    place = _target(backups, backup, target, allowed_roots)
    with backups.store.shared(), backups.workspace_lock(place, exclusive=True):
        done = _Run(backups, backup, place, undoes, history, progress, step).run()
    backups.expire()
    return done


@dataclass
class _Run:
    backups: Backups
    backup: Backup
    place: Path
    undoes: str
    history: Choice
    progress: ProgressCallback | None
    step: Callable[[], None] | None

    def run(self) -> Restored:
        wanted = self.backups.manifest(self.backup)
        file = self.backups.journal(self.place)
        earlier = file.read()
        own = (
            self.place == self.backup.workspace
        )  # an empty directory elsewhere has no history that could move
        moved = moved_since(self.backup.stood, self.place) if own and earlier is None else None
        about_git = self._about_git(moved, earlier)
        index = BlobIndex(self.backups.store)
        safety, now = self._safety(wanted, earlier, index)
        changes = _about_git(compare(now, wanted), about_git)
        self._refuse_unsaved(changes, now, safety)
        staging = earlier.staging if earlier else f"{STAGING_PREFIX}{secrets.token_hex(4)}"
        undo_to = earlier.safety_id if earlier else safety.id
        file.write(Journal(self.backup.id, self.backup.name, undo_to, str(self.place), staging, about_git))
        try:
            notes = self._apply(changes, now, wanted, staging, index)
        except (OSError, ProctorError) as error:
            raise self._roll_back(safety, now, staging, earlier, error) from error
        file.clear()
        found = self.backups.find(undo_to)
        left = tuple(entry.path for entry in changes.left)
        paths = tuple(changes.paths())
        return Restored(self.backup, self.place, found, paths, left, notes, earlier is not None, moved)

    def _about_git(self, moved: Moved | None, earlier: Journal | None) -> str:
        """What is done with git's own files: restore, keep, or restore all but never delete an object."""
        if earlier is not None and earlier.backup_id == self.backup.id:
            return earlier.history
        if moved is not None and self.history == "refuse":
            point = f"{self.backup.name} " if self.undoes else ""
            raise HistoryMovedError(what=moved.sentence(), backup=self.backup.name, point=point)
        if moved is not None and self.history == "keep":
            return "keep"
        return "objects" if self.undoes else "restore"

    def _safety(self, wanted: Manifest, earlier: Journal | None, index: BlobIndex) -> tuple[Backup, Manifest]:
        """Snapshot what is there now; after an interrupted restore it is no undo point, only a safeguard."""
        reason = f"before restoring {self.backup.name}" if earlier is None else "before finishing a restore"
        scaffold = (f"/{STAGING_PREFIX}*/",) if earlier else ()
        return self.backups.record(
            self.place,
            kind="safety",
            reason=reason,
            exclude=(*self.backup.excluded, *scaffold),
            undoes=self.undoes,
            undoable=earlier is None and not self.undoes,
            known=wanted.by_path,
            index=index,
            progress=self.progress,
        )

    def _refuse_unsaved(self, changes: Changes, now: Manifest, safety: Backup) -> None:
        """Never overwrite or delete what the safety snapshot could not read."""
        if not now.problems:
            return
        blind = tuple(f"{entry.path}/" for entry in now.problems if entry.is_dir)
        bad = {entry.path: entry.problem for entry in now.problems}
        unsaved = [
            f"{path} ({bad.get(path, 'in a directory that cannot be read')})"
            for path in changes.paths()
            if path in bad or path.startswith(blind)
        ]
        if unsaved:
            self.backups.discard(safety)
            raise RefusedError(
                reason=f"these would be overwritten but cannot be saved first: {', '.join(unsaved[:5])}",
                cure="Stop what writes there, make them readable (chmod u+rwX) or move them away; then run it again.",
            )

    def _apply(
        self,
        changes: Changes,
        now: Manifest,
        wanted: Manifest,
        staging: str,
        index: BlobIndex | None = None,
    ) -> tuple[str, ...]:
        with PackReader(self.backups.store, index) as reader:
            hands = Rebuilder(self.place, reader, staging=staging, progress=self.progress, step=self.step)
            hands.run(changes, now, wanted)
        return tuple(hands.notes)

    def _roll_back(
        self, safety: Backup, before: Manifest, staging: str, earlier: Journal | None, cause: Exception
    ) -> RestoreFailedError:
        """Put the workspace back; what others did meanwhile is snapshotted first."""
        try:
            _backup, now = self.backups.record(
                self.place,
                kind="safety",
                reason=f"before taking back the failed restore of {self.backup.name}",
                exclude=(*self.backup.excluded, f"/{STAGING_PREFIX}*/"),
                known=before.by_path,
            )
            self._apply(compare(now, before), now, before, staging)
        except (OSError, ProctorError) as error:
            state = (
                f"Putting it back failed too ({error}); `proctor backup restore {safety.name}` finishes that."
            )
            return RestoreFailedError(backup=self.backup.name, reason=str(cause), state=state)
        if earlier is None:
            self.backups.journal(self.place).clear()
        else:
            self.backups.journal(self.place).write(earlier)  # that one is still unfinished
        self.backups.discard(safety)  # the workspace is in this very state again
        state = "The workspace is as it was before."
        return RestoreFailedError(backup=self.backup.name, reason=str(cause), state=state)


def _target(backups: Backups, backup: Backup, target: Path | None, allowed_roots: Sequence[Path]) -> Path:
    """Resolve the target; refuse what is neither the backup's workspace nor an empty allowed directory."""
    if target is None or target.expanduser().resolve() == backup.workspace:
        return _own_workspace(backup)
    place = snapshot.real_directory(target)
    snapshot.refuse_overlap(backups.store.root, place)
    if not any(place.is_relative_to(root.resolve()) for root in allowed_roots):
        raise RefusedError(
            reason=f"{place} lies outside the allowed directories", cure="Choose one inside them."
        )
    unfinished = backups.journal(place).read()
    if any(place.iterdir()) and (unfinished is None or unfinished.backup_id != backup.id):
        raise RefusedError(
            reason=f"{backup.name} is a backup of {backup.workspace}, not of {place}, which is not empty",
            cure="Restore into its own workspace or into an empty directory.",
        )
    return place


def _own_workspace(backup: Backup) -> Path:
    place = backup.workspace
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise RefusedError(reason=f"{place} is no longer a directory", cure="Move what is there away.")
    if not place.exists():
        if not place.parent.is_dir():
            raise NotFoundError(kind="directory", name=str(place.parent), cure="Make it, then restore again.")
        place.mkdir(mode=0o700)
    return place
