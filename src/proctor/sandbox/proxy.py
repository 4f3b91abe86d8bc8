"""The one way out for a command whose network is a list of hosts: an HTTP proxy that we run and it cannot avoid.

It listens inside the command's own network, through a socket the keeper made there; the command has no other road. Names
are resolved here, every address is checked, and the connection goes to the very address that was checked, so that a name
which changes its mind (DNS rebinding) gains nothing. Every host that was wanted is remembered, allowed or refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from proctor.sandbox.hosts import HostRules, Target
from proctor.sandbox.http_head import BadRequestError, Request, client_hello_name, parse_request
from proctor.sandbox.spec import Reach

__all__ = ["PROXY_PORT", "HostProxy", "Resolver", "proxy_environment", "system_resolver"]

PROXY_PORT: Final = 17813  # inside the command's own network nobody else has taken it before
Resolver = Callable[[str, int], Awaitable[list[str]]]
_HEAD: Final = 32 << 10
_PIECE: Final = 64 << 10
_HEAD_SECONDS: Final = 20.0
_RESOLVE_SECONDS: Final = 15.0
_CONNECT_SECONDS: Final = 20.0
_IDLE_SECONDS: Final = 300.0
_MOST: Final = 128  # connections at once
_REMEMBERED: Final = 100  # different hosts in one result
_HANDSHAKE: Final = b"\x16"
_TROUBLE: Final = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)


async def system_resolver(host: str, port: int) -> list[str]:
    """Ask the system for the addresses of a name."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def proxy_environment() -> dict[str, str]:
    """The variables by which programs find the proxy; their own loopback they reach themselves."""
    address, own = f"http://127.0.0.1:{PROXY_PORT}", "localhost,127.0.0.1,::1"
    named = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": own}
    return {**named, **{name.lower(): value for name, value in named.items()}, "NODE_USE_ENV_PROXY": "1"}


class _RefusedError(Exception):
    """This host is not to be reached; carries what the client is told."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class HostProxy:
    """Serves one command and remembers where it wanted to go."""

    def __init__(self, hosts: Iterable[str], *, resolve: Resolver | None = None) -> None:
        self._rules = HostRules(hosts)
        self._resolve = resolve or system_resolver
        self._wanted: dict[tuple[str, bool, str], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def reached(self) -> tuple[Reach, ...]:
        """Every host that was wanted, in the order of the first wish."""
        return tuple(Reach(host, ok, why, count) for (host, ok, why), count in self._wanted.items())

    @contextlib.asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve this socket while the body runs; every connection ends with it."""
        listener.setblocking(False)
        async with asyncio.TaskGroup() as group:
            door = group.create_task(self._accept(listener, group))
            try:
                yield
            finally:
                door.cancel()
                for task in self._tasks:
                    task.cancel()
        await asyncio.sleep(0)  # what was closed is so once the loop has turned

    async def _accept(self, listener: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(0.05)  # out of descriptors: the next one may find some
                continue
            if len(self._tasks) >= _MOST:
                client.close()
                continue
            task = group.create_task(self._client(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _client(self, client: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=client, limit=_HEAD)
        except OSError:
            client.close()  # reset before we could speak: no reason to end the others
            return
        try:
            await self._serve(reader, writer)
        except _TROUBLE:
            return  # one side is gone, or talks nonsense: this connection is over
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                data = await reader.readuntil(b"\r\n\r\n")
            request = parse_request(data)
            upstream = await self._connect(request.target)
        except asyncio.LimitOverrunError:
            await _answer(writer, 431, "the head of the request is too long")
        except (BadRequestError, _RefusedError) as problem:
            await _answer(writer, problem.status, problem.text)
        else:
            try:
                await self._relay(request, (reader, writer), upstream)
            finally:
                upstream[1].close()

    async def _connect(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address of the host that was checked, and to no other."""
        why = self._rules.refusal(target)
        if why:
            raise self._refused(target, why)
        for address in await self._addresses(target):
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    made = await asyncio.open_connection(address, target.port, limit=_PIECE)
            except OSError:
                continue
            self._remember(target, "", allowed=True)
            return made
        self._remember(target, "could not be connected", allowed=True)
        raise _RefusedError(502, f"{target.shown} could not be connected")

    async def _addresses(self, target: Target) -> list[str]:
        if target.address is not None:
            return [target.host]
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                found = await self._resolve(target.host, target.port)
        except OSError:
            self._remember(target, "the name does not resolve", allowed=True)
            raise _RefusedError(502, f"{target.host} does not resolve") from None
        reasons = {address: self._rules.address_refusal(target, address) for address in found}
        good = [address for address, why in reasons.items() if not why]
        if not good:
            raise self._refused(target, next(iter(reasons.values()), "the name has no address"))
        return good

    def _refused(self, target: Target, why: str) -> _RefusedError:
        self._remember(target, why, allowed=False)
        return _RefusedError(403, f"Proctor refused {target.shown}: {why}")

    def _remember(self, target: Target, why: str, *, allowed: bool) -> None:
        key = (target.shown, allowed, why)
        if key not in self._wanted and len(self._wanted) >= _REMEMBERED:
            key = ("others", allowed, "more hosts than are remembered one by one")
        self._wanted[key] = self._wanted.get(key, 0) + 1

    async def _relay(self, request: Request, client: _Pair, upstream: _Pair) -> None:
        async with asyncio.TaskGroup() as group:
            if request.tunnel:
                client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                sending = group.create_task(self._through(request.target, client[0], upstream[1]))
            else:
                upstream[1].write(request.head)
                sending = group.create_task(_quietly(_copy(client[0], upstream[1], request.body)))
            await _quietly(_copy(upstream[0], client[1], None))
            sending.cancel()  # who has the whole answer need not be heard any more

    async def _through(
        self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass a tunnel on; one that names another server inside TLS would reach a neighbour of the allowed one."""
        try:
            first, hello = await _first_words(reader)
            why = _neighbour(target, hello)
            if why:
                self._remember(target, why, allowed=False)
                writer.transport.abort()
                return
            writer.write(first)
            await _copy(reader, writer, None)
        except _TROUBLE:
            writer.transport.abort()


_Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _neighbour(target: Target, hello: bytes) -> str:
    """Why a tunnel's TLS is not for its host; "" when it is, names nobody, or is no TLS."""
    if not hello or target.address is not None:
        return ""
    try:
        name = client_hello_name(hello)
    except ValueError:
        return "TLS inside cannot be read"
    return "" if name in {None, target.host} else f"TLS inside asks for {(name or '')[:200]}"


async def _first_words(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """What a client says first, as it came; and when that is TLS, its first message, put together from its records."""
    async with asyncio.timeout(_IDLE_SECONDS):
        raw = await reader.read(1)
        if raw != _HANDSHAKE:
            return raw, b""
        hello = b""
        while len(hello) < 4 or len(hello) < 4 + int.from_bytes(hello[1:4], "big"):
            head = await reader.readexactly(4 if len(raw) == 1 else 5)
            record = await reader.readexactly(int.from_bytes(head[-2:], "big"))
            raw, hello = raw + head + record, hello + record
            if len(raw) > _HEAD or not record:
                raise ValueError("no hello is so long")
        return raw, hello


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int | None) -> None:
    """Copy so many bytes (None: until the end), as fast as the slower side takes them."""
    left = length
    while left is None or left > 0:
        async with asyncio.timeout(_IDLE_SECONDS):
            data = await reader.read(_PIECE if left is None else min(left, _PIECE))
            if not data:
                break
            writer.write(data)
            await writer.drain()
        left = None if left is None else left - len(data)
    if left is None and writer.can_write_eof():
        writer.write_eof()


async def _quietly(work: Awaitable[None]) -> None:
    with contextlib.suppress(*_TROUBLE):
        await work


async def _answer(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = f"{text}.\n".encode("utf-8", "replace")
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\nX-Proctor-Refused: 1\r\n\r\n" + body)
    async with asyncio.timeout(_HEAD_SECONDS):
        await writer.drain()
