"""The outermost layer of every server: lets in by `Access`, cuts bodies that are too large, counts who is there. Plain ASGI.

What is refused is answered as `{error, hint}`, also to a WebSocket's handshake. No answer may be framed, sniffed or read by
a page from elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from starlette.exceptions import HTTPException

from proctor.protocol.errors import ProctorError
from proctor.server.auth import Access, Refusal, hide_token
from proctor.server.encoding import encode

__all__ = ["MAX_BODY", "ASGIApp", "Guard", "Message", "Receive", "Scope", "Send", "Traffic", "refuse"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY: Final = 16 * 1024 * 1024
_CLOSED: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
)
_POLICY: Final = b"content-security-policy"
_NO_PAGE: Final = (_POLICY, b"default-src 'none'; frame-ancestors 'none'")


@dataclass(slots=True)
class Traffic:
    """Who is being served."""

    open: int = 0
    last: float = 0.0

    def quiet_for(self) -> float:
        """Seconds since the last one went; 0 while there is one."""
        return 0.0 if self.open else time.monotonic() - self.last


class Guard:
    """Stands before an application."""

    def __init__(self, app: ASGIApp, access: Access, traffic: Traffic | None = None) -> None:
        self._app = app
        self._access = access
        self._traffic = traffic or Traffic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one connection in, or say why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            hide_token(scope)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refuse(scope, send, refusal)
            return
        self._traffic.open += 1
        try:
            if scope["type"] == "http":
                await self._limited(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        finally:
            self._traffic.open -= 1
            self._traffic.last = time.monotonic()

    def _refusal(self, scope: Scope) -> Refusal | None:
        try:
            return self._access.refuse(scope)
        except (ProctorError, OSError) as error:
            # A token file that cannot be read lets nobody in.
            hint = f"Mend {self._access.token_file}: a file of yours that only you can read."
            return Refusal(403, f"Nobody can be let in: {error}", hint)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        announced = [value for name, value in scope["headers"] if name == b"content-length"]
        if announced and announced[0].isdigit() and int(announced[0]) > MAX_BODY:
            await refuse(scope, send, _TOO_LARGE)
            return
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > MAX_BODY:
                raise HTTPException(413, _TOO_LARGE.error)  # the application answers it in its own way
            return message

        await self._app(scope, counted, _closing(send))


def _closing(send: Send) -> Send:
    """Add to every answer what keeps other pages from using it; a page of ours brings its own policy."""

    async def closed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *_CLOSED]
            if not any(name == _POLICY for name, _ in headers):
                headers.append(_NO_PAGE)
            message["headers"] = headers
        await send(message)

    return closed


_TOO_LARGE: Final = Refusal(
    413, f"The body has more than {MAX_BODY} bytes.", "Send less, or write the file in parts with a command."
)


async def refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    """Answer a refusal in JSON; a WebSocket gets it as the answer to its handshake."""
    body = encode(refusal.body())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="proctor"'))
    if scope["type"] == "http":
        send = _closing(send)
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.error[:120]})
        return
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
