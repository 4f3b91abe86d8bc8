"""cgroup v2 where it is delegated to us: the kernel itself keeps memory, CPU and process limits of a tree.

The usual place is a systemd user session. Elsewhere (containers, no systemd) limits are polled by the keeper.
"""

from __future__ import annotations

import functools
import os
import secrets
from pathlib import Path

__all__ = ["Group", "delegated", "make_group"]

_NEEDED = {"memory", "pids"}


class Group:
    """One group for one tree; remove it when the tree is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def limit(self, *, memory_mb: int | None, cpu_percent: int | None, processes: int | None) -> None:
        """Write the limits; the whole group is killed when its memory is used up, never one process of it."""
        if memory_mb is not None:
            self._write("memory.max", str(memory_mb << 20))
            self._write("memory.oom.group", "1")
            self._write("memory.swap.max", "0", optional=True)
        if cpu_percent is not None:
            self._write("cpu.max", f"{cpu_percent * 1000} 100000", optional=True)
        if processes is not None:
            self._write("pids.max", str(processes * 4))  # threads count here, processes in the limit

    def ran_out_of_memory(self) -> bool:
        """Say whether the kernel killed something in the group for its memory."""
        try:
            lines = (self.path / "memory.events").read_text().splitlines()
        except OSError:
            return False
        return any(
            line.split()[0] in {"oom_kill", "oom_group_kill"} and int(line.split()[1]) > 0 for line in lines
        )

    def remove(self) -> None:
        """Kill whoever is left in it and remove it."""
        self._write("cgroup.kill", "1", optional=True)
        try:
            self.path.rmdir()
        except OSError:
            return  # an empty directory of the kernel's stays until the next boot; nothing runs in it

    def _write(self, name: str, text: str, *, optional: bool = False) -> None:
        try:
            (self.path / name).write_text(text)
        except OSError:
            if not optional:
                raise


@functools.cache
def delegated() -> tuple[Path | None, str]:
    """Find the highest group above us in which we may make groups with memory limits; or the reason why not."""
    place = _own_group()
    if place is None:
        return None, "no cgroup v2 tree"
    root, own = place
    for parent in [root / own, *(root / own).parents]:
        if not parent.is_relative_to(root):
            break
        if _usable(parent):
            return parent, ""
    return None, "no group above this process is delegated to it with a memory controller"


def _own_group() -> tuple[Path, str] | None:
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    roots = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    own = [line[3:].lstrip("/") for line in groups if line.startswith("0::")]
    return (Path(roots[0]), own[0]) if roots and own else None


def _usable(parent: Path) -> bool:
    """Groups below get controllers from subtree_control; moving a child there needs our right at this ancestor."""
    try:
        controllers = set((parent / "cgroup.subtree_control").read_text().split())
        if not controllers >= _NEEDED or not os.access(parent / "cgroup.procs", os.W_OK):
            return False
        trial = parent / f"proctor-trial-{secrets.token_hex(4)}"
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def make_group(*, memory_mb: int | None, cpu_percent: int | None, processes: int | None) -> Group | None:
    """Make a group with these limits where that is possible and something is to be limited."""
    parent, _reason = delegated()
    if parent is None or (memory_mb is None and cpu_percent is None):
        return None
    group = Group(parent / f"proctor-{secrets.token_hex(8)}")
    try:
        group.path.mkdir()
        group.limit(memory_mb=memory_mb, cpu_percent=cpu_percent, processes=processes)
    except OSError:
        group.remove()
        return None
    return group
