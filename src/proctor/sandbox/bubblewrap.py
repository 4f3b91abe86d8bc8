"""Level 3: the words for bwrap. Read-only root, private /tmp and /run, own process, network and user namespace.

Only existing paths are mounted over: bwrap would create the others in the real workspace.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from proctor.sandbox import devices
from proctor.sandbox.paths import Kind, Mount
from proctor.sandbox.spec import Network, Spec

__all__ = ["GATE_FD", "REPORT_FD", "WRAPPERS", "Bubblewrap", "bwrap_argv", "bwrap_options"]

SECCOMP_FD, ARGS_FD, REPORT_FD, GATE_FD = 3, 4, 5, 6
WRAPPERS = 2  # bwrap outside and its first process inside stand above the command
_MASK_BYTES = 1 << 20
_RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")  # behind /etc/resolv.conf


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A bwrap that was run once with success, and which of its newer words it knows."""

    path: str
    disable_userns: bool = True
    size: bool = True


def bwrap_argv(bwrap: Bubblewrap, spec: Spec) -> list[str]:
    """Build the visible command line: everything else, above all the environment, goes through a descriptor."""
    return [bwrap.path, "--args", str(ARGS_FD), "--", *spec.argv]


def bwrap_options(
    bwrap: Bubblewrap, spec: Spec, plan: list[Mount], env: Mapping[str, str], *, apart: bool = False
) -> bytes:
    """Build what bwrap reads from its descriptor, for a spec with resolved paths.

    Apart: the keeper has devices of its own, and a network with nothing in it unless all of it is allowed, which the
    command inherits. bwrap itself runs outside: variables such as LD_PRELOAD must be set by it for the command, never
    for it.
    """
    words = ["--die-with-parent", "--new-session", "--unshare-user", "--unshare-pid", "--unshare-ipc"]
    words += ["--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox", "--cap-drop", "ALL"]
    words += ["--disable-userns"] if bwrap.disable_userns else []
    words += ["--unshare-net"] if spec.network is not Network.FULL and not apart else []
    words += ["--ro-bind", "/", "/", *_devices(bwrap, spec, apart=apart), "--proc", "/proc"]
    for mount in plan:
        words += _mount(bwrap, mount, spec.limits.temporary_mb << 20)
    if spec.network is Network.FULL:
        words += [word for path in _RESOLVERS for word in ("--ro-bind-try", path, path)]
    words += ["--seccomp", str(SECCOMP_FD), "--json-status-fd", str(REPORT_FD), "--block-fd", str(GATE_FD)]
    words += [word for name, value in env.items() for word in ("--setenv", name, value)]
    return os.fsencode("\0".join([*words, "--chdir", spec.cwd, ""]))


def _devices(bwrap: Bubblewrap, spec: Spec, *, apart: bool) -> list[str]:
    if not apart:
        return ["--dev", "/dev"]
    size = ["--size", str(spec.limits.temporary_mb << 20)] if bwrap.size else []
    return ["--dev-bind", devices.PLACE, "/dev", *size, "--tmpfs", "/dev/shm"]  # noqa: S108


def _mount(bwrap: Bubblewrap, mount: Mount, temporary: int) -> list[str]:
    path = mount.path
    if mount.kind is Kind.TEMPORARY:
        return [*(["--size", str(temporary)] if bwrap.size else []), "--tmpfs", path]
    if mount.kind is Kind.HIDDEN:
        if not mount.directory:
            return ["--ro-bind", "/dev/null", path]
        return [*(["--size", str(_MASK_BYTES)] if bwrap.size else []), "--tmpfs", path]
    writable = mount.kind in {Kind.WRITABLE, Kind.PLACED}
    return ["--bind" if writable else "--ro-bind", mount.source or path, path]
