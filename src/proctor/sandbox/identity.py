"""Who a tree of processes is: its keeper's pid, start time and boot, and the mark all below it carry.

A pid alone is used again within minutes; with its start time and boot it never is. `find_and_kill` ends what an
earlier owner left behind, `survivors` is the proof by a new scan. On Linux both see every descendant and every
process that carries the mark; elsewhere (macOS) only the descendants by parent link: best effort.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from proctor.sandbox.procfs import boot, carries, descendants, processes, start_time

__all__ = ["MARK", "ProcessIdentity", "boot", "find_and_kill", "send_signal", "start_time", "survivors"]

MARK = "PROCTOR_RUN"  # the variable in the environment of everything below a keeper
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One keeper process and the mark in the environment of everything below it."""

    pid: int
    start_time: int
    boot: str
    mark: str

    @classmethod
    def of(cls, pid: int, mark: str) -> ProcessIdentity:
        """Describe a living process."""
        return cls(pid, start_time(pid) or 0, boot(), mark)

    def encode(self) -> str:
        """As text for a column."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> ProcessIdentity:
        """Read what `encode` wrote."""
        data = json.loads(text)
        return cls(int(data["pid"]), int(data["start_time"]), str(data["boot"]), str(data["mark"]))

    def alive(self) -> bool:
        """Whether this very process, and not a later one with its pid, still runs."""
        return self.boot == boot() and self.start_time != 0 and start_time(self.pid) == self.start_time


def survivors(identity: ProcessIdentity) -> list[int]:
    """Pids of the tree that still live, by a new scan of all processes."""
    if identity.boot != boot():
        return []
    table = processes()
    roots = {identity.pid} if identity.alive() else set()
    below = descendants(table, roots)
    wanted = f"{MARK}={identity.mark}" if identity.mark else ""
    marked = {pid for pid in table if wanted and pid not in below and carries(pid, wanted)}
    return sorted((roots | below | marked | descendants(table, marked)) - {os.getpid()})


def find_and_kill(identity: ProcessIdentity, *, grace_s: float = 5.0, patience_s: float = 10.0) -> int:
    """End an earlier tree; how many of it were found. Blocks until they are gone or the patience ends."""
    found = set(survivors(identity))
    if identity.alive():
        # The keeper ends its tree itself, better than anybody can from outside.
        send_signal([identity.pid], signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while identity.alive() and time.monotonic() < deadline:
            time.sleep(_PAUSE)
    deadline = time.monotonic() + patience_s
    while (pids := survivors(identity)) and time.monotonic() < deadline:
        found.update(pids)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            send_signal(pids, number)
        time.sleep(_PAUSE)
    return len(found)


def send_signal(pids: Iterable[int], number: int) -> None:
    """Signal processes of which some may be gone already or belong to another user."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
