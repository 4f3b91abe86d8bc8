"""`proctor mcp`: the same server on standard input and output, for the one client that started it.

Who calls is the agent of the token in the environment, else an agent named after the client; never a person. What Proctor
itself started must show a valid token. When the client goes, everything it still waits for ends, and the process with it.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Final

from mcp.server.stdio import stdio_server

from proctor.app import App
from proctor.config import current_directory
from proctor.gate.humans import MARKS
from proctor.gate.task_tokens import VARIABLE, Holder, TaskTokenError, find_holder
from proctor.protocol.errors import ProctorError
from proctor.sandbox.process import close_idle_keepers
from proctor.server.mcp_calls import HOLD_SECONDS, Caller, McpCalls, client_name
from proctor.server.mcp_server import Context, McpServer

__all__ = ["serve_stdio"]

_RUN: Final = "stdio"


def serve_stdio(app: App, *, workspace: Path | None = None, hold_s: float = HOLD_SECONDS) -> None:
    """Serve until the client closes its end or a signal comes."""
    desk = _Desk(app, workspace)
    desk.holder()  # a token that is not valid is said at once, not at the first call
    try:
        asyncio.run(_serve(app, desk, hold_s))
    finally:
        close_idle_keepers()


async def _serve(app: App, desk: _Desk, hold_s: float) -> None:
    me = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: me is not None and me.cancel())
    calls = McpCalls(app, hold_s=hold_s)
    server = McpServer(app, calls, desk.who).server
    try:
        async with calls.open(), stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    except asyncio.CancelledError:
        return  # asked to leave; everything has been settled on the way out


class _Desk:
    """Knows who sits at the other end."""

    def __init__(self, app: App, workspace: Path | None) -> None:
        self._app = app
        self._place = workspace or app.settings.workspace or current_directory()

    def who(self, context: Context) -> Caller:
        """The caller; its token is looked up for every call, because it ends with its attempt."""
        holder = self.holder()
        if holder is not None:
            profile = self._app.settings_for(holder.workspace).profile
            return Caller(holder.agent, _RUN, None, profile, holder)
        client = context.session.client_params
        name = client_name(client.client_info.name if client is not None else None)
        return Caller(name, _RUN, self._place, self._app.settings.profile)

    def holder(self) -> Holder | None:
        """The agent whose token is in the environment; refuses one that is not valid, and a child of ours without one."""
        environ = self._app.settings.environ
        token = environ.get(VARIABLE)
        if not token:
            if any(mark in environ for mark in MARKS):
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
