"""Unix sockets below long paths: an address holds about 100 bytes, a home directory may be longer."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from proctor.protocol.errors import UsageError

__all__ = ["bind", "connect"]

MAX_BYTES = 100


def connect(line: socket.socket, path: Path) -> None:
    """Connect to a socket, however long its path is."""
    with _short(path) as address:
        line.connect(address)


def bind(path: Path) -> socket.socket:
    """Listen at a path that only its owner may use."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.listen(64)
    except BaseException:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Name the socket through an open handle of its directory when its own name is too long."""
    if len(os.fsencode(path)) < MAX_BYTES:
        yield str(path)
        return
    if sys.platform != "linux":
        raise UsageError(
            message=f"{path} is too long for a socket; set XDG_RUNTIME_DIR to a shorter directory."
        )
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
