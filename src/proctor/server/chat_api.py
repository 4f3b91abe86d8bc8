"""Chats over REST in our own words, and the seeds' `chat` request of the WebSocket with its exact frames.

A turn runs in this process and ends with the connection that asked for it; the chat stays. Where a person must answer first
the answer is 202 with the place to look at, and the chat goes on by itself once they have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse

from proctor.agents.driver import Failure
from proctor.agents.model_chats import DEFAULT_AGENT, MESSAGE_CAP, Watch
from proctor.agents.model_rows import Chat
from proctor.agents.model_turn import TurnEnd, TurnEvent, TurnOutcome
from proctor.protocol.errors import ProctorError, RefusedError
from proctor.protocol.tools import CallResult
from proctor.server.answers import REFUSALS, json_response
from proctor.server.frames import Asked, Frame, RequestError, error_frame, marked
from proctor.server.front import HOLD_SECONDS, MAX_NAME, Front, Place
from proctor.server.holding import HOLDER

__all__ = ["SocketChat", "router"]

MOST_LISTED: Final = 200
MOST_MESSAGES: Final = 1000
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Message = Annotated[str, Field(min_length=1, max_length=MESSAGE_CAP)]
Tell = Callable[[Frame], Awaitable[None]]
_PEOPLE_ONLY: Final = "an agent does not chat with models on a person's bill"


class ChatIn(BaseModel):
    """A new chat, and what is said first."""

    model_config = ConfigDict(extra="forbid")

    agent: Name = DEFAULT_AGENT
    profile: Name | None = None
    message: Message | None = None


class MessageIn(BaseModel):
    """What is said."""

    model_config = ConfigDict(extra="forbid")

    message: Message


Stream = Annotated[bool, Query(description="Answer as server-sent events while it happens.")]
Hold = Annotated[float, Query(ge=0, le=HOLD_SECONDS, description="Wait so long for each answer of a person.")]


_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    **REFUSALS,
    200: {
        "content": {"application/json": {}, "text/event-stream": {}},
        "description": "With `stream`: events.",
    },
    202: {"description": "A person has to answer first."},
}


def router(front: Front) -> APIRouter:
    """All routes."""
    routes = APIRouter(prefix="/api/chats", tags=["chats"], responses=_ANSWERS)
    _reading(routes, front)
    _speaking(routes, front)
    return routes


def _reading(routes: APIRouter, front: Front) -> None:
    @routes.get("", response_model=None, summary="The newest chats")
    async def listing(limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50) -> Response:
        found = await asyncio.to_thread(lambda: front.app.chats.recent(limit=limit))
        return json_response([_row(front, one) for one in found])

    @routes.get("/{chat_id}", response_model=None, summary="How a chat stands, and what was said")
    async def show(
        chat_id: str,
        after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_MESSAGES)] = 200,
    ) -> Response:
        def read() -> dict[str, Any]:
            found = front.app.chats.get(chat_id)
            told = front.app.chats.messages(found.chat_id, after=after, limit=limit)
            return {**_row(front, found), "history": told, "truncated": len(told) == limit}

        return json_response(await asyncio.to_thread(read))


def _speaking(routes: APIRouter, front: Front) -> None:
    @routes.post("", response_model=None, status_code=201, summary="Open a chat, and say something")
    async def opening(
        said: Annotated[ChatIn, Body()], workspace: Place = None, hold: Hold = 0.0, stream: Stream = False
    ) -> Response:
        made = await _opened(front, said.agent, workspace, said.profile)
        if said.message is not None:
            return await _spoken(front, made.chat_id, said.message, hold, stream)
        return json_response(_row(front, made), 201, {"Location": f"/api/chats/{made.chat_id}"})

    @routes.post("/{chat_id}/messages", response_model=None, summary="Say something and get the answer")
    async def saying(
        chat_id: str, said: Annotated[MessageIn, Body()], hold: Hold = 0.0, stream: Stream = False
    ) -> Response:
        return await _spoken(front, chat_id, said.message, hold, stream)

    @routes.post(
        "/{chat_id}/resume", response_model=None, summary="Go on with a chat that waited or was interrupted"
    )
    async def going_on(chat_id: str, hold: Hold = 0.0, stream: Stream = False) -> Response:
        return await _spoken(front, chat_id, None, hold, stream)


async def _opened(front: Front, agent: str, workspace: str | None, profile: str | None) -> Chat:
    if profile is not None:
        front.profile_of(profile)
    return await asyncio.to_thread(
        lambda: front.app.chats.open(
            agent, workspace=front.place(workspace), by=front.user, profile=profile or front.profile
        )
    )


def _row(front: Front, chat: Chat) -> dict[str, Any]:
    names = ("chat_id", "title", "workspace", "profile", "trace_id", "turn", "messages", "outcome")
    return {
        **{name: getattr(chat, name) for name in names},
        "agent": chat.agent_name,
        "state": front.app.chats.stands(chat),
        "waiting_for": list(chat.waiting_for),
        "created_at": chat.created_at,
        "updated_at": chat.updated_at,
    }


# ── one turn ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _turn(front: Front, chat_id: str, message: str | None, watch: Watch) -> TurnEnd:
    """One turn; who executes goes on with it when a person has to answer first."""
    chats = front.app.chats
    end = await (chats.go_on(chat_id, watch) if message is None else chats.say(chat_id, message, watch))
    if end.outcome is TurnOutcome.PARKED:
        await front.nudge()
    return end


async def _spoken(front: Front, chat_id: str, message: str | None, hold: float, stream: bool) -> Response:
    async def ask(_result: CallResult, _event: TurnEvent) -> float:
        return hold

    if stream:
        body = _streamed(front, chat_id, message, ask)
        return StreamingResponse(body, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
    end = await _turn(front, chat_id, message, Watch(ask=ask))
    return _answer(await asyncio.to_thread(front.app.chats.get, chat_id), end)


def _answer(chat: Chat, end: TurnEnd) -> Response:
    status = {
        TurnOutcome.PARKED: 202,
        TurnOutcome.FAILED: 429 if end.failure in {Failure.LIMIT, Failure.RATE_LIMIT} else 503,
        TurnOutcome.TIMED_OUT: 504,
    }.get(end.outcome, 200)
    place = {"Location": f"/api/chats/{chat.chat_id}"}
    if status == 202:
        return json_response(_ended(chat, end), 202, {**place, "Retry-After": "5"})
    if status != 200:
        code = f"model_{end.failure.value}" if end.failure.value else end.outcome.value
        return json_response({"error": end.text, "hint": "", "code": code}, status, place)
    return json_response(_ended(chat, end), 200, place)


def _ended(chat: Chat, end: TurnEnd) -> dict[str, Any]:
    cost = None if end.used.micro_usd is None else end.used.micro_usd / 1_000_000
    tokens = {"input_tokens": end.used.input_tokens, "output_tokens": end.used.output_tokens}
    return {
        "chat_id": chat.chat_id,
        "trace_id": chat.trace_id,
        "outcome": end.outcome.value,
        "message": end.text,
        "waiting_for": list(end.waiting_for),
        "requests": end.requests,
        "usage": {**tokens, "cost_usd": cost},
    }


async def _streamed(
    front: Front, chat_id: str, message: str | None, ask: Callable[[CallResult, TurnEvent], Awaitable[float]]
) -> AsyncIterator[bytes]:
    """The turn as it happens; it ends with the one who listens."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(256)

    async def listen(event: TurnEvent) -> None:
        facts = {"text": event.text, "tool": event.tool, "details": dict(event.details)}
        await queue.put(_sse(event.kind, facts))

    async def work() -> None:
        try:
            end = await _turn(front, chat_id, message, Watch(listen=listen, ask=ask))
            chat = await asyncio.to_thread(front.app.chats.get, chat_id)
            await queue.put(_sse("end", _ended(chat, end)))
        except ProctorError as error:
            await queue.put(_sse("error", {"error": str(error), "code": error.code}))
        await queue.put(None)

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        try:
            while (piece := await queue.get()) is not None:
                yield piece
        finally:
            working.cancel()


def _sse(kind: str, facts: Mapping[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + to_json(facts, serialize_unknown=True) + b"\n\n"


# ── the seeds' WebSocket ──────────────────────────────────────────────────────────────────────────────────────────


class SocketChat:
    """The chat of one connection: its messages share one history unless a request names another chat."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._chat_id: str | None = None

    async def answer(self, request: Asked, tell: Tell) -> Frame:
        """Zero or more `status` frames through `tell`, then the answer; extra frames only for who wants progress."""
        message = request.get("message")
        if not isinstance(message, str) or not message.strip():
            raise RequestError("Missing message")
        if HOLDER.get() is not None:
            raise RefusedError(reason=_PEOPLE_ONLY, cure="Use the tools directly.")
        chat_id = await self._chosen(request)

        async def listen(event: TurnEvent) -> None:
            for frame in _told(event, progress=request.progress):
                await tell(marked(frame, request))

        async def ask(_result: CallResult, _event: TurnEvent) -> float:
            return HOLD_SECONDS

        end = await _turn(self._front, chat_id, message, Watch(listen=listen, ask=ask))
        return self._frame(request, chat_id, end)

    async def _chosen(self, request: Asked) -> str:
        named = request.get("chat_id")
        if isinstance(named, str) and named:
            return (await asyncio.to_thread(self._front.app.chats.get, named)).chat_id
        if self._chat_id is None:
            agent = request.get("agent")
            name = agent if isinstance(agent, str) and 0 < len(agent) <= MAX_NAME else DEFAULT_AGENT
            self._chat_id = (await _opened(self._front, name, request.workspace, None)).chat_id
        return self._chat_id

    def _frame(self, request: Asked, chat_id: str, end: TurnEnd) -> Frame:
        if end.outcome in {TurnOutcome.FAILED, TurnOutcome.TIMED_OUT}:
            return error_frame(end.text, request)
        frame: Frame = {"type": "chat_response", "message": end.text}
        if end.outcome is TurnOutcome.PARKED:
            frame |= {"approval_pending": True, "approvals": list(end.waiting_for), "chat_id": chat_id}
        elif request.progress:
            frame["chat_id"] = chat_id
        return marked(frame, request)


def _told(event: TurnEvent, *, progress: bool) -> list[Frame]:
    status: Frame = {"type": "status", "message": event.text}
    if event.kind == "approval":
        asked = {"type": "approval_requested", "tool": event.tool, **event.details}
        waiting = f"Waiting for approval {event.details.get('approval_id')}: {event.text}"
        return [{**status, "message": waiting}, *([asked] if progress else [])]
    if event.kind in {"tool_start", "retry"}:
        return [status]
    if event.kind == "text" and progress:
        return [{"type": "chat_delta", "message": event.text}]
    return []
