"""Who a process is: pid, start time, boot and PID name space, and the mark its whole tree carries.

A pid alone is reused within minutes; with its start time and boot it never is. `find_and_kill` ends what an
earlier supervisor left behind, `survivors` is the proof by a new scan. On Linux both see every descendant and
every process that carries the mark; elsewhere (macOS) only the process and its descendants by parent link:
best effort.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

__all__ = ["MARK", "ProcessIdentity", "boot", "find_and_kill", "start_time", "survivors"]

MARK = "PROCTOR_ATTEMPT_MARK"
_LINUX = os.uname().sysname == "Linux"


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


@lru_cache(maxsize=1)
def boot() -> str:
    """Name this boot and PID name space; a pid means nothing outside of them."""
    if not _LINUX:
        asked = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=False
        )
        return asked.stdout.strip() or "unknown"
    space = Path("/proc/self/ns/pid").readlink()
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{space}"


def start_time(pid: int) -> int | None:
    """Ticks since boot at which a process began; None when it is gone or only waits to be reaped."""
    if not _LINUX:
        return _table_by_ps().get(pid, (0, None))[1]
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def survivors(identity: ProcessIdentity) -> list[int]:
    """Pids of the tree that still live, by a new scan of all processes."""
    if identity.boot != boot():
        return []
    table = _table()
    roots = {identity.pid} if identity.alive() else set()
    below = _descendants(table, roots)
    marked = {pid for pid in table if pid not in below and _carries(pid, identity.mark)}
    return sorted((roots | below | marked | _descendants(table, marked)) - {os.getpid()})


def find_and_kill(identity: ProcessIdentity, *, grace_s: float = 5.0, patience_s: float = 10.0) -> bool:
    """End an earlier attempt's tree; True when something was found. Blocks until gone or patience ends."""
    found = bool(survivors(identity))
    if identity.alive():
        # The keeper ends its tree itself, better than anybody can from outside.
        _signal(identity.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while identity.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
    deadline = time.monotonic() + patience_s
    while (pids := survivors(identity)) and time.monotonic() < deadline:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                _signal(pid, number)
        time.sleep(0.02)
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _carries(pid: int, mark: str) -> bool:
    if not (_LINUX and mark):
        return False
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _descendants(table: Mapping[int, int], roots: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in table.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def _table() -> dict[int, int]:
    """Every living process and its parent; zombies are dead and only wait for their parent."""
    if not _LINUX:
        return {pid: row[0] for pid, row in _table_by_ps().items()}
    table = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands of names, no Path objects
        if name.isdigit() and (fields := _stat(int(name))) is not None and fields[0] not in "ZX":
            table[int(name)] = int(fields[1])
    return table


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on; the command's name before them may contain anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _table_by_ps() -> dict[int, tuple[int, int | None]]:
    listed = subprocess.run(
        ["/bin/ps", "-axo", "pid=,ppid=,stat=,lstart="], capture_output=True, text=True, check=False
    )
    table: dict[int, tuple[int, int | None]] = {}
    for line in listed.stdout.splitlines():
        pid, parent, state, began = line.split(None, 3)
        if not state.startswith("Z"):
            stamp = time.strptime(began.strip(), "%a %b %d %H:%M:%S %Y")
            table[int(pid)] = (int(parent), int(time.mktime(stamp)))
    return table
