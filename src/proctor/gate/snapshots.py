"""The snapshot before the first change of a run (law 5): taken once, remembered, let go when the run has ended."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Final

from proctor.protocol.errors import NotFoundError
from proctor.protocol.tools import Call
from proctor.workspace.backups import Backups
from proctor.workspace.undo import release_run, save_before_write

__all__ = ["Snapshots"]

MAX_KEPT: Final = 4096


class Snapshots:
    """Saves workspaces for the gate; safe for many calls at once."""

    def __init__(self, backups: Backups) -> None:
        self._backups = backups
        self._known: dict[tuple[str, Path], str] = {}
        self._lock = threading.Lock()

    def existing(self, call: Call) -> str | None:
        """The snapshot this run already has, as far as this process knows."""
        if call.workspace is None:
            return None
        with self._lock:
            return self._known.get((call.run_id, call.workspace))

    async def before_write(self, call: Call, reason: str) -> str:
        """Make sure that the workspace of this run is saved; gives the snapshot's id."""
        if call.workspace is None:
            raise NotFoundError(
                kind="workspace", name="", cure="Run it inside a project, or name its directory."
            )
        found = self.existing(call)
        if found is not None:
            return found
        # Not cancelled half way: a second caller of the run would then wait for a lock nobody holds for it.
        return await asyncio.shield(asyncio.to_thread(self._take, call.run_id, call.workspace, reason))

    def _take(self, run_id: str, workspace: Path, reason: str) -> str:
        backup = save_before_write(self._backups, workspace, run_id=run_id, reason=reason)
        with self._lock:
            if len(self._known) >= MAX_KEPT:
                self._known.clear()
            self._known[run_id, workspace] = backup.id
        return backup.id

    async def release(self, run_id: str) -> int:
        """Let a run's snapshots go; they stay until retention takes them."""
        with self._lock:
            for key in [key for key in self._known if key[0] == run_id]:
                del self._known[key]
        return await asyncio.to_thread(release_run, self._backups, run_id)
