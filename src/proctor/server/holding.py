"""Who shows a task's token: the agent of that attempt, for the length of one request, whichever surface it came by.

Invariant: such a token opens tools and nothing else. It never stands for a person, so no answer, no grant, no setting and no
other call can be reached with it; what is not named here is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

from proctor.gate.task_tokens import Holder, is_task_token
from proctor.protocol.errors import ProctorError
from proctor.server.auth import Access, Refusal, hide_token, presented_token
from proctor.server.guard import ASGIApp, Guard, Receive, Scope, Send, Traffic, refuse

__all__ = ["HOLDER", "Doorkeeper", "Holders"]

Holders = Callable[[str], Holder | None]

HOLDER: Final[ContextVar[Holder | None]] = ContextVar("proctor_holder", default=None)
"""Set while a request of an agent is served; everything that runs for it inherits it."""
_PLACES: Final = ("/health", "/mcp", "/api/tools", "/api/v1/solace-orch")
_VOID: Final = Refusal(
    401,
    "This task's token is not valid: its attempt has ended, or it never was one.",
    "An agent's token lives as long as its attempt. People use their own token.",
)
_NOT_HERE: Final = Refusal(
    403,
    "A task's token opens tools only.",
    "Use /mcp, /api/tools or /ws. Answers, settings and other work need a person's token.",
)


class Doorkeeper:
    """Stands before an application: agents by the token of their attempt, everybody else through the guard."""

    def __init__(
        self, app: ASGIApp, access: Access, holders: Holders, traffic: Traffic | None = None
    ) -> None:
        self._holders = holders
        # Who has shown a valid task token needs no other; Host, Origin and size count for agents all the same.
        self._place = replace(access, needs_token=False)
        self._people = Guard(app, access, traffic)
        self._agents = Guard(app, self._place, traffic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one connection in, or say why not."""
        if scope["type"] == "websocket":
            hide_token(scope)
        if scope["type"] == "lifespan" or not _shows_task_token(scope):
            await self._people(scope, receive, send)
            return
        found = self._place.refuse(scope) or await self._holder(scope)
        if isinstance(found, Refusal):
            await refuse(scope, send, found)
            return
        with _acting_for(found):
            await self._agents(scope, receive, send)

    async def _holder(self, scope: Scope) -> Holder | Refusal:
        try:
            found = await asyncio.to_thread(self._holders, presented_token(scope) or "")
        except ProctorError as error:
            return Refusal(503, f"The token cannot be looked up: {error}", "Try again.")
        if found is None:
            return _VOID
        return found if _opens(scope) else _NOT_HERE


def _shows_task_token(scope: Mapping[str, Any]) -> bool:
    given = presented_token(scope)
    return given is not None and is_task_token(given)


def _opens(scope: Mapping[str, Any]) -> bool:
    path = str(scope["path"])
    if scope["type"] == "websocket":
        return not path.startswith("/ws/")  # traces show everybody's work
    return any(path == place or path.startswith(f"{place}/") for place in _PLACES)


@contextmanager
def _acting_for(holder: Holder) -> Iterator[None]:
    mark = HOLDER.set(holder)
    try:
        yield
    finally:
        HOLDER.reset(mark)
