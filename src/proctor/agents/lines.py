"""Bytes to lines and to capped tails: pure, so that every cut of a stream gives the same lines.

Lines are split before they are decoded; a half line waits for its rest, an overlong one is cut and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Line", "LineSplitter", "Tail"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end; `truncated` when it was longer than allowed."""

    text: str
    truncated: bool = False


class LineSplitter:
    """Collects chunks and gives complete lines; memory is bounded by the longest line allowed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._overlong = False

    def feed(self, chunk: bytes) -> list[Line]:
        """Take a chunk; give the lines it completes."""
        *complete, rest = chunk.split(b"\n")
        lines = []
        for piece in complete:
            self._keep(piece)
            lines.append(self._take())
        self._keep(rest)
        return lines

    def finish(self) -> list[Line]:
        """Give what is left when the stream has ended without a line end."""
        return [self._take()] if self._size or self._overlong else []

    def _keep(self, piece: bytes) -> None:
        room = self._limit - self._size
        if len(piece) > room:
            self._overlong = True
            piece = piece[:room]
        if piece:
            self._parts.append(piece)
            self._size += len(piece)

    def _take(self) -> Line:
        line = Line(b"".join(self._parts).removesuffix(b"\r").decode(errors="replace"), self._overlong)
        self._parts, self._size, self._overlong = [], 0, False
        return line


class Tail:
    """The first and the last bytes of a stream that nobody needs whole; says how much is missing between."""

    def __init__(self, head: int = 16 * 1024, tail: int = 48 * 1024) -> None:
        self._head_limit = head
        self._tail_limit = tail
        self._head = b""
        self._tail = b""
        self.total = 0

    def feed(self, chunk: bytes) -> None:
        """Take a chunk."""
        self.total += len(chunk)
        room = self._head_limit - len(self._head)
        self._head += chunk[:room]
        self._tail = (self._tail + chunk[room:])[-self._tail_limit :]

    @property
    def text(self) -> str:
        """What was kept, with a line in between when something was left out."""
        missing = self.total - len(self._head) - len(self._tail)
        middle = f"\n… truncated: {missing} bytes left out …\n".encode() if missing else b""
        return (self._head + middle + self._tail).decode(errors="replace")
