"""A keeper apart from the host: its own devices, and (offline) its own network with nothing in it but loopback.

Commands at level 3 inherit both. They are made once for each keeper, because bwrap needs a third of its time for them;
trees that share them never run at the same time. Root asks for the namespaces alone; everybody else needs a user
namespace around them, in which they are who they were.
Standard library only: the keeper imports this with nothing else of ours on its path.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

from proctor.sandbox import devices

__all__ = ["enter", "listen"]

_NEWNET, _NEWUSER, _NEWNS = 0x40000000, 0x10000000, 0x20000
_SIOCSIFFLAGS, _UP = 0x8914, 0x41
_BACKLOG = 64
_libc = ctypes.CDLL(None, use_errno=True)


def enter(*, offline: bool) -> None:
    """Leave the host's devices, and its network when offline, for good; raises OSError where that is not allowed."""
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NEWNS | (_NEWNET if offline else 0) | (_NEWUSER if user else 0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    if user:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    if offline:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            fcntl.ioctl(handle, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))
    devices.make()


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def listen(port: int) -> socket.socket:
    """A listening socket of this network, to be given to somebody outside of it."""
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", port))
        door.listen(_BACKLOG)
    except OSError:
        door.close()
        raise
    return door
