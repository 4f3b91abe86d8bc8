"""`/mcp`: streamable HTTP in both eras, behind the same guard as every other route.

A session of the handshake era belongs to whoever opened it; sessions are bounded and end when nobody uses them. Where calls
act is the server's own directory, or `?workspace=` of the address; an agent with a task's token acts in its worktree only.
`?hold=` shortens how long a call waits for an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from proctor.gate.task_tokens import Holder
from proctor.server.auth import query_pairs
from proctor.server.front import Front
from proctor.server.guard import MAX_BODY, Message, Receive, Scope, Send
from proctor.server.holding import HOLDER
from proctor.server.mcp_calls import HOLD_SECONDS, Caller, McpCalls, client_name
from proctor.server.mcp_server import Context, McpServer

__all__ = ["MOST_SESSIONS", "McpDoor"]

MOST_SESSIONS: Final = 200
SESSION_SECONDS: Final = 1800.0
_SEEN: Final = "proctor.mcp"
_SESSION: Final = "mcp-session-id"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the door knows of a request."""

    holder: Holder | None
    workspace: str | None
    hold_s: float


class McpDoor:
    """An ASGI application for one path; `running` must surround its use."""

    def __init__(self, front: Front, *, most_sessions: int = MOST_SESSIONS) -> None:
        self._front = front
        self.calls = McpCalls(front.app)
        self._most = most_sessions
        self._manager: StreamableHTTPSessionManager | None = None
        self._closing = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while the block lasts."""
        server = McpServer(self._front.app, self.calls, self._who).server
        self._manager = StreamableHTTPSessionManager(
            server,
            session_idle_timeout=SESSION_SECONDS,
            max_sessions=self._most,
            max_request_body_size=MAX_BODY,
            # Host and Origin have been checked by the guard, which knows all names of this server.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._closing = asyncio.Event()
        async with self.calls.open(), self._manager.run():
            try:
                yield
            finally:
                self.close()

    def close(self) -> None:
        """Let open streams go: whoever listens hears that it is over."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        assert self._manager is not None, "running() surrounds every use"
        holder = HOLDER.get()
        query = dict(query_pairs(scope))
        scope[_SEEN] = _Seen(holder, query.get("workspace"), _hold(query.get("hold")))
        scope["user"] = _owner(holder)
        if scope["method"] == "GET":
            await self._listening(self._manager, scope, receive, send)
        else:
            await self._manager.handle_request(scope, receive, send)

    async def _listening(
        self, manager: StreamableHTTPSessionManager, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """A stream that only listens; when we end it, it ends in order."""
        going = False

        async def noted(message: Message) -> None:
            nonlocal going
            going = message["type"] == "http.response.start" or bool(message.get("more_body"))
            await send(message)

        await manager.handle_request(scope, self._ended(receive), noted)
        if self._closing.is_set() and going:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _ended(self, receive: Receive) -> Receive:
        """A stream that only listens ends with the server, which else would wait for it."""

        async def either() -> Message:
            async with asyncio.TaskGroup() as group:
                heard = group.create_task(_one(receive))
                over = group.create_task(self._closing.wait())
                done, rest = await asyncio.wait({heard, over}, return_when=asyncio.FIRST_COMPLETED)
                for one in rest:
                    one.cancel()
            return heard.result() if heard in done else {"type": "http.disconnect"}

        return either

    def _who(self, context: Context) -> Caller:
        """The caller of one request: the agent of the token, or an agent by its client's name."""
        request: Any = context.request
        seen: _Seen = request.scope[_SEEN]
        app, client = self._front.app, context.session.client_params
        if seen.holder is not None:
            profile = app.settings_for(seen.holder.workspace).profile
            return Caller(seen.holder.agent, "", None, profile, seen.holder, seen.hold_s)
        name = client_name(client.client_info.name if client is not None else None)
        place = self._front.place(seen.workspace)
        session = request.headers.get(_SESSION)
        run = session or f"client:{name}"
        return Caller(name, run, place, self._front.profile, hold_s=seen.hold_s)


async def _one(receive: Receive) -> Message:
    return await receive()


def _hold(given: str | None) -> float:
    """What was asked for, if it is a shorter time."""
    try:
        return max(0.0, min(HOLD_SECONDS, float(given or HOLD_SECONDS)))
    except ValueError:
        return HOLD_SECONDS


def _owner(holder: Holder | None) -> Any:
    """Who a session belongs to; another's is as good as none."""
    name = "person" if holder is None else f"{holder.task_id}.{holder.attempt}"
    return AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[]))
