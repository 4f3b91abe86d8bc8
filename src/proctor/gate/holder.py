"""Which process holds a lease, as text, and whether that process is provably gone.

A pid is reused within minutes; with its start, its boot and its name space it never is. Of other machines and other name
spaces nothing can be said: there the lease's end decides.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache

from proctor.sandbox.procfs import boot, start_time

__all__ = ["is_gone", "this_process"]

_SEPARATOR = "|"


def this_process() -> str:
    """Name the process we are in; a forked child is another one."""
    return _named(os.getpid())


@lru_cache(maxsize=1)  # by pid, so that a forked child looks again: every call needs it, and /proc is slow
def _named(pid: int) -> str:
    return _SEPARATOR.join((_host(), boot()[:120], str(pid), str(start_time(pid) or 0)))


def _host() -> str:
    return socket.gethostname().replace(_SEPARATOR, "")[:80]


def is_gone(holder: str) -> bool:
    """Whether the process of a lease certainly runs no more."""
    parts = holder.split(_SEPARATOR)
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    host, booted, pid, started = parts
    if host != _host():
        return False
    (their_boot, _, their_space), (our_boot, _, our_space) = (
        booted.partition("/"),
        boot()[:120].partition("/"),
    )
    if their_boot != our_boot:
        return True
    return their_space == our_space and str(start_time(int(pid)) or "") != started
