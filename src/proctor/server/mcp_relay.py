"""`proctor mcp` where this state does not know the task: everything is passed on to the server of this user that does.

So it is when the supervisor keeps its rows elsewhere (PostgreSQL): an agent gets none of Proctor's settings, only its token.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any, Final

import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from proctor.config import Paths
from proctor.engine.doors import read_address
from proctor.server.mcp_lines import Lines

__all__ = ["end_on_signals", "knows_token", "relay"]

ASK_SECONDS: Final = 10.0
READ_SECONDS: Final = 660.0  # longer than any call may take


def end_on_signals() -> None:
    """Let a signal end the task that calls this."""
    me, loop = asyncio.current_task(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: me is not None and me.cancel())


def knows_token(paths: Paths, token: str) -> str | None:
    """The address of this user's server, if one runs and knows the token's attempt."""
    found = read_address(paths) if token else None
    if found is None:
        return None
    try:
        with _Client.plain(token) as client:
            answer = client.get(f"{found.http}/api/tools")
    except httpx2.HTTPError:
        return None
    return found.http if answer.status_code == 200 else None


class _Client:
    """How we reach it: on this machine, never through a proxy."""

    @staticmethod
    def plain(token: str) -> httpx2.Client:
        """For one question."""
        return httpx2.Client(headers=_headers(token), timeout=ASK_SECONDS, trust_env=False)

    @staticmethod
    def lasting(token: str) -> httpx2.AsyncClient:
        """For everything after it."""
        timeout = httpx2.Timeout(ASK_SECONDS, read=READ_SECONDS)
        return httpx2.AsyncClient(headers=_headers(token), timeout=timeout, trust_env=False)


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def relay(http: str, token: str, hold_s: float) -> None:
    """Pass messages on until the client closes its end or a signal comes."""
    end_on_signals()
    lines: Any = await Lines.of_stdin()
    stamp = _Stamp()
    try:
        async with (
            _Client.lasting(token) as client,
            streamable_http_client(f"{http}/mcp?hold={hold_s:g}", http_client=client) as (answers, questions),
            stdio_server(stdin=lines) as (asked, told),
            asyncio.TaskGroup() as group,
        ):
            back = group.create_task(_back(answers, told, stamp))
            async for message in asked:
                if isinstance(message, SessionMessage):
                    await questions.send(stamp.out(message))
            back.cancel()
    except asyncio.CancelledError:
        return


async def _back(answers: Any, told: Any, stamp: _Stamp) -> None:
    async for message in answers:
        if isinstance(message, SessionMessage):
            stamp.seen(message)
            await told.send(message)


class _Stamp:
    """The headers that HTTP wants beside a message, read from the message itself."""

    def __init__(self) -> None:
        self._version = ""
        self._opening: Any = None

    def out(self, message: SessionMessage) -> SessionMessage:
        """A message on its way to the server."""
        body = message.message
        method = str(getattr(body, "method", ""))
        params: dict[str, Any] = getattr(body, "params", None) or {}
        if method == "initialize":
            self._opening = getattr(body, "id", None)
            return message
        version = (params.get("_meta") or {}).get(types.PROTOCOL_VERSION_META_KEY) or self._version
        headers = {MCP_PROTOCOL_VERSION_HEADER: str(version)} if version else {}
        if version and version != self._version:  # each message of the newer era stands for itself
            headers[MCP_METHOD_HEADER] = method
            name = params.get(NAME_BEARING_METHODS.get(method, ""))
            if isinstance(name, str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
        return SessionMessage(body, ClientMessageMetadata(headers=headers))

    def seen(self, message: SessionMessage) -> None:
        """The answer to the handshake says which version holds from now on."""
        body = message.message
        if isinstance(body, types.JSONRPCResponse) and body.id == self._opening and not self._version:
            self._version = str(body.result.get("protocolVersion", ""))
