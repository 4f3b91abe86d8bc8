"""Watching: one trace over a WebSocket (`/ws/traces/{trace_id}`), the whole log over SSE (`/api/events`), and who watches.

Both replay first and are live then, from the hub: any number of viewers, each at its own place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import StreamingResponse

from proctor.protocol.errors import ProctorError, UsageError
from proctor.server.answers import REFUSALS
from proctor.server.auth import Refusal, query_pairs
from proctor.server.front import MAX_NAME, Front
from proctor.server.guard import Receive, Scope, Send, refuse
from proctor.server.hub import Viewer

__all__ = ["TraceDoor", "WatchHealth", "router"]

BEAT_SECONDS: Final = 15.0
_MOST_NAMED: Final = 10
_MAX_SEQ: Final = 2**62


class WatchHealth(BaseModel):
    """Who watches."""

    status: str
    service: str
    active_connections: int
    active_traces: list[str]


class TraceDoor:
    """The trace socket as an ASGI application; the path says which trace."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one viewer."""
        await receive()  # websocket.connect
        trace_id = str(scope["path_params"]["trace_id"])
        if not 0 < len(trace_id) <= MAX_NAME:
            await refuse(scope, send, Refusal(404, "That is no trace id.", "`proctor trace` lists them."))
            return
        try:
            viewer = await self._front.hub.join(trace_id=trace_id, after=_after(scope))
        except ProctorError as error:
            await refuse(scope, send, Refusal(503, str(error), "Try again later."))
            return
        try:
            await send({"type": "websocket.accept"})
            await _watch(viewer, trace_id, receive, send)
        except OSError:
            return  # the viewer has gone
        finally:
            viewer.close()


async def _watch(viewer: Viewer, trace_id: str, receive: Receive, send: Send) -> None:
    first = {
        "event": "connected",
        "trace_id": trace_id,
        "status": "success",
        "message": f"Connected to the trace {trace_id}",
    }
    await send({"type": "websocket.send", "text": to_json(first).decode()})
    async with asyncio.TaskGroup() as group:
        showing = group.create_task(_show(viewer, send))
        await _listen(viewer, receive, send)
        showing.cancel()


async def _show(viewer: Viewer, send: Send) -> None:
    """Send what comes; the text was encoded once for everybody."""
    try:
        while lines := await viewer.next():
            for line in lines:
                await send({"type": "websocket.send", "text": line.text})
        await send({"type": "websocket.close", "code": 1001})
    except OSError:
        return
    except ProctorError as error:
        # The viewer comes back with the last place it has seen and misses nothing.
        await send({"type": "websocket.close", "code": 1011, "reason": str(error)[:120]})


async def _listen(viewer: Viewer, receive: Receive, send: Send) -> None:
    """Heed `ping` and `close`; anything else a client says is ignored."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            if message.get("text") == "ping":
                await send({"type": "websocket.send", "text": "pong"})
            elif message.get("text") == "close":
                await send({"type": "websocket.close", "code": 1000})
                return
        except OSError:
            return


def _after(scope: Scope) -> int:
    """Where a viewer that comes back goes on: `?after=SEQ`; from the beginning by default."""
    given = dict(query_pairs(scope)).get("after", "0")
    return min(int(given), _MAX_SEQ) if given.isascii() and given.isdigit() and len(given) < 20 else 0


# ── server-sent events ────────────────────────────────────────────────────────────────────────────────────────────


def router(front: Front) -> APIRouter:
    """The routes beside the socket itself."""
    routes = APIRouter(responses=REFUSALS)

    @routes.get("/ws/health", response_model=WatchHealth, tags=["compat"], summary="Who watches traces")
    async def watch_health() -> Any:
        viewers = front.hub.viewers
        traces = sorted({viewer.trace_id for viewer in viewers if viewer.trace_id is not None})
        return {
            "status": "healthy",
            "service": "trace-streaming",
            "active_connections": len(viewers),
            "active_traces": traces[:_MOST_NAMED],
        }

    @routes.get(
        "/api/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
        tags=["traces"],
        summary="All events, replayed after Last-Event-ID and then live (server-sent events)",
    )
    async def events(
        trace_id: Annotated[str | None, Query(min_length=1, max_length=MAX_NAME)] = None,
        after: Annotated[
            int | None, Query(ge=0, le=_MAX_SEQ, description="Only new ones by default.")
        ] = None,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> StreamingResponse:
        place = after if last_event_id is None else _place(last_event_id)
        viewer = await front.hub.join(trace_id=trace_id, after=place)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_events(viewer), media_type="text/event-stream", headers=headers)

    return routes


def _place(given: str) -> int:
    if not given.isascii() or not given.isdigit():
        raise UsageError(message="Last-Event-ID is the number of the last event that was received.")
    return min(int(given), _MAX_SEQ)


async def _events(viewer: Viewer) -> AsyncIterator[bytes]:
    try:
        yield b": connected\n\n"
        while not viewer.closed:
            lines = await viewer.next(BEAT_SECONDS)
            yield b"".join(line.sse for line in lines) if lines else b": beat\n\n"
    except ProctorError as error:
        yield f": {str(error)[:200]}\n\n".encode()  # the browser comes back with its Last-Event-ID
    finally:
        viewer.close()
