"""The seeds' WebSocket, at `/ws` and pathless on its own port: JSON requests in, frames out, every call through the gate.

Invariants: one bad message never closes the connection; answers come in the order of their requests, only `pong` at once;
a running call ends with the connection that asked for it, a background command does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa
from loguru import logger
from pydantic_core import from_json

from proctor.protocol.errors import ProctorError
from proctor.protocol.tools import CallResult
from proctor.server.answers import UNKEEPABLE
from proctor.server.auth import Refusal
from proctor.server.chat_api import SocketChat
from proctor.server.encoding import encode
from proctor.server.frames import (
    REQUESTS,
    Asked,
    Frame,
    RequestError,
    answer_of,
    asked,
    error_frame,
    inputs_of,
    marked,
    pending_frame,
)
from proctor.server.front import HOLD_SECONDS, Front, How
from proctor.server.guard import Message, Receive, Scope, Send, refuse

__all__ = ["MAX_MESSAGE", "MOST_SOCKETS", "NoDoor", "WebSocketDoor"]

MAX_MESSAGE: Final = 16 * 1024 * 1024
MOST_SOCKETS: Final = 2000
MOST_WAITING: Final = 100
MOST_HELD: Final = 2 * MAX_MESSAGE
"""Requests of one connection that wait, and their characters: reading never stops, or nobody saw the client go."""
MOST_FOLLOWED: Final = 16
QUIET_SECONDS: Final = 10.0
"""How long a call runs before a status frame says so unasked: the seeds' clients take the next frame for the answer."""
TELL_SECONDS: Final = 0.25
# As clients send them by the thousand; every other spelling of a ping is read like any message.
_PINGS: Final = frozenset({'{"type":"ping"}', '{"type": "ping"}'})
_LONGEST_PING: Final = 16
_TOO_MUCH: Final = "Too many requests wait on this connection: take their answers before you send more"
_TOO_MANY: Final = Refusal(503, f"{MOST_SOCKETS} connections are open already.", "Close some of them.")


class WebSocketDoor:
    """An ASGI application that speaks the protocol on whatever path it is put."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "websocket":
            upgrade = Refusal(426, "This port speaks WebSocket.", "Connect with ws://, or use the HTTP port.")
            await refuse(scope, send, upgrade)
            return
        await receive()  # websocket.connect
        if self._front.sockets >= MOST_SOCKETS:
            await refuse(scope, send, _TOO_MANY)
            return
        await send({"type": "websocket.accept"})
        self._front.sockets += 1
        try:
            await _Connection(self._front, receive, send).serve()
        finally:
            self._front.sockets -= 1


class NoDoor:
    """What a WebSocket on any other path hears: where they are."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the handshake with a sentence."""
        await receive()  # websocket.connect
        place = str(scope["path"])[:200]
        hint = "Connect to /ws, or to /ws/traces/{trace_id}."
        await refuse(scope, send, Refusal(404, f"There is no WebSocket at {place}.", hint))


class _Progress:
    """The last thing a running call said; written from any thread."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, what: str, _share: float | None) -> None:
        self.text = what or self.text


class _Connection:
    """One client."""

    def __init__(self, front: Front, receive: Receive, send: Send) -> None:
        self._front = front
        self._receive = receive
        self._send = send
        self._inbox: asyncio.Queue[tuple[Asked, int]] | None = None
        self._held = 0
        self._followed = 0
        self._talk = SocketChat(front)

    async def serve(self) -> None:
        """Read until the client goes; what it still waits for ends with it."""
        async with asyncio.TaskGroup() as group:
            children: list[asyncio.Task[None]] = []
            self._group, self._children = group, children
            try:
                while (message := await self._receive())["type"] != "websocket.disconnect":
                    text = message.get("text")
                    if text is not None and len(text) <= _LONGEST_PING and text in _PINGS:
                        await self._pong()
                    else:
                        await self._take(message)
            finally:
                for child in children:
                    child.cancel()

    async def say(self, frame: Frame) -> None:
        """Send one frame; a client that has gone hears nothing, and reading ends by itself."""
        try:
            text = encode(frame).decode()
            await self._send({"type": "websocket.send", "text": text})
        except OSError:
            return

    async def _pong(self) -> None:
        text = f'{{"type":"pong","timestamp":"{datetime.now(UTC).isoformat()}"}}'
        with contextlib.suppress(OSError):
            await self._send({"type": "websocket.send", "text": text})

    async def _take(self, message: Message) -> None:
        """Understand one message; `ping` is answered at once, everything else in its turn."""
        try:
            request = asked(_parsed(message))
        except RequestError as error:
            await self.say(error_frame(str(error)))
        else:
            await self._queue(request, len(message["text"]))

    async def _queue(self, request: Asked, size: int) -> None:
        if request.type == "ping":
            await self.say(marked({"type": "pong", "timestamp": datetime.now(UTC).isoformat()}, request))
            return
        if self._inbox is None:  # most idle connections never need a worker
            self._inbox = asyncio.Queue()
            self._start(self._work(self._inbox))
        if self._inbox.qsize() >= MOST_WAITING or (self._held and self._held + size > MOST_HELD):
            await self.say(error_frame(_TOO_MUCH, request))
            return
        self._held += size
        self._inbox.put_nowait((request, size))

    def _start(self, work: Any) -> None:
        self._children[:] = [child for child in self._children if not child.done()]
        self._children.append(self._group.create_task(work))

    async def _work(self, inbox: asyncio.Queue[tuple[Asked, int]]) -> None:
        while True:
            request, size = await inbox.get()
            self._held -= size
            try:
                frame = await self._answer(request)
            except (RequestError, ProctorError) as error:
                frame = error_frame(str(error), request)
            except (sa.exc.DataError, UnicodeEncodeError, OverflowError):
                frame = error_frame(UNKEEPABLE, request)
            except Exception as error:  # noqa: BLE001 - frame handler: one message's failure is its own
                logger.exception("a {} frame failed", request.type[:40])
                frame = error_frame(
                    f"A defect: {type(error).__name__}. The server's log says where.", request
                )
            await self.say(frame)

    async def _answer(self, request: Asked) -> Frame:
        if request.type == "chat":
            return await self._talk.answer(request, self.say)
        how = REQUESTS.get(request.type)
        name = how.tool if how is not None else request.type
        if name not in self._front.app.registry:
            raise RequestError(f"Unknown message type: {request.type[:100]}")
        if how is not None and how.tool == "execute_command" and request.background:
            name = "start_command"
        tool = self._front.app.registry.find(name)
        inputs = inputs_of(request, tool, how.needs if how else (), how.missing if how else "")
        result = await self._call(request, tool.name, inputs)
        if result.waiting:
            return pending_frame(request, result, request.key, kind="approval_pending")
        if tool.name == "start_command" and result.ok:
            return self._started(request, result)
        return answer_of(request, how, result)

    async def _call(self, request: Asked, tool: str, inputs: dict[str, Any]) -> CallResult:
        """Make the call, and say meanwhile that it runs, or that a person is asked; the same key runs it once later."""
        progress = _Progress()
        how = How(
            workspace=request.workspace,
            trace_id=request.trace_id,
            agent=request.acting,
            profile=request.profile,
            key=request.key,
        )
        telling = self._group.create_task(self._tell(request, tool, progress))
        try:
            result = await self._front.call(tool, inputs, how, progress=progress)
            if result.waiting and request.key is not None:
                await self.say(pending_frame(request, result, request.key, kind="approval_requested"))
                result = await self._front.call(
                    tool, inputs, replace(how, hold_s=HOLD_SECONDS), progress=progress
                )
            return result
        finally:
            telling.cancel()

    async def _tell(self, request: Asked, tool: str, progress: _Progress) -> None:
        await asyncio.sleep(0 if request.progress else QUIET_SECONDS)
        said = f"Executing {tool}..."
        await self.say(marked({"type": "status", "message": said}, request))
        while True:
            await asyncio.sleep(TELL_SECONDS if request.progress else QUIET_SECONDS)
            if progress.text and progress.text != said:
                said = progress.text
                await self.say(marked({"type": "status", "message": said}, request))

    # ── background commands ───────────────────────────────────────────────────────────────────────────────────────

    def _started(self, request: Asked, result: CallResult) -> Frame:
        job = str((result.output or {}).get("job_id", ""))
        if not result.simulated and self._followed < MOST_FOLLOWED:
            self._start(self._follow(request, job, result.trace_id))
        return marked({"type": "command_started", "job_id": job}, request)

    async def _follow(self, request: Asked, job: str, trace_id: str) -> None:
        """Pass on what the trace says of a background command, until its end; trouble is said, the command goes on."""
        self._followed += 1
        try:
            await self._pass_on(request, job, trace_id)
        except ProctorError as error:
            await self.say(error_frame(f"{job} cannot be followed: {error}", request))
        finally:
            self._followed -= 1

    async def _pass_on(self, request: Asked, job: str, trace_id: str) -> None:
        viewer = await self._front.hub.join(trace_id=trace_id, after=0)
        try:
            while lines := await viewer.next():
                for line in lines:
                    event = from_json(line.text)
                    frame = _job_frame(event["event"], event["details"], job)
                    if frame is not None:
                        await self.say(marked(frame, request))
                    if frame is not None and event["event"] == "command_ended":
                        return
        finally:
            viewer.close()


def _parsed(message: Message) -> Any:
    text = message.get("text")
    if text is None:
        raise RequestError("Send JSON as text, not as bytes")
    if len(text) > MAX_MESSAGE:
        raise RequestError(f"The message is longer than {MAX_MESSAGE} characters")
    try:
        return from_json(text)
    except ValueError as error:
        raise RequestError(f"Invalid JSON: {str(error)[:200]}") from None


def _job_frame(event: str, details: dict[str, Any], job: str) -> Frame | None:
    if details.get("job_id") != job:
        return None
    if event == "command_progress":
        return {"type": "command_progress", "job_id": job, "message": details.get("line", "")}
    if event == "command_ended":
        told = {name: details.get(name) for name in ("stdout", "stderr", "exit_code")}
        return {"type": "command_output", "job_id": job, **told, "state": details.get("outcome")}
    return None
