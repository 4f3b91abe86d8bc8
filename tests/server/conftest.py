"""A real server in a thread, on free ports, with real clients; one for each file of tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from websockets.sync.client import ClientConnection, connect

from proctor.app import App
from proctor.config import load_settings
from proctor.engine.liveness import open_lease
from proctor.engine.plan_desk import PlanDesk
from proctor.gate.humans import load_token
from proctor.server.app import create_app, make_front
from proctor.server.auth import Access
from proctor.server.browsers import Browsers
from proctor.server.front import Front
from proctor.server.holding import Doorkeeper
from proctor.server.socket import MAX_MESSAGE, WebSocketDoor

__all__ = ["Door", "Socket", "served"]


@dataclass
class Socket:
    """A client of the WebSocket that speaks JSON."""

    line: ClientConnection

    def send(self, message: object) -> None:
        """Send a message as it is, or as JSON."""
        self.line.send(message if isinstance(message, str | bytes) else json.dumps(message))

    def receive(self, seconds: float = 30) -> dict[str, Any]:
        """The next frame."""
        found: dict[str, Any] = json.loads(self.line.recv(timeout=seconds))
        return found

    def ask(self, message: object, seconds: float = 30) -> dict[str, Any]:
        """Send one and get the next frame."""
        self.send(message)
        return self.receive(seconds)


@dataclass
class Door:
    """A server and how to reach it."""

    app: App
    front: Front
    workspace: Path
    http: str
    ws: str
    woken: list[float] = field(default_factory=list)

    @property
    def token(self) -> str:
        """The human's token."""
        return load_token(self.app.settings.paths.token_file)

    @property
    def headers(self) -> dict[str, str]:
        """What lets a request in."""
        return {"Authorization": f"Bearer {self.token}"}

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request with the token, unless headers are given."""
        more.setdefault("headers", self.headers)
        return httpx.request(method, self.http + path, timeout=60, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        """Read."""
        return self.request("GET", path, **more)

    def post(self, path: str, body: object = None, **more: Any) -> httpx.Response:
        """Do."""
        return self.request("POST", path, json=body, **more)

    @contextlib.contextmanager
    def socket(self, path: str = "", **more: Any) -> Iterator[Socket]:
        """A WebSocket with the token; without a path on the seeds' own port."""
        more.setdefault("additional_headers", self.headers)
        address = self.http.replace("http", "ws") + path if path else self.ws
        with connect(address, max_size=None, compression=None, open_timeout=30, proxy=None, **more) as line:
            yield Socket(line)


def _listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def served(place: Path, *, database_url: str = "", **settings: Any) -> Iterator[Door]:
    """Serve a new workspace with a state of its own until the block ends."""
    workspace = place / "work"
    (workspace / ".git").mkdir(parents=True)
    home = place / "home"
    home.mkdir()
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": ""}
    if database_url:
        environ["PROCTOR_DATABASE_URL"] = database_url
    app = App(load_settings(workspace, environ))
    http, ws = _listen(), _listen()
    ports = frozenset(one.getsockname()[1] for one in (http, ws))
    woken: list[float] = []
    paths = app.settings.paths
    browsers = Browsers(paths.browsers_file, paths.token_file)
    access = Access(paths.token_file, ports=ports, browsers=browsers, **settings)
    loops: list[asyncio.AbstractEventLoop] = []

    def wake() -> None:
        woken.append(time.monotonic())
        loops[0].call_soon_threadsafe(desk.wake)

    front = make_front(app, access, wake=wake)
    lease = open_lease(app.database, paths.state_dir / "executors", kind="test")
    desk = PlanDesk(app.plans, lease)
    doors = [
        uvicorn.Server(_config(create_app(app, front), "on")),
        uvicorn.Server(_config(Doorkeeper(WebSocketDoor(front), access, front.holder_of), "off")),
    ]
    lease.take()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await _run(doors, [http, ws], desk)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    _until(lambda: all(door.started for door in doors) or not thread.is_alive())
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in (http, ws)]
    try:
        yield Door(app, front, workspace, f"http://{addresses[0]}", f"ws://{addresses[1]}", woken)
    finally:
        for door in doors:
            door.should_exit = True
        thread.join(30)
        lease.release()
        app.close()


async def _run(doors: list[uvicorn.Server], sockets: list[socket.socket], desk: PlanDesk) -> None:
    """Serve, with the desk of an executor that runs plans beside it."""
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.run())
        async with asyncio.TaskGroup() as serving:
            for door, listener in zip(doors, sockets, strict=True):
                serving.create_task(door.serve(sockets=[listener]))
        desk.stop()


def _config(app: Any, lifespan: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        ws_max_size=4 * MAX_MESSAGE,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=2,
    )


def _until(done: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """The server of this file."""
    with served(tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.fixture(scope="module")
def open_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server with `--auth none`."""
    with served(tmp_path_factory.mktemp("open"), needs_token=False) as made:
        yield made


@pytest.fixture
def line(door: Door) -> Iterator[Socket]:
    """A WebSocket on the seeds' port."""
    with door.socket() as made:
        yield made
