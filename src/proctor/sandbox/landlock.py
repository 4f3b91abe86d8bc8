"""Level 2: which paths Landlock opens, and in plain words what this level cannot do on this kernel."""

from __future__ import annotations

from typing import Any

from proctor.sandbox.paths import SYSTEM_ROOTS, carve, within
from proctor.sandbox.spec import Network, Spec

__all__ = ["landlock_missing", "landlock_rules"]

# By name, never /dev whole: disks are there (root reads them without any capability), and the terminals of the user with
# what is typed into them, from which new ones cannot be told.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
_READ_DEVICES = ("/dev/random", "/dev/urandom")


def landlock_rules(spec: Spec, temporary: str) -> dict[str, Any]:
    """Say what the command may read and write; what is not named is closed."""
    read = carve((*SYSTEM_ROOTS, *_READ_DEVICES, *spec.readable, spec.cwd), spec.hidden)
    write = [*spec.writable, temporary, *_DEVICES]
    return {"read": read, "write": write, "network": spec.network is Network.FULL}


def landlock_missing(spec: Spec, abi: int) -> tuple[str, ...]:
    """What does not hold at this level."""
    hidden = [path for path in spec.hidden if any(within(path, root) for root in spec.writable)]
    metadata = "modes, owners and times of files outside can be changed"
    missing = [
        metadata,
        "processes of the user can be listed",
        "git hooks and protected files are compared after, not locked",
        "no new terminals can be opened",
    ]
    missing += [f"hidden inside a writable root, so readable: {', '.join(hidden)}"] if hidden else []
    missing += ["files outside can be truncated (Landlock ABI 3)"] if abi < 3 else []
    missing += ["renaming across directories fails (Landlock ABI 2)"] if abi < 2 else []
    missing += ["processes of the user can be signalled (Landlock ABI 6)"] if abi < 6 else []
    if spec.network is Network.OFF:
        return (*missing, "loopback is closed with the network")
    return (*missing, "the host's loopback is reachable")
