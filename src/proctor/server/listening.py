"""Ports and the supervisor's lock: taken before anything is opened, so that what cannot be had is one sentence."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from proctor.config import Paths
from proctor.engine import client
from proctor.engine.supervisor import only_one
from proctor.protocol.errors import RefusedError, UnavailableError, UsageError

__all__ = ["BACKLOG", "alone", "listen", "listen_instead", "url"]

BACKLOG: Final = 2048
LOCK_SECONDS: Final = 30.0


def listen(host: str, port: int) -> socket.socket:
    """Take a port; one that is taken already is one sentence."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(message=f"There is no address {host!r} to listen at: {error.strerror}.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        cure = "Choose another with --port or --ws-port; 0 takes a free one."
        raise UnavailableError(what=f"Port {port}", reason=str(error.strerror), cure=cure) from error
    listener.setblocking(False)
    return listener


def listen_instead(paths: Paths, host: str, port: int) -> socket.socket:
    """Take a port, also from our own background, which keeps the last one; not from another server."""
    try:
        return listen(host, port)
    except UnavailableError:
        there = client.ask(paths, {"op": "hello"}) or {}
        _not_twice(there)
        if not port or port != urlsplit(str(there.get("http", ""))).port:
            raise
        client.stop(paths)
        return listen(host, port)


def _not_twice(there: dict[str, Any]) -> None:
    if there.get("serves"):
        raise RefusedError(
            reason=f"`proctor serve` runs already at {there.get('http')} (pid {there.get('pid')})",
            cure="Use that one, or stop it with `proctor supervisor stop`.",
        )


@contextlib.contextmanager
def alone(paths: Paths) -> Iterator[None]:
    """Hold the supervisor's lock; one in the background is asked to leave, another server is not."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        with only_one(paths.state_dir / "supervisor.lock") as first:
            if first:
                yield
                return
        _not_twice(client.ask(paths, {"op": "hello"}) or {})
        client.stop(paths)
        if time.monotonic() > deadline:
            raise UnavailableError(
                what="The supervisor's lock", reason="another process holds it", cure="See `proctor doctor`."
            )
        time.sleep(0.05)


def url(scheme: str, listener: socket.socket) -> str:
    """How a client on this machine reaches it."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - shown, not bound
    return f"{scheme}://[{shown}]:{port}" if address.version == 6 else f"{scheme}://{shown}:{port}"
