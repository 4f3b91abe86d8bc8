"""`proctor mcp`: the same server on standard input and output, for the one client that started it.

Who calls is the agent of the token in the environment, else an agent named after the client; never a person. What Proctor
itself started must show a token that this state, or a server of this user, knows. When the client goes, everything it still
waits for ends, and the process with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from mcp.server.stdio import stdio_server

from proctor.app import App
from proctor.config import current_directory
from proctor.gate.humans import MARKS
from proctor.gate.task_tokens import VARIABLE, Holder, TaskTokenError, find_holder
from proctor.protocol.errors import ProctorError
from proctor.sandbox.process import close_idle_keepers
from proctor.server.mcp_calls import HOLD_SECONDS, Caller, McpCalls, client_name
from proctor.server.mcp_lines import Lines
from proctor.server.mcp_relay import end_on_signals, knows_token, relay
from proctor.server.mcp_server import Context, McpServer
from proctor.store.database import Database
from proctor.store.schema import is_missing

__all__ = ["serve_stdio"]

_RUN: Final = "stdio"


def serve_stdio(app: App, *, workspace: Path | None = None, hold_s: float = HOLD_SECONDS) -> None:
    """Serve until the client closes its end or a signal comes."""
    desk = _Desk(app, workspace, hold_s)
    try:
        desk.holder()  # a token that is not valid is said at once, not at the first call
    except TaskTokenError:
        known = knows_token(app.settings.paths, desk.token)
        if known is None:
            raise
        asyncio.run(relay(known, desk.token, hold_s))
        return
    try:
        asyncio.run(_serve(app, desk))
    finally:
        close_idle_keepers()


async def _serve(app: App, desk: _Desk) -> None:
    end_on_signals()
    calls = McpCalls(app)
    server = McpServer(app, calls, desk.who).server
    lines: Any = await Lines.of_stdin()
    try:
        async with calls.open(), stdio_server(stdin=lines) as (read, write):
            await server.run(read, write, server.create_initialization_options())
    except asyncio.CancelledError:
        return  # asked to leave; everything has been settled on the way out


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

    @property
    def token(self) -> str:
        """What the environment says; nothing where Gemini CLI leaves the name because there is no value."""
        token = self._app.settings.environ.get(VARIABLE, "")
        return "" if token == f"${VARIABLE}" else token

    def _found(self, token: str) -> Holder | None:
        if self._nowhere:
            return None
        with self._app.database.read() as connection:
            return find_holder(connection, token)

    @cached_property
    def _nowhere(self) -> bool:
        """Whether there is no database here; none is made for a task that is somebody else's."""
        with contextlib.closing(Database(self._app.settings.database_url)) as database:
            return is_missing(database)

    def holder(self) -> Holder | None:
        """The agent whose token is in the environment; refuses one that is not valid, and a child of ours without one."""
        token = self.token
        if not token:
            started = self._app.settings.environ
            if any(started.get(mark) for mark in MARKS if mark != VARIABLE):
                raise TaskTokenError(problem="missing, and this was started by something Proctor runs")
            return None
        try:
            found = self._found(token)
        except ProctorError as error:
            raise TaskTokenError(problem=f"not to be looked up ({error})") from error
        if found is None:
            raise TaskTokenError(problem="void: its attempt has ended, or it belongs to another database")
        return found
