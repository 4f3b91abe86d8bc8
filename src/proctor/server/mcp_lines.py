"""Standard input of an MCP server, line by line: bounded, ended at once when we are told to go, and nobody else's."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Final

from pydantic_core import from_json

__all__ = ["MAX_LINE", "Lines"]

MAX_LINE: Final = 16 * 1024 * 1024
_CHUNK: Final = 1 << 18
_TOO_LONG: Final = "a line that was too long"


class Lines:
    """Standard input line by line, without a thread that nothing could end; a line that is too long counts as rubbish."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._rest = b""
        self._skips = False
        self._first = True

    @classmethod
    async def of_stdin(cls) -> Lines:
        """Take standard input for ourselves: what we start reads nothing from it."""
        reader = asyncio.StreamReader()
        own = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.close(nothing)
        kind = os.fstat(own).st_mode
        if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(own):
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(own, "rb", 0)
            )
        else:  # a file, or nothing at all: it is there at once, and no loop can wait for it
            reader.feed_data(os.read(own, MAX_LINE))
            reader.feed_eof()
            os.close(own)
        return cls(reader)

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        while b"\n" not in self._rest:
            chunk = await self._reader.read(_CHUNK)
            if not chunk:
                raise StopAsyncIteration  # half a line is no message
            self._rest += chunk
            if len(self._rest) > MAX_LINE and b"\n" not in self._rest:
                self._rest, self._skips = b"", True
        if self._first:
            self._first, self._rest = False, _without_probe(self._rest)
        line, _, self._rest = self._rest.partition(b"\n")
        long, self._skips = self._skips or len(line) > MAX_LINE, False
        return _TOO_LONG if long else line.decode("utf-8", "replace")


def _without_probe(sent: bytes) -> bytes:
    """What a client sent before we listened, without a question about our era that it has given up on.

    It has when the handshake of the older era stands right behind it; answering the question would settle on the newer.
    """
    first, _, rest = sent.partition(b"\n")
    second, ended, _ = rest.partition(b"\n")
    return rest if ended and _method(first) == "server/discover" and _method(second) == "initialize" else sent


def _method(line: bytes) -> str:
    try:
        found = from_json(line)
    except ValueError:
        return ""
    return str(found.get("method", "")) if isinstance(found, dict) else ""
