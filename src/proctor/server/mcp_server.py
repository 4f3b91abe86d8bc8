"""One MCP server over the registry, for stdio and HTTP, in both protocol eras: tools, progress, prompts.

It asks nobody anything over MCP: the client belongs to the agent that is judged, so what it elicits is no answer (law 8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from proctor import __version__
from proctor.agents.slash import COMMANDS, find_command
from proctor.app import App
from proctor.protocol.errors import ProctorError
from proctor.server.mcp_calls import Caller, McpCalls
from proctor.server.mcp_tools import error_result, tool_of

__all__ = ["INSTRUCTIONS", "McpServer"]

Context = ServerRequestContext[Any, Any]
Who = Callable[[Context], Caller]

TELL_SECONDS: Final = 0.25
STILL_SECONDS: Final = 5.0
_STEP: Final = 1e-6
# Clients that show prompts as commands must not find two of one name: Gemini CLI then takes neither.
_PREFIX: Final = "proctor-"
INSTRUCTIONS: Final = (
    "Proctor's governed tools: every call is judged by the user's profile and written to a trace. A result with status "
    "approval_pending means that a person was asked: tell the user the command it names, and call again with the same "
    "arguments after the answer. add_task gives work to another agent in the background; get_status and show_task tell "
    "how it stands."
)


class McpServer:
    """The protocol's side of it; `who` recognises the caller of a request."""

    def __init__(self, app: App, calls: McpCalls, who: Who) -> None:
        self._app = app
        self._calls = calls
        self._who = who
        self._tools = [tool_of(tool) for tool in app.registry.tools()]
        schemas = {tool.name: tool.input_schema for tool in self._tools}
        self.server: Server[Any] = Server(
            "proctor",
            version=__version__,
            title="Proctor",
            description="Governed tools and background agents.",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=schemas.get,
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_prompts=self._prompts,
            on_get_prompt=self._prompt,
        )
        # The trace is the record; a second one by another road would only be half of it.
        self.server.middleware.clear()

    async def _list(self, _context: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools)

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            who = await asyncio.to_thread(self._who, context)
        except ProctorError as error:
            return error_result(error)
        told = _Told(params.name)
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(_tell(context, told))
            try:
                return await self._calls.call(who, params.name, params.arguments or {}, told)
            finally:
                telling.cancel()

    async def _prompts(self, _context: Context, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[_listed_prompt(name) for name in COMMANDS])

    async def _prompt(self, _context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        try:
            command = find_command(params.name.removeprefix(_PREFIX))
        except ProctorError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error
        text = command.text_with((params.arguments or {}).get("arguments", ""))
        content = types.TextContent(type="text", text=text)
        message = types.PromptMessage(role="user", content=content)
        return types.GetPromptResult(description=command.summary, messages=[message])


def _listed_prompt(name: str) -> types.Prompt:
    command = COMMANDS[name]
    takes = [types.PromptArgument(name="arguments", description=command.takes, required=command.needs)]
    return types.Prompt(
        name=_PREFIX + name, description=command.summary, arguments=takes if command.takes else []
    )


# ── progress ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Told:
    """The last thing a running call said; written from any thread."""

    def __init__(self, tool: str) -> None:
        self.text = f"{tool[:80]} runs, or waits for a person's answer"
        self.share: float | None = None
        self.news = 0

    def __call__(self, what: str, share: float | None) -> None:
        self.text, self.share = what or self.text, share
        self.news += 1


async def _tell(context: Context, told: _Told) -> None:
    """Pass on what is new, four times a second at most, and every five seconds that it still runs: silence ends calls."""
    meta: Mapping[str, Any] = context.meta or {}
    if meta.get("progress_token") is None:
        return
    loop = asyncio.get_running_loop()
    sent, value, last = 0, 0.0, loop.time()
    try:
        while True:
            await asyncio.sleep(TELL_SECONDS)
            if told.news == sent and loop.time() - last < STILL_SECONDS:
                continue
            sent, last = told.news, loop.time()
            # The protocol wants each value above the one before; without a share nobody knows the whole.
            value = value + _STEP if told.share is None else max(value + _STEP, min(1.0, told.share))
            await context.session.report_progress(value, 1.0 if told.share is not None else None, told.text)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, MCPError):
        return  # nobody listens any more; the request's own end says the rest
