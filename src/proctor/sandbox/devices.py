"""A /dev for the commands of one keeper: the harmless devices, terminals of their own, nothing of the machine's.

bwrap can make one for every command, at a fifth of its whole time; this is made once, in a mount namespace of the
keeper's, and bound into each sandbox read-only, so that no command can leave anything in it for the next, nor change the
mode of the host's own devices, as root can in bwrap's. It stands on /dev/pts, where nobody keeps files and
a keeper has no business.
Standard library only: the keeper imports this.
"""

# Every keeper starts with this; pathlib would double what it imports.
# ruff: noqa: PTH102, PTH211
from __future__ import annotations

import ctypes
import os

__all__ = ["PLACE", "make"]

PLACE = "/dev/pts"
_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_READ_ONLY, _NOSUID, _NOEXEC, _REMOUNT, _BIND, _REC, _SLAVE = 1, 2, 8, 32, 4096, 16384, 1 << 19
_libc = ctypes.CDLL(None, use_errno=True)


def make() -> None:
    """Make them in a mount namespace of our own (what the host mounts later still shows); raises OSError."""
    _mount("none", "/", "", _REC | _SLAVE, "")
    _mount("tmpfs", PLACE, "tmpfs", _NOSUID | _NOEXEC, "mode=0755,size=65536")
    for name in _NODES:
        # Bound, not made: only the real root may make devices.
        os.close(os.open(f"{PLACE}/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
        _mount(f"/dev/{name}", f"{PLACE}/{name}", "", _BIND, "")
        _mount("none", f"{PLACE}/{name}", "", _REMOUNT | _BIND | _READ_ONLY | _NOSUID | _NOEXEC, "")
    for name, target in _LINKS.items():
        os.symlink(target, f"{PLACE}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{PLACE}/{name}", 0o755)
    _mount("devpts", f"{PLACE}/pts", "devpts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    _mount(
        "none", PLACE, "", _REMOUNT | _READ_ONLY | _NOSUID | _NOEXEC, ""
    )  # all of it, wherever it is bound


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    words = [text.encode() for text in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}")
