"""From a pipe into a bounded capture, without ever blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable

from proctor.sandbox.capture import Capture, Stream
from proctor.sandbox.spec import Limits

__all__ = ["Pump"]

_PIECE = 1 << 18
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", None)


class Pump:
    """Reads one stream of a tree until its end, or until the tree is gone and nothing is left to read."""

    def __init__(self, name: str, limits: Limits, tell: Callable[[str, str], None] | None) -> None:
        self.name = name
        self.capture = Capture(limits.head_bytes, limits.tail_bytes)
        self._stream = Stream(limits.stream_bytes)
        self._tell = tell
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        if _F_SETPIPE_SZ is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.writer, _F_SETPIPE_SZ, _PIPE_BYTES)
        self._ready = asyncio.Event()
        self._last = False
        self._left = (
            4 * _PIPE_BYTES
        )  # read after the tree is gone, should a stranger hold the pipe and write on

    async def run(self) -> None:
        """Read until the end; a reader that raises stops the run."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._reader, self._ready.set)
        try:
            while not self._drain():
                if self._last:
                    await asyncio.sleep(0)
                    continue
                self._ready.clear()
                await self._ready.wait()
        finally:
            loop.remove_reader(self._reader)
        self._show(b"", final=True)

    def finish(self) -> None:
        """The tree is gone: what is in the pipe now is all there will be, though somebody may hold its end."""
        self._last = True
        self._ready.set()

    def close_writer(self) -> None:
        """Close our copy of the child's end."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Close both ends."""
        self.close_writer()
        os.close(self._reader)

    def _drain(self) -> bool:
        """Take one piece; True when there is no more to come. One piece a turn keeps the loop fair."""
        try:
            data = os.read(self._reader, _PIECE)
        except BlockingIOError:
            return self._last
        if not data:
            return True
        self.capture.feed(data)
        self._show(data)
        self._left -= len(data) if self._last else 0
        return self._left <= 0

    def _show(self, data: bytes, *, final: bool = False) -> None:
        if self._tell is not None and (text := self._stream.text(data, final=final)):
            self._tell(self.name, text)
