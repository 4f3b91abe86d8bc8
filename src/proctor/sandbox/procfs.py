"""What the kernel says about a tree of processes: who is in it, what it holds, what it has used.

Every look may be outdated when it returns; only `waitpid` of a subreaper proves that a tree is gone.
Standard library only: the keeper imports this with nothing else of ours on its path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Sample", "boot_id", "children", "marked", "pss", "sample", "start_time", "tree"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_CHILDREN_KNOWN = os.access(f"/proc/{os.getpid()}/task/{os.getpid()}/children", os.R_OK)


class Sample(NamedTuple):
    """One look at a tree: seconds of CPU (with waited-for children) and resident bytes."""

    cpu: float
    resident: int


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        chunks = []
        while chunk := os.read(fd, 1 << 16):
            chunks.append(chunk)
        return b"".join(chunks)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name, which may itself hold spaces and brackets."""
    _, bracket, rest = _read(f"/proc/{pid}/stat").rpartition(b")")
    return rest.split() if bracket else []


def start_time(pid: int) -> int:
    """When a process began, in ticks since boot; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def boot_id() -> str:
    """Which boot of the machine this is; empty where the kernel does not say."""
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def children(pid: int) -> list[int]:
    """The direct children of a process, zombies too."""
    if not _CHILDREN_KNOWN:
        return _children_by_scan(pid)
    try:
        tasks = [entry.name for entry in os.scandir(f"/proc/{pid}/task")]
    except OSError:
        return []
    return [int(word) for task in tasks for word in _read(f"/proc/{pid}/task/{task}/children").split()]


def _pids() -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            yield int(entry.name)


def _children_by_scan(pid: int) -> list[int]:
    found = []
    for other in _pids():
        fields = _stat(other)
        if len(fields) > 1 and int(fields[1]) == pid:
            found.append(other)
    return found


def tree(pid: int, *, skip: int = 0) -> list[int]:
    """All descendants of a process, parents first; the first `skip` generations (wrappers) are left out."""
    found: list[int] = []
    generation, depth = children(pid), 0
    while generation:
        if depth >= skip:
            found += generation
        generation = [child for parent in generation for child in children(parent)]
        depth += 1
    return found


def sample(pids: list[int]) -> Sample:
    """Add up CPU seconds and resident bytes of live processes."""
    ticks = pages = 0
    for pid in pids:
        fields = _stat(pid)
        if len(fields) > 21:
            ticks += sum(int(field) for field in fields[11:15])
            pages += int(fields[21])
    return Sample(ticks / _TICK, pages * _PAGE)


def pss(pids: list[int]) -> int:
    """Resident bytes with shared pages counted once; dear, so asked only near a limit. 0 when not told."""
    total = 0
    for pid in pids:
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def marked(mark: str) -> list[int]:
    """Live processes whose environment at start held this `NAME=value`; the search of last resort."""
    wanted = b"\0" + mark.encode() + b"\0"
    found = []
    for pid in _pids():
        fields = _stat(pid)
        if (
            fields
            and fields[0] not in {b"Z", b"X"}
            and wanted in b"\0" + _read(f"/proc/{pid}/environ") + b"\0"
        ):
            found.append(pid)
    return found
