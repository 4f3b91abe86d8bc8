"""The module functions of seed 000's `coordinator.py`: database, rules, model tools, WebSocket server and `main`.

The WebSocket is the one of `proctor serve`, guard included: the same frames, the same token, Origin and Host checks.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from loguru import logger
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from proctor.agents.model_chats import Watch
from proctor.agents.model_turn import TurnEvent
from proctor.compat.agent_coordinator import INTERVAL, AgentCoordinator, house_of
from proctor.compat.connection import ReadConnection
from proctor.compat.desk import call_tool, workspace_here
from proctor.compat.house import House, users_house
from proctor.config import environment

__all__ = [
    "get_db_connection",
    "get_openai_tools",
    "handle_chat_message",
    "handle_websocket",
    "main",
    "query_architecture_rules",
    "start_websocket_server",
]

HOST: Final = "localhost"
PORT: Final = 8765
CHAT_TOOLS: Final = (
    "read_file",
    "write_file",
    "list_directory",
    "query_architecture",
    "create_backup",
    "restore_backup",
    "execute_command",
)
_FORBIDDEN: Final = 1008


def get_db_connection() -> ReadConnection:
    """A connection to the user's database that reads; rows are dictionaries."""
    return ReadConnection(users_house().app.database)


def query_architecture_rules(feature_type: str | None = None) -> list[dict[str, Any]]:
    """The architecture rules, ordered by feature type."""
    found = call_tool(users_house(), "get_architecture_rules", {"feature_type": feature_type})
    return list(found["rules"])


def get_openai_tools(names: Sequence[str] = CHAT_TOOLS) -> list[dict[str, Any]]:
    """The seed's seven functions as a model takes them, described by the registry; others by name."""
    registry = users_house().app.registry
    tools = []
    for name in names:
        known = registry.schema(name)
        function = {"name": name, "description": known["description"], "parameters": known["input_schema"]}
        tools.append({"type": "function", "function": function})
    return tools


# ── chat ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_chats: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


async def handle_chat_message(message: str, websocket: Any) -> str:
    """Ask SOLACE and give its answer; each tool it uses is told on the connection as a `status` frame.

    One connection is one conversation. Without a key the error says which one to set.
    """
    chats, house = users_house().app.chats, users_house()
    if websocket not in _chats:
        person = house.person().name
        chat = await asyncio.to_thread(lambda: chats.open(workspace=workspace_here(), by=person))
        _chats[websocket] = chat.chat_id
    end = await chats.say(_chats[websocket], message, Watch(listen=partial(_tell, websocket)))
    return end.text


async def _tell(websocket: Any, event: TurnEvent) -> None:
    said = {"tool_start": f"Executing {event.tool}...", "approval": f"{event.tool} waits for an answer"}
    if event.kind in said:
        await _send(websocket, {"type": "websocket.send", "text": _status(said[event.kind])})


def _status(text: str) -> str:
    return json.dumps({"type": "status", "message": text})


# ── the WebSocket ─────────────────────────────────────────────────────────────────────────────────────────────────


class _Door:
    """The server's own door, behind its guard, for connections that somebody else has accepted."""

    def __init__(self, house: House, ports: frozenset[int]) -> None:
        # By name, as commands find the server: the rooms do not know each other.
        web: Any = importlib.import_module("proctor.server.app")
        auth: Any = importlib.import_module("proctor.server.auth")
        guard: Any = importlib.import_module("proctor.server.guard")
        sockets: Any = importlib.import_module("proctor.server.socket")
        settings = house.app.settings
        access = auth.Access(settings.paths.token_file, ports=ports)
        self.front = web.make_front(house.app, access)
        self._app = guard.Guard(sockets.WebSocketDoor(self.front), access)
        self.most = 4 * sockets.MAX_MESSAGE

    async def serve(self, websocket: ServerConnection) -> None:
        """Speak the protocol until the client goes."""
        request = websocket.request
        assert request is not None  # there is one once the handshake is over
        parts = urlsplit(request.path)
        scope = {
            "type": "websocket",
            "path": parts.path or "/",
            "query_string": parts.query.encode(),
            "headers": [(n.lower().encode(), v.encode("latin-1")) for n, v in request.headers.raw_items()],
            "server": websocket.local_address[:2],
            "extensions": {},
        }
        await self._app(scope, _Receiving(websocket), partial(_send, websocket))


class _Receiving:
    """Gives the connection's messages as ASGI does."""

    def __init__(self, websocket: ServerConnection) -> None:
        self._websocket = websocket
        self._greeted = False

    async def __call__(self) -> dict[str, Any]:
        if not self._greeted:
            self._greeted = True
            return {"type": "websocket.connect"}
        try:
            message = await self._websocket.recv()
        except ConnectionClosed:
            return {"type": "websocket.disconnect"}
        return {"type": "websocket.receive", "text" if isinstance(message, str) else "bytes": message}


async def _send(websocket: ServerConnection, message: dict[str, Any]) -> None:
    try:
        if message["type"] == "websocket.send":
            await websocket.send(message["text"])
        elif message["type"] == "websocket.close":
            await websocket.close(message.get("code", _FORBIDDEN), message.get("reason", ""))
    except ConnectionClosed:
        return  # reading ends by itself


async def handle_websocket(websocket: ServerConnection, path: str | None = None) -> None:
    """Serve one connection of a server of the caller's own; `path` is what older libraries gave beside it."""
    port = int(websocket.local_address[1])
    door = await asyncio.to_thread(_Door, users_house(), frozenset({port}))
    async with asyncio.TaskGroup() as group:
        group.create_task(door.front.hub.run())
        try:
            await door.serve(websocket)
        finally:
            door.front.hub.close()


async def start_websocket_server(
    host: str = HOST, port: int = PORT, *, ready: Callable[[int], None] | None = None
) -> None:
    """Serve the WebSocket until cancelled; `ready` hears the port, 0 takes a free one."""
    with socket.create_server((host, port)) as listener:
        taken = int(listener.getsockname()[1])
        door = await asyncio.to_thread(_Door, users_house(), frozenset({taken}))
        async with asyncio.TaskGroup() as group:
            group.create_task(door.front.hub.run())
            try:
                async with serve(door.serve, sock=listener, max_size=door.most, compression=None) as server:
                    logger.info("the WebSocket listens at ws://{}:{}", host, taken)
                    if ready is not None:
                        ready(taken)
                    await server.serve_forever()
            finally:
                door.front.hub.close()


def main(words: Sequence[str] | None = None) -> None:
    """`coordinator.py [--interval SECONDS] [--debug] [--websocket]`."""
    parser = argparse.ArgumentParser(
        prog="coordinator", description="Execute the queue, or serve the WebSocket."
    )
    parser.add_argument("--interval", type=float, default=INTERVAL, help="seconds between looks at the queue")
    parser.add_argument("--debug", action="store_true", help="say more")
    parser.add_argument("--websocket", action="store_true", help="serve the WebSocket instead of the queue")
    given = parser.parse_args(words)
    logger.remove()
    logger.add(sys.stderr, level="DEBUG" if given.debug else "INFO")
    try:
        if given.websocket:
            asyncio.run(start_websocket_server(*_address()))
        else:
            AgentCoordinator(house=house_of(None)).run(given.interval)
    except KeyboardInterrupt:
        logger.info("stopped")


def _address() -> tuple[str, int]:
    """Where the seed's variables say, else its own address."""
    given = environment()
    port = given.get("WEBSOCKET_PORT") or str(PORT)
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"WEBSOCKET_PORT must be a port number, not {port[:20]!r}")
    return given.get("WEBSOCKET_HOST") or HOST, int(port)
