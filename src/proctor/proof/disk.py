"""How much disk a proof's command may fill: watched by the file system's free space, and counted only when that falls.

Looking at free space costs one system call; the run's own directories are counted (blocks, not lengths) only when more
than the limit is gone, because others write to the same disk too.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DiskLimit", "used_bytes", "watch_disk"]

_EVERY = 0.1
_FILES = 2_000_000


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """What a run may add, in bytes, to the directories it can write to."""

    bytes: int

    def at(self, place: Path) -> int:
        """The limit here: never more than half of what is free, so that others can go on."""
        return min(self.bytes, shutil.disk_usage(place).free // 2)


def used_bytes(places: Sequence[Path], since: float, stop_at: int) -> int:
    """What was written into the directories since a moment; stops counting when it is more, or too many files."""
    total, seen = 0, 0
    queue = [str(place) for place in places]
    while queue:
        try:
            with os.scandir(queue.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
                    state = entry.stat(follow_symlinks=False)
                    total += state.st_blocks * 512 if state.st_ctime >= since else 0
                    seen += 1
                    if total > stop_at or seen > _FILES:
                        return max(total, stop_at + 1)
        except OSError:
            continue  # a command may take its own directories away while we look
    return total


async def watch_disk(places: Sequence[Path], limit: DiskLimit, full: asyncio.Event) -> None:
    """Set `full` once more than the limit was written into the directories; runs until it is cancelled."""
    most, since = limit.at(places[0]), time.time()
    step = max(1, most // 4)
    wanted = shutil.disk_usage(places[0]).free - most  # look closer when less than this is free
    while True:
        await asyncio.sleep(_EVERY)
        now = shutil.disk_usage(places[0]).free
        if now > wanted:
            continue
        if await asyncio.to_thread(used_bytes, places, since, most) > most:
            full.set()
            return
        wanted = now - step  # it was somebody else; look again when more is gone
