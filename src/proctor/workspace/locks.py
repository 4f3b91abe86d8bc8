"""Locks between processes: flock on a file or a directory, with a deadline, freed by the kernel when a process dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor.protocol.errors import UnavailableError

__all__ = ["directory_lock", "file_lock", "try_lock"]

_POLL_SECONDS = 0.02


@contextmanager
def file_lock(path: Path, *, exclusive: bool, wait_seconds: float = 30.0) -> Iterator[None]:
    """Hold the lock while the block runs; give up with a sentence when it is not free in time."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(handle, f"The lock {path.name}", wait_seconds, exclusive=exclusive)
        yield
    finally:
        os.close(handle)


@contextmanager
def directory_lock(place: Path, *, wait_seconds: float = 30.0) -> Iterator[None]:
    """Lock a directory itself, for one at a time, so that no lock file appears in what belongs to the user."""
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _acquire(handle, f"The directory {place}", wait_seconds)
        yield
    finally:
        os.close(handle)


def try_lock(handle: int, *, exclusive: bool = True) -> bool:
    """Lock an open file or directory if that is possible now; it is free again when it is closed."""
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire(handle: int, what: str, wait_seconds: float, *, exclusive: bool = True) -> None:
    deadline = time.monotonic() + wait_seconds
    while not try_lock(handle, exclusive=exclusive):
        if time.monotonic() >= deadline:
            reason = f"another process has held it for {wait_seconds:g} s"
            cure = "Wait until the other one has ended and try again."
            raise UnavailableError(what=what, reason=reason, cure=cure)
        time.sleep(_POLL_SECONDS)
