"""Where a supervisor's surfaces can be reached, for every command of the user; and doors that are made late.

The file tells the truth only together with the process it names: whoever reads it asks the kernel whether that one lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proctor.agents.identity import start_time
from proctor.config import Paths
from proctor.protocol.ports import Doors

__all__ = ["Address", "LateDoors", "forget_address", "last_port", "read_address", "write_address"]

MAX_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server of this user listens."""

    http: str
    ws: str
    pid: int
    began: int
    """The start of the process, as the kernel tells it: a later one with the same pid is another."""


def write_address(paths: Paths, http: str, ws: str = "", *, chosen: bool = False) -> None:
    """Say where this process listens; a port that a person has chosen is free again when it ends."""
    pid, port = os.getpid(), last_port(paths) if chosen else _port(http)
    _put(paths.address_file, {**asdict(Address(http, ws, pid, _began(pid))), "port": port})


def forget_address(paths: Paths) -> None:
    """Say that this process listens no more; the port is remembered, so that open pages find the next server."""
    _put(paths.address_file, {"http": "", "port": last_port(paths)})


def read_address(paths: Paths) -> Address | None:
    """Where a server of this user listens; None when none runs."""
    told = _get(paths.address_file)
    try:
        found = Address(str(told["http"]), str(told["ws"]), int(told["pid"]), int(told["began"]))
    except (KeyError, TypeError, ValueError):
        return None
    return found if found.http and found.began and _began(found.pid) == found.began else None


def last_port(paths: Paths) -> int:
    """The port that the background listened at last; 0 when there was none."""
    try:
        port = int(_get(paths.address_file).get("port", 0))
    except (TypeError, ValueError):
        return 0
    return port if 0 < port < 65536 else 0


def _port(http: str) -> int:
    return urlsplit(http).port or 0


def _began(pid: int) -> int:
    return int(start_time(pid) or 0)


def _get(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _put(path: Path, told: dict[str, object]) -> None:
    """Replace the file as a whole: nobody reads half an address."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fresh.write_text(json.dumps(told) + "\n")
        fresh.replace(path)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


class LateDoors:
    """Doors whose code is imported only when they are opened, in a thread: the executor goes on meanwhile."""

    def __init__(self, make: Callable[[], Doors]) -> None:
        self._make = make
        self._made: Doors | None = None
        self._closed = False

    @property
    def http(self) -> str:
        """Where they are; empty while they are closed."""
        return "" if self._made is None else self._made.http

    @property
    def busy(self) -> bool:
        """Whether somebody uses them now."""
        return self._made is not None and self._made.busy

    async def run(self, wake: Callable[[], None]) -> None:
        """Make them, open them and serve until `close`."""
        if self._closed:
            return
        self._made = await asyncio.to_thread(self._make)
        if not self._closed:
            await self._made.run(wake)

    def close(self) -> None:
        """Begin to close."""
        self._closed = True
        if self._made is not None:
            self._made.close()
