"""`proctor mcp`: the same server on standard input and output, for the one client that started it.

Who calls is the agent of the token in the environment, else an agent named after the client; never a person. What Proctor
itself started must show a valid token. When the client goes, everything it still waits for ends, and the process with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path
from typing import Any, Final

from mcp.server.stdio import stdio_server
from pydantic_core import from_json

from proctor.app import App
from proctor.config import current_directory
from proctor.gate.humans import MARKS
from proctor.gate.task_tokens import VARIABLE, Holder, TaskTokenError, find_holder
from proctor.protocol.errors import ProctorError
from proctor.sandbox.process import close_idle_keepers
from proctor.server.mcp_calls import HOLD_SECONDS, Caller, McpCalls, client_name
from proctor.server.mcp_server import Context, McpServer

__all__ = ["serve_stdio"]

MAX_LINE: Final = 16 * 1024 * 1024
_CHUNK: Final = 1 << 18
_TOO_LONG: Final = "a line that was too long"
_RUN: Final = "stdio"


def serve_stdio(app: App, *, workspace: Path | None = None, hold_s: float = HOLD_SECONDS) -> None:
    """Serve until the client closes its end or a signal comes."""
    desk = _Desk(app, workspace, hold_s)
    desk.holder()  # a token that is not valid is said at once, not at the first call
    try:
        asyncio.run(_serve(app, desk))
    finally:
        close_idle_keepers()


async def _serve(app: App, desk: _Desk) -> None:
    me = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: me is not None and me.cancel())
    calls = McpCalls(app)
    server = McpServer(app, calls, desk.who).server
    lines: Any = await _Lines.of_stdin()
    try:
        async with calls.open(), stdio_server(stdin=lines) as (read, write):
            await server.run(read, write, server.create_initialization_options())
    except asyncio.CancelledError:
        return  # asked to leave; everything has been settled on the way out


class _Lines:
    """Standard input line by line, without a thread that nothing could end; a line that is too long counts as rubbish."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._rest = b""
        self._skips = False
        self._first = True

    @classmethod
    async def of_stdin(cls) -> _Lines:
        """Take standard input for ourselves: what we start reads nothing from it."""
        reader = asyncio.StreamReader()
        own = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.close(nothing)
        kind = os.fstat(own).st_mode
        if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(own):
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(own, "rb", 0)
            )
        else:  # a file, or nothing at all: it is there at once, and no loop can wait for it
            reader.feed_data(os.read(own, MAX_LINE))
            reader.feed_eof()
            os.close(own)
        return cls(reader)

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        while b"\n" not in self._rest:
            chunk = await self._reader.read(_CHUNK)
            if not chunk:
                raise StopAsyncIteration  # half a line is no message
            self._rest += chunk
            if len(self._rest) > MAX_LINE and b"\n" not in self._rest:
                self._rest, self._skips = b"", True
        if self._first:
            self._first, self._rest = False, _without_probe(self._rest)
        line, _, self._rest = self._rest.partition(b"\n")
        long, self._skips = self._skips or len(line) > MAX_LINE, False
        return _TOO_LONG if long else line.decode("utf-8", "replace")


def _without_probe(sent: bytes) -> bytes:
    """What a client sent before we listened, without a question about our era that it has given up on.

    It has when the handshake of the older era stands right behind it; answering the question would settle on the newer.
    """
    first, _, rest = sent.partition(b"\n")
    second, ended, _ = rest.partition(b"\n")
    return rest if ended and _method(first) == "server/discover" and _method(second) == "initialize" else sent


def _method(line: bytes) -> str:
    try:
        found = from_json(line)
    except ValueError:
        return ""
    return str(found.get("method", "")) if isinstance(found, dict) else ""


class _Desk:
    """Knows who sits at the other end."""

    def __init__(self, app: App, workspace: Path | None, hold_s: float) -> None:
        self._app = app
        self._hold = hold_s
        self._place = workspace or app.settings.workspace or current_directory()

    def who(self, context: Context) -> Caller:
        """The caller; its token is looked up for every call, because it ends with its attempt."""
        holder = self.holder()
        if holder is not None:
            profile = self._app.settings_for(holder.workspace).profile
            return Caller(holder.agent, _RUN, None, profile, holder, self._hold)
        client = context.session.client_params
        name = client_name(client.client_info.name if client is not None else None)
        return Caller(name, _RUN, self._place, self._app.settings.profile, hold_s=self._hold)

    def holder(self) -> Holder | None:
        """The agent whose token is in the environment; refuses one that is not valid, and a child of ours without one."""
        environ = self._app.settings.environ
        token = environ.get(VARIABLE, "")
        if not token or token == f"${VARIABLE}":  # Gemini CLI leaves the name where there is no value
            if any(environ.get(mark) for mark in MARKS):
                raise TaskTokenError(problem="missing, and this was started by something Proctor runs")
            return None
        try:
            with self._app.database.read() as connection:
                found = find_holder(connection, token)
        except ProctorError as error:
            raise TaskTokenError(problem=f"not to be looked up ({error})") from error
        if found is None:
            raise TaskTokenError(problem="void: its attempt has ended, or it belongs to another database")
        return found
