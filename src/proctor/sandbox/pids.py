"""The kernel's own limit of processes for everything below one keeper: a cgroup with the pids controller.

`RLIMIT_NPROC` does not hold root, and below level 3 it counts everything a user runs; this holds everybody. The keeper
itself joins, once, and its children are born in the group: joining costs ten milliseconds, being born there nothing.
Version 2 where it is delegated, version 1 for root. Standard library only: the keeper imports this.
"""

# Every keeper starts with this; pathlib would double what it imports.
# ruff: noqa: PTH102, PTH106, PTH110, PTH123
from __future__ import annotations

import os

__all__ = ["PidsGroup", "places"]

_NAME = "proctor-keeper-"
_THREADS = 4  # threads count here, processes in the limit
_OWN = 16


class PidsGroup:
    """The group of this process and all it will start."""

    def __init__(self, parent: str) -> None:
        self._parent = parent
        self._path = f"{parent}/{_NAME}{os.getpid()}"
        self._limit: int | None = None
        os.mkdir(self._path)
        try:
            _write(f"{self._path}/cgroup.procs", "0")
        except OSError:
            os.rmdir(self._path)
            raise

    @classmethod
    def make(cls) -> PidsGroup | None:
        """Make one where the tree of groups is ours to write; None elsewhere."""
        for parent in places():
            _sweep(parent)
            try:
                return cls(parent)
            except OSError:
                continue
        return None

    def limit(self, processes: int | None) -> None:
        """Allow so many processes with a few threads each; None lifts the limit."""
        if processes == self._limit:
            return
        text = "max" if processes is None else str(processes * _THREADS + _OWN)
        _write(f"{self._path}/pids.max", text)
        self._limit = processes

    def leave(self) -> None:
        """Go back where we came from and remove the group; nobody else is in it by then."""
        try:
            _write(f"{self._parent}/cgroup.procs", "0")
            os.rmdir(self._path)
        except OSError:
            return  # an empty directory of the kernel's, swept by the next keeper


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def places() -> list[str]:
    """Groups in which we may try to make one, the nearest first."""
    own = [line.split(":", 2) for line in _read("/proc/self/cgroup").splitlines()]
    unified = next((path for number, names, path in own if number == "0" and not names), None)
    older = next((path for _, names, path in own if "pids" in names.split(",")), None)
    found: list[str] = []
    for line in _read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, root = after.split(" ", 1)[0], before.split()[4]
        if kind == "cgroup2" and unified is not None:
            found += [place for place in _upwards(root, unified) if _controls(place)]
        elif kind == "cgroup" and older is not None and "pids" in after.split()[-1].split(","):
            found.append(f"{root}{older}".rstrip("/"))
    return [place for place in found if os.access(f"{place}/cgroup.procs", os.W_OK)]


def _upwards(root: str, path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    return ["/".join([root, *parts[:count]]) for count in range(len(parts), -1, -1)]


def _controls(place: str) -> bool:
    return "pids" in _read(f"{place}/cgroup.subtree_control").split()


def _sweep(parent: str) -> None:
    """Remove groups whose keeper was killed; the kernel refuses while somebody is in one."""
    try:
        names = [entry.name for entry in os.scandir(parent) if entry.name.startswith(_NAME)]
    except OSError:
        return
    for name in names:
        if not os.path.exists(f"/proc/{name.removeprefix(_NAME)}"):
            try:
                os.rmdir(f"{parent}/{name}")
            except OSError:
                continue
