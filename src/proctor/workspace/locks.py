"""Locks between processes: flock on a file, with a deadline, given back by the kernel when a process dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor.protocol.errors import UnavailableError

__all__ = ["file_lock"]

_POLL_SECONDS = 0.05


@contextmanager
def file_lock(path: Path, *, exclusive: bool, wait_seconds: float = 30.0) -> Iterator[None]:
    """Hold the lock while the block runs; give up with a sentence when it is not free in time."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(handle, path, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, wait_seconds)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, how: int, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    what=f"The lock {path.name}",
                    reason=f"another process has held it for {wait_seconds:g} s",
                    cure="Wait until the other backup or restore has ended and run the command again.",
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            return
