"""Output in constant memory: the beginning, the end, and a count of what lay between.

Text is decoded piece by piece; what is not UTF-8 becomes U+FFFD and never an error.
"""

from __future__ import annotations

import codecs

from proctor.sandbox.spec import Output

__all__ = ["Capture", "Stream"]


class Capture:
    """Takes bytes for ever, keeps `head` bytes of the beginning and `tail` bytes of the end."""

    def __init__(self, head: int, tail: int) -> None:
        self._head_size, self._tail_size = head, tail
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take one piece."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail += data[-self._tail_size :] if self._tail_size else b""
        # Cut only when it has doubled: cutting at every piece would copy the tail each time.
        if len(self._tail) > 2 * self._tail_size:
            del self._tail[: -self._tail_size]

    def output(self) -> Output:
        """Decode what was kept, cut at whole characters where the middle is missing."""
        tail = bytes(self._tail[-self._tail_size :]) if self._tail_size else b""
        dropped = self.total - len(self._head) - len(tail)
        if dropped == 0:
            return Output((bytes(self._head) + tail).decode("utf-8", "replace"), "", self.total, 0)
        head = bytes(self._head)
        whole_head, whole_tail = head[: _whole_end(head)], tail[_whole_start(tail) :]
        dropped += len(head) - len(whole_head) + len(tail) - len(whole_tail)
        return Output(
            whole_head.decode("utf-8", "replace"), whole_tail.decode("utf-8", "replace"), self.total, dropped
        )


def _whole_end(data: bytes) -> int:
    """Where to cut so that no character is split at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-8:])
    return len(data) - len(decoder.getstate()[0])


def _whole_start(data: bytes) -> int:
    """Skip at most three continuation bytes of a character whose beginning is missing."""
    nowhere = len(data) if len(data) < 4 else 0  # four in a row are no character at all
    return next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), nowhere)


class Stream:
    """Decodes for a live reader, up to a cap; then says once that it has stopped."""

    def __init__(self, cap: int) -> None:
        self._left = cap
        self._cap = cap
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, data: bytes, *, final: bool = False) -> str:
        """Give the text to show for these bytes; empty when there is none (yet, or any more)."""
        if self._left <= 0:
            return ""
        shown = data[: self._left]
        self._left -= len(shown)
        if self._left > 0:
            return self._decoder.decode(shown, final)
        return f"{self._decoder.decode(shown, True)}\n[… truncated: more than {self._cap} bytes are not shown live …]\n"
