"""`proctor serve`: the supervisor in the foreground with HTTP and the seeds' WebSocket port, all in one event loop.

Order matters: take the ports, then the supervisor's lock, then open the house; at the end the doors close while the executor
still stops its agents, and the lock goes last.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
import uvloop
from loguru import logger

from proctor import __version__
from proctor.app import App
from proctor.engine import client
from proctor.engine.supervisor import Supervisor, log_to, only_one
from proctor.gate.humans import load_token
from proctor.protocol.errors import ProctorError, RefusedError, UnavailableError, UsageError
from proctor.server.app import create_app, make_front
from proctor.server.auth import Access, is_loopback
from proctor.server.front import Front
from proctor.server.guard import Guard
from proctor.server.socket import MAX_MESSAGE, WebSocketDoor

__all__ = ["Addresses", "Options", "serve"]

GRACE_SECONDS: Final = 5
LOCK_SECONDS: Final = 30.0
_BACKLOG: Final = 2048
# Beyond this the library closes the connection; up to it a message that is too long is answered with a sentence.
_MAX_FRAME: Final = 4 * MAX_MESSAGE


@dataclass(frozen=True, slots=True)
class Options:
    """Where to listen, and for whom."""

    host: str = "127.0.0.1"
    port: int = 8080
    ws_port: int = 8765
    needs_token: bool = True


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where it listens."""

    http: str
    ws: str
    token_file: Path


def serve(app: App, options: Options, ready: Callable[[Addresses], None]) -> None:
    """Serve until a signal or `proctor supervisor stop`; `ready` is called once it listens."""
    if not options.needs_token and not is_loopback(options.host):
        raise UsageError(
            message="--auth none is only for loopback: everybody who reaches it could run commands."
        )
    paths = app.settings.paths
    with _listening(options.host, options.port) as http, _listening(options.host, options.ws_port) as ws:
        load_token(paths.token_file)
        with _alone(app):
            log_to(paths.log_file, app.settings.log_level)
            logger.info("proctor serve {} of Proctor {} begins", os.getpid(), __version__)
            house = _House(app, options, http, ws)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(house.run(ready))
            logger.info("proctor serve {} ends", os.getpid())


# ── ports and lock ────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Take a port; one that is taken already is one sentence."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(message=f"There is no address {host!r} to listen at: {error.strerror}.") from error
    with contextlib.closing(listener):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            cure = "Choose another with --port or --ws-port; 0 takes a free one."
            raise UnavailableError(what=f"Port {port}", reason=str(error.strerror), cure=cure) from error
        listener.setblocking(False)
        yield listener


@contextlib.contextmanager
def _alone(app: App) -> Iterator[None]:
    """Hold the supervisor's lock; one in the background is asked to leave, another server is not."""
    paths = app.settings.paths
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        with only_one(paths.state_dir / "supervisor.lock") as first:
            if first:
                yield
                return
        there = client.ask(paths, {"op": "hello"}) or {}
        if there.get("http"):
            raise RefusedError(
                reason=f"`proctor serve` runs already at {there['http']} (pid {there.get('pid')})",
                cure="Use that one, or stop it with `proctor supervisor stop`.",
            )
        client.stop(paths)
        if time.monotonic() > deadline:
            raise UnavailableError(
                what="The supervisor's lock", reason="another process holds it", cure="See `proctor doctor`."
            )
        time.sleep(0.05)


def _url(scheme: str, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - shown, not bound
    return f"{scheme}://[{shown}]:{port}" if address.version == 6 else f"{scheme}://{shown}:{port}"


# ── the process ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Supervisor(Supervisor):
    """The supervisor, which tells the doors when it leaves and everybody where they are."""

    doors: tuple[uvicorn.Server, ...] = ()
    http = ""

    def stop(self) -> None:
        """Leave in order: no new requests, then no agents."""
        for door in self.doors:
            door.should_exit = True
        super().stop()

    async def _answer(self, request: Any) -> dict[str, Any]:
        answer = await super()._answer(request)
        return {**answer, "http": self.http} if "pid" in answer else answer


class _Server(uvicorn.Server):
    """Leaves signals to the supervisor, and lets live streams go before it waits for requests to end."""

    front: Front | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the doors."""
        if self.front is not None:
            self.front.hub.close()
        await super().shutdown(sockets)


class _House:
    """Executor and doors of one process."""

    def __init__(self, app: App, options: Options, http: socket.socket, ws: socket.socket) -> None:
        self._app = app
        self._sockets = http, ws
        ports = frozenset(int(one.getsockname()[1]) for one in self._sockets)
        self._access = Access(
            app.settings.paths.token_file,
            needs_token=options.needs_token,
            hosts=frozenset({options.host.lower()}),
            ports=ports,
        )
        self.addresses = Addresses(_url("http", http), _url("ws", ws), app.settings.paths.token_file)

    async def run(self, ready: Callable[[Addresses], None]) -> None:
        """Live."""
        loop = asyncio.get_running_loop()
        front = make_front(self._app, self._access, wake=lambda: loop.call_soon_threadsafe(supervisor.wake))
        front.warm()
        supervisor = _Supervisor(lambda: self._app.executor(kind="supervisor"), self._app.writer, idle_s=None)
        web = create_app(self._app, front)
        http = _Server(_config(web, lifespan="on"))
        http.front = front
        ws = _Server(_config(Guard(WebSocketDoor(front), self._access), lifespan="off"))
        supervisor.doors, supervisor.http = (http, ws), self.addresses.http
        try:
            async with asyncio.TaskGroup() as group:
                for door, listener in zip((http, ws), self._sockets, strict=True):
                    group.create_task(door.serve(sockets=[listener]))
                group.create_task(self._announce((http, ws), ready))
                try:
                    await supervisor.serve(self._app.settings.paths.socket)
                finally:
                    supervisor.stop()
        except* ProctorError as errors:
            raise _first(errors) from None

    async def _announce(self, doors: tuple[uvicorn.Server, ...], ready: Callable[[Addresses], None]) -> None:
        while not all(door.started for door in doors):
            if any(door.should_exit for door in doors):
                return
            await asyncio.sleep(0.01)
        ready(self.addresses)


def _first(errors: BaseExceptionGroup[ProctorError]) -> ProctorError:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, ProctorError)
    return found


def _config(app: Any, *, lifespan: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan=lifespan,
        loop="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws_max_size=_MAX_FRAME,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=_BACKLOG,
    )
