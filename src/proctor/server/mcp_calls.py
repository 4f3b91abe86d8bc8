"""Calls that come by MCP: who asks, in which run, and a place where each call runs to its settlement.

Invariants: a caller is an agent, by the token of its task or by the name its client gives, never a person; the same call
made again is the same call (gate.repeats); a caller that goes away ends its call once, and it is settled all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import mcp_types as types
from loguru import logger

from proctor.app import App
from proctor.gate.context import ProgressCallback
from proctor.gate.task_tokens import Holder, held_call
from proctor.protocol.errors import ProctorError, UnavailableError
from proctor.protocol.events import ActorKind
from proctor.protocol.ids import new_id
from proctor.protocol.tools import Actor, Call
from proctor.server.mcp_tools import error_result, result_of

__all__ = ["HOLD_SECONDS", "MOST_CALLS", "Caller", "McpCalls", "Pool", "client_name"]

T = TypeVar("T")

HOLD_SECONDS: Final = 20.0  # clients give up after a minute or so
MOST_CALLS: Final = 64
MOST_RUNS: Final = 1000
IDLE_SECONDS: Final = 1800.0
_NAME: Final = 60


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and where."""

    name: str
    run: str
    """What belongs together: a connection, a session, or all requests of one client without either."""
    workspace: Path | None
    profile: str
    holder: Holder | None = None
    hold_s: float = HOLD_SECONDS
    """How long a call waits for a person's answer before it says that it waits."""


def client_name(given: str | None) -> str:
    """An agent's name from what a client calls itself."""
    shown = "".join(char for char in given or "" if char.isprintable()).strip()[:_NAME]
    return shown or "mcp-client"


class Pool:
    """Runs calls apart from the requests that want them: who is cancelled over and over is ended once, and cleans up."""

    def __init__(self, most: int = MOST_CALLS) -> None:
        self._most = most
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Take calls while the block lasts; at its end those that run are ended and waited for."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                for task in self._tasks:
                    task.cancel()

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it to its end; whoever is cancelled while waiting ends it."""
        if self._group is None or len(self._tasks) >= self._most:
            raise UnavailableError(
                what="The MCP server", reason=f"{self._most} calls run already", cure="Try again in a moment."
            )
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = self._group.create_task(_carry(work, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: done.done() or done.cancel())  # ended before its first step
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            done.add_done_callback(_heard)
            task.cancel()
            raise


async def _carry(work: Callable[[], Awaitable[T]], done: asyncio.Future[T]) -> None:
    try:
        found = await work()
    except asyncio.CancelledError:
        done.cancel()
        raise
    except Exception as error:  # noqa: BLE001 - request handler: one call's failure is told to its caller
        done.set_exception(error)
    else:
        done.set_result(found)


def _heard(done: asyncio.Future[Any]) -> None:
    """Nobody listens any more, which is no reason to complain."""
    if not done.cancelled():
        done.exception()


@dataclass(slots=True)
class _Run:
    trace_id: str
    used: float


class McpCalls:
    """Makes the calls of one server."""

    def __init__(self, app: App, *, most: int = MOST_CALLS) -> None:
        self._app = app
        self.pool = Pool(most)
        self._runs: dict[tuple[str, str], _Run] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve while the block lasts; what the runs have pinned is let go at its end."""
        try:
            async with self.pool.open():
                yield
        finally:
            left, self._runs = list(self._runs.values()), {}
            await asyncio.shield(self._let_go(left))

    async def call(
        self, who: Caller, tool: str, inputs: Mapping[str, Any], progress: ProgressCallback
    ) -> types.CallToolResult:
        """Make one call through the gate, whatever comes of it."""
        try:
            call = await self._call(who, tool, inputs)
            return await self.pool.run(lambda: self._made(call, who.hold_s, progress))
        except ProctorError as error:
            return error_result(error)
        except Exception as error:  # noqa: BLE001 - request handler: one call's failure is its own
            logger.exception("an MCP call of {} failed", tool[:80])
            return error_result(_DefectError(kind=type(error).__name__))

    async def _made(self, call: Call, hold_s: float, progress: ProgressCallback) -> types.CallToolResult:
        earlier = await asyncio.to_thread(self._app.repeats.find, call)
        again = call if earlier is None else earlier.again(call)
        result = await self._app.gate.run(again, hold_s=hold_s, progress=progress)
        return result_of(result, earlier.lapsed if earlier is not None else "")

    async def _call(self, who: Caller, tool: str, inputs: Mapping[str, Any]) -> Call:
        if who.holder is not None:
            return held_call(tool, inputs, who.holder, who.profile)
        return Call(
            tool=tool,
            inputs=inputs,
            actor=Actor(ActorKind.AGENT, who.name),
            profile=who.profile,
            workspace=who.workspace,
            trace_id=await self._trace(who),
        )

    async def _trace(self, who: Caller) -> str:
        """One trace for what belongs together, until nobody has used it for half an hour."""
        now, key = time.monotonic(), (who.run, str(who.workspace))
        old = [name for name, run in self._runs.items() if now - run.used > IDLE_SECONDS]
        if key not in self._runs and len(self._runs) - len(old) >= MOST_RUNS:
            old.append(min(self._runs, key=lambda name: self._runs[name].used))
        # Taken out before the first wait: a call that comes meanwhile must not let go of the same run.
        gone = [self._runs.pop(name) for name in old]
        run = self._runs.setdefault(key, _Run(new_id("trace"), now))
        run.used = now
        if gone:
            await asyncio.shield(self._let_go(gone))
        return run.trace_id

    async def _let_go(self, runs: Iterable[_Run]) -> None:
        for run in runs:
            await self._app.gate.finish_run(run.trace_id)


class _DefectError(ProctorError):
    """A defect: {kind}. The server's log says where; please report it."""

    code = "defect"
