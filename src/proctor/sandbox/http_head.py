"""The head of a proxy request, read strictly: what two readers could understand differently is refused. Pure.

Only `CONNECT host:port` and `METHOD http://host/path` are understood. The forwarded head is built anew: the host is the
one that was checked, the connection ends after one answer, and nothing but the counted body follows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proctor.sandbox.hosts import Target, parse_target

__all__ = ["BadRequestError", "Request", "client_hello_name", "parse_request"]

_LINE: Final = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]{1,8192}) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}):[ \t]*([\x20-\x7e\x80-\xff\t]*)")
_URL: Final = re.compile(r"http://([^/?#]+)(/[^#]*|\?[^#]*)?")
_DIGITS: Final = re.compile(rb"[0-9]{1,15}")
# Words between one client and one proxy; what follows them upstream is ours to say.
_HOP: Final = frozenset(
    b"connection proxy-connection keep-alive proxy-authorization proxy-authenticate te trailer upgrade host".split()
)


class BadRequestError(ValueError):
    """What was sent is no request that can be passed on; carries the status and the words of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass(frozen=True, slots=True)
class Request:
    """One request that was understood: where to, and (plain HTTP) the head and the length of the body to pass on."""

    target: Target
    tunnel: bool
    head: bytes = b""
    body: int = 0


def parse_request(data: bytes) -> Request:
    """Read a head up to and with its empty line."""
    lines = data.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise BadRequestError(400, "a line ends without CR LF")
    first = _LINE.fullmatch(lines[0])
    if first is None:
        raise BadRequestError(400, "the first line is no HTTP/1 request")
    headers = [_header(line) for line in lines[1:]]
    method, where = first[1], first[2].decode("ascii")
    if method == b"CONNECT":
        target = parse_target(where)
        if target is None:
            raise BadRequestError(400, "CONNECT needs a host and a port")
        return Request(target, tunnel=True)
    return _plain(method, where, headers)


def _header(line: bytes) -> tuple[bytes, bytes]:
    found = _HEADER.fullmatch(line)
    if found is None:
        raise BadRequestError(400, "a header is malformed")
    return found[1], found[2].strip()


def _plain(method: bytes, where: str, headers: list[tuple[bytes, bytes]]) -> Request:
    url = _URL.fullmatch(where)
    target = parse_target(url[1], 80) if url is not None else None
    if url is None or target is None:
        raise BadRequestError(400, "only http://host/… and CONNECT are understood")
    length = _length(headers)
    path = url[2] or "/"
    path = path if path.startswith("/") else f"/{path}"
    host = target.shown.removesuffix(":80").encode()
    kept = [b"%s: %s" % pair for pair in headers if pair[0].lower() not in _HOP]
    first = b"%s %s HTTP/1.1" % (method, path.encode("ascii"))
    head = b"\r\n".join([first, b"Host: " + host, b"Connection: close", *kept, b"", b""])
    return Request(target, tunnel=False, head=head, body=length)


def _length(headers: list[tuple[bytes, bytes]]) -> int:
    """The body's length; only a counted one can be passed on without doubt about its end."""
    names = [name.lower() for name, _ in headers]
    if b"transfer-encoding" in names:
        raise BadRequestError(411, "a body needs a Content-Length here")
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    if len(lengths) > 1 or any(_DIGITS.fullmatch(value) is None for value in lengths):
        raise BadRequestError(400, "the length of the body is ambiguous")
    return int(lengths[0]) if lengths else 0


def client_hello_name(hello: bytes) -> str | None:
    """The server name in a TLS ClientHello (the handshake message, without records); None when it has none.

    Raises ValueError when it cannot be read to its end: then nobody knows whom it asks for.
    """
    reader = _Reader(hello)
    reader.skip(4 + 2 + 32)  # kind and length, version, random
    for size in (1, 2, 1):  # session, ciphers, compressions
        reader.skip(reader.number(size))
    if reader.at_end():
        return None
    extensions = _Reader(reader.take(reader.number(2)))
    while not extensions.at_end():
        kind, body = extensions.number(2), _Reader(extensions.take(extensions.number(2)))
        if kind == 0:
            body.skip(2 + 1)  # length of the list, kind of the name
            return body.take(body.number(2)).decode("ascii").lower().removesuffix(".")
    return None


class _Reader:
    """Reads numbers and pieces one after the other; raises ValueError at the end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, size: int) -> bytes:
        piece = self._data[self._place : self._place + size]
        if len(piece) < size:
            raise ValueError("cut short")
        self._place += size
        return piece

    def skip(self, size: int) -> None:
        self.take(size)

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def at_end(self) -> bool:
        return self._place >= len(self._data)
