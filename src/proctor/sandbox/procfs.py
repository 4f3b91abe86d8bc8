"""What the kernel says about a tree of processes: who is in it, what it holds, what it has used.

Every look may be outdated when it returns; only `waitpid` of a subreaper proves that a tree is gone.
Elsewhere than on Linux (macOS) `ps` tells parents and start times, and nobody tells marks, memory or CPU.
Standard library only: the keeper imports this with nothing else of ours on its path.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

__all__ = [
    "LINUX",
    "Sample",
    "boot",
    "carries",
    "children",
    "descendants",
    "population",
    "processes",
    "pss",
    "sample",
    "start_time",
    "tree",
]

LINUX = os.uname().sysname == "Linux"
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


def _living(fields: list[bytes]) -> bool:
    """A zombie is dead and only waits for its parent."""
    return len(fields) > 19 and fields[0] not in {b"Z", b"X"}


def start_time(pid: int) -> int | None:
    """When a process began (ticks since boot, elsewhere seconds); None when it has ended, buried or not."""
    if not LINUX:
        return _listed_by_ps().get(pid, (0, None))[1]
    fields = _stat(pid)
    return int(fields[19]) if _living(fields) else None


@functools.cache
def boot() -> str:
    """Name this boot and PID name space: outside of them a pid means nothing."""
    if not LINUX:
        return _output("/usr/sbin/sysctl", "-n", "kern.boottime").strip() or "unknown"
    space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - one system call
    return f"{_read('/proc/sys/kernel/random/boot_id').decode().strip()}/{space}"


def processes() -> dict[int, int]:
    """Every living process with its parent."""
    if not LINUX:
        return {pid: parent for pid, (parent, _) in _listed_by_ps().items()}
    stats = ((pid, _stat(pid)) for pid in _pids())
    return {pid: int(fields[1]) for pid, fields in stats if _living(fields)}


def _listed_by_ps() -> dict[int, tuple[int, int]]:
    """Parent and start of every living process, from `ps`."""
    from calendar import timegm
    from time import strptime

    listed: dict[int, tuple[int, int]] = {}
    for line in _output("/bin/ps", "-axo", "pid=,ppid=,stat=,lstart=").splitlines():
        pid, parent, state, began = line.split(None, 3)
        if not state.startswith("Z"):
            listed[int(pid)] = (int(parent), timegm(strptime(began.strip(), "%a %b %d %H:%M:%S %Y")))
    return listed


def _output(*argv: str) -> str:
    """What a tool of the system prints, whatever the user's language and time zone are."""
    import subprocess

    plain = {"LC_ALL": "C", "TZ": "UTC"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=plain).stdout


def children(pid: int) -> list[int]:
    """The direct children of a process; zombies too, where the kernel itself tells."""
    if not _CHILDREN_KNOWN:
        return _children_in(processes())(pid)
    try:
        tasks = [entry.name for entry in os.scandir(f"/proc/{pid}/task")]
    except OSError:
        return []
    return [int(word) for task in tasks for word in _read(f"/proc/{pid}/task/{task}/children").split()]


def _pids() -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            yield int(entry.name)


def tree(pid: int, *, skip: int = 0) -> list[int]:
    """All descendants of a process, parents first; the first `skip` generations (wrappers) are left out."""
    below = children if _CHILDREN_KNOWN else _children_in(processes())
    found: list[int] = []
    generation, depth = below(pid), 0
    while generation:
        if depth >= skip:
            found += generation
        generation = [child for parent in generation for child in below(parent)]
        depth += 1
    return found


def population() -> int:
    """How many threads the whole machine has: one short read, dear only when it grows; 0 when not told."""
    words = _read("/proc/loadavg").split()
    return int(words[3].partition(b"/")[2]) if len(words) > 3 else 0


def descendants(table: Mapping[int, int], roots: Iterable[int]) -> set[int]:
    """All who are below one of the roots in a table of processes."""
    below = _children_in(table)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        new = set(below(todo.pop())) - found
        found |= new
        todo += new
    return found


def _children_in(table: Mapping[int, int]) -> Callable[[int], list[int]]:
    by_parent: dict[int, list[int]] = {}
    for pid, parent in table.items():
        by_parent.setdefault(parent, []).append(pid)
    return lambda pid: by_parent.get(pid, [])


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


def carries(pid: int, mark: str) -> bool:
    """Whether the environment of a process held this `NAME=value` at its start."""
    return b"\0" + mark.encode() + b"\0" in b"\0" + _read(f"/proc/{pid}/environ") + b"\0"
