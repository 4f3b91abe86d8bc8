"""`proctor serve` and the background supervisor's own HTTP port: the same doors beside the same executor, in one event loop.

Order matters: take the ports, then the supervisor's lock, then open the house; at the end the doors close while the executor
still stops its agents, and the lock goes last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
import uvloop
from loguru import logger

from proctor import __version__
from proctor.app import App
from proctor.engine.doors import forget_address, last_port, write_address
from proctor.engine.supervisor import Supervisor, log_to
from proctor.gate.humans import load_token
from proctor.protocol.errors import ProctorError, UnavailableError, UsageError, first_of
from proctor.server.app import create_app, make_front
from proctor.server.auth import Access, is_loopback
from proctor.server.browsers import Browsers
from proctor.server.front import Front
from proctor.server.holding import Doorkeeper
from proctor.server.listening import BACKLOG, alone, listen, listen_instead, url
from proctor.server.socket import MAX_MESSAGE, WebSocketDoor

__all__ = ["Addresses", "HttpDoors", "Options", "background", "serve"]

GRACE_SECONDS: Final = 5
UNWIND_SECONDS: Final = 10.0
LOOPBACK: Final = "127.0.0.1"
QUIET_SECONDS: Final = 30.0
# Beyond this the library closes the connection; up to it a message that is too long is answered with a sentence.
_MAX_FRAME: Final = 4 * MAX_MESSAGE


@dataclass(frozen=True, slots=True)
class Options:
    """Where to listen, and for whom."""

    host: str = LOOPBACK
    port: int = 8080
    ws_port: int = 8765
    needs_token: bool = True
    names: tuple[str, ...] = ()
    """Further names of this server, as a proxy before it passes them on."""


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
    with contextlib.ExitStack() as stack:
        # The background is only disturbed when the other port can be had.
        ws, http = (
            stack.enter_context(contextlib.closing(listen_instead(paths, options.host, port)))
            for port in (options.ws_port, options.port)
        )
        load_token(paths.token_file)
        stack.enter_context(alone(paths))
        log_to(paths.log_file, app.settings.log_level)
        logger.info("proctor serve {} of Proctor {} begins", os.getpid(), __version__)
        doors = HttpDoors(app, options, http, ws, ready=ready)
        supervisor = Supervisor(
            lambda: app.executor(kind="supervisor"), app.writer, idle_s=None, doors=doors, at_once=True
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_live(supervisor, paths.socket))
        logger.info("proctor serve {} ends", os.getpid())


def background(app: App) -> HttpDoors:
    """The doors of the background supervisor: a free port on loopback, the one it had last when nobody took it."""
    load_token(app.settings.paths.token_file)
    try:
        listener = listen(LOOPBACK, last_port(app.settings.paths))
    except UnavailableError:
        listener = listen(LOOPBACK, 0)
    return HttpDoors(app, Options(), listener, nowhere=True)


async def _live(supervisor: Supervisor, path: Path) -> None:
    try:
        await supervisor.serve(path)
    except* ProctorError as errors:
        raise first_of(errors) from None


class _Server(uvicorn.Server):
    """Leaves signals to the supervisor, and lets live streams go before it waits for requests to end."""

    front: Front | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the doors; what had to be cancelled takes back what it began before the house is closed."""
        if self.front is not None:
            self.front.close_streams()
        await super().shutdown(sockets)
        if self.server_state.tasks:
            await asyncio.wait(set(self.server_state.tasks), timeout=UNWIND_SECONDS)


class HttpDoors:
    """HTTP, and the seeds' own WebSocket port where there is one."""

    def __init__(
        self,
        app: App,
        options: Options,
        http: socket.socket,
        ws: socket.socket | None = None,
        *,
        nowhere: bool = False,
        ready: Callable[[Addresses], None] | None = None,
    ) -> None:
        self._paths = app.settings.paths
        self._listeners = [one for one in (http, ws) if one is not None]
        self._ready = ready
        self._wake: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        access = Access(
            self._paths.token_file,
            needs_token=options.needs_token,
            hosts=frozenset(name.lower() for name in (options.host, *options.names)),
            ports=frozenset(int(one.getsockname()[1]) for one in self._listeners),
            browsers=Browsers(self._paths.browsers_file, self._paths.token_file),
        )
        self._front = front = make_front(app, access, wake=self._nudge)
        if nowhere:
            front.leave_workspace()
        self._servers = [_Server(_config(create_app(app, front), lifespan="on"))]
        self._servers[0].front = front
        if ws is not None:
            seeds = Doorkeeper(WebSocketDoor(front), access, front.holder_of, traffic=front.traffic)
            self._servers.append(_Server(_config(seeds, lifespan="off")))
        self._addresses = Addresses(
            url("http", http), "" if ws is None else url("ws", ws), self._paths.token_file
        )

    @property
    def http(self) -> str:
        """Where it listens; empty while it does not."""
        return self._addresses.http if self._open() else ""

    @property
    def busy(self) -> bool:
        """Whether somebody is there, or was a moment ago."""
        return self._open() and self._front.traffic.quiet_for() < QUIET_SECONDS

    def close(self) -> None:
        """Begin to close."""
        for one in self._servers:
            one.should_exit = True

    async def run(self, wake: Callable[[], None]) -> None:
        """Serve until closed; the address is known to the user's commands while it is good."""
        self._loop, self._wake = asyncio.get_running_loop(), wake
        try:
            async with asyncio.TaskGroup() as group:
                for one, listener in zip(self._servers, self._listeners, strict=True):
                    group.create_task(one.serve(sockets=[listener]))
                group.create_task(self._announce())
        finally:
            for listener in self._listeners:
                listener.close()
            await asyncio.to_thread(forget_address, self._paths)

    def _open(self) -> bool:
        return all(one.started and not one.should_exit for one in self._servers)

    def _nudge(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    async def _announce(self) -> None:
        while not self._open():
            life = getattr(self._servers[0], "lifespan", None)
            if life is not None and life.should_exit:
                cure = f"{self._paths.log_file} says why."
                raise UnavailableError(what="The HTTP port", reason="it did not start", cure=cure)
            if any(one.should_exit for one in self._servers):
                return
            await asyncio.sleep(0.01)
        http, ws = self._addresses.http, self._addresses.ws
        await asyncio.to_thread(partial(write_address, self._paths, http, ws, chosen=bool(ws)))
        logger.info("HTTP at {}", self._addresses.http)
        if self._ready is not None:
            self._ready(self._addresses)


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
        backlog=BACKLOG,
    )
