"""What can be taken back, and taking it back. The record is the snapshots themselves: each one taken before a
restore or before the first write of a governed run says what it was taken before.

An undo is a restore, so it takes a snapshot first and can itself be taken back by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from proctor.protocol.errors import NotFoundError
from proctor.protocol.permits import Permit
from proctor.workspace import snapshot
from proctor.workspace.backups import Backup, Backups
from proctor.workspace.catalog import file_key
from proctor.workspace.changes import Changes
from proctor.workspace.history import Choice
from proctor.workspace.locks import file_lock
from proctor.workspace.restore import Restored, preview, restore
from proctor.workspace.tree import ProgressCallback

__all__ = [
    "UndoPoint",
    "choose_undo",
    "preview_undo",
    "release_run",
    "save_before_write",
    "undo",
    "undo_points",
]


@dataclass(frozen=True)
class UndoPoint:
    """A state one can go back to."""

    backup: Backup
    undone: bool

    @property
    def what(self) -> str:
        """What the state was saved before."""
        return self.backup.reason


def undo_points(backups: Backups, workspace: Path) -> list[UndoPoint]:
    """List what can be taken back, the newest first."""
    found = backups.listing(workspace)
    undone = {backup.undoes for backup in found if backup.undoes}
    return [UndoPoint(backup, backup.id in undone) for backup in found if backup.undoable]


def choose_undo(backups: Backups, workspace: Path, name: str = "") -> UndoPoint:
    """Find the named point, or the newest that was not taken back yet."""
    if name:
        backup = backups.find(name, workspace)
        undone = {other.undoes for other in backups.listing(workspace)}
        return UndoPoint(backup, backup.id in undone)
    for point in undo_points(backups, workspace):
        if not point.undone:
            return point
    raise NotFoundError(
        kind="change to take back in", name=str(workspace), cure="`proctor undo --list` shows what was saved."
    )


def preview_undo(backups: Backups, point: UndoPoint, *, history: Choice = "refuse") -> Changes:
    """Say what an undo would change."""
    return preview(backups, point.backup, about_git="keep" if history == "keep" else "objects")


def undo(
    backups: Backups,
    point: UndoPoint,
    *,
    permit: Permit,
    history: Choice = "refuse",
    progress: ProgressCallback | None = None,
) -> Restored:
    """Bring the workspace back to the state of the point; `history` says what if git's history moved since."""
    return restore(
        backups, point.backup, permit=permit, undoes=point.backup.id, history=history, progress=progress
    )


def save_before_write(backups: Backups, workspace: Path, *, run_id: str, reason: str) -> Backup:
    """Take the snapshot that a governed run needs before its first write; later calls of the run get the same."""
    place = snapshot.real_directory(workspace)
    with file_lock(backups.store.root / "locks" / f"run-{file_key(run_id)}", exclusive=True):
        for backup in backups.listing(place):
            if backups.is_pinned_by(backup, run_id):
                return backup
        return backups.create(place, kind="auto", reason=reason, pin=run_id)


def release_run(backups: Backups, run_id: str) -> int:
    """Let go of every snapshot a run has pinned, when it has ended; say how many."""
    held = [backup for backup in backups.listing() if backups.is_pinned_by(backup, run_id)]
    for backup in held:
        backups.unpin(backup, run_id)
    return len(held)
