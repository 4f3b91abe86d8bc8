"""The mark of a restore under way: written before the first change, removed after the last is durable.

While it is there the workspace is neither the old state nor the new one: nobody takes a backup of it, nothing
it names is pruned, and running a restore (the same or another) finishes the matter.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from proctor.workspace.packs import fsync_dir

__all__ = ["Journal", "JournalFile", "write_durably"]


@dataclass(frozen=True)
class Journal:
    """What was being done."""

    backup_id: str
    backup_name: str
    safety_id: str
    workspace: str
    staging: str
    history: str = "restore"  # what is done with git's own files; finishing it does the same


class JournalFile:
    """The journal of one workspace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Journal | None:
        """Give the restore that was not finished, if there is one."""
        try:
            return Journal(**json.loads(self.path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, journal: Journal) -> None:
        """Note the intent durably."""
        write_durably(self.path, json.dumps(asdict(journal), indent=2).encode())

    def clear(self) -> None:
        """Say durably that it is finished."""
        self.path.unlink(missing_ok=True)
        fsync_dir(self.path.parent)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file so that after a crash it is whole, old or absent: temporary, fsync, rename, fsync."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f"{path.name}.tmp{os.getpid()}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    fsync_dir(path.parent)
