"""Messages between the owner and its keeper: a length, JSON, and file descriptors beside the first bytes.

Standard library only. Either side may die at any byte: a cut message is never delivered.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from typing import Any

__all__ = ["MAX_MESSAGE", "OFFLINE", "ONLINE", "PLAIN", "Channel"]

MAX_MESSAGE = 8 << 20  # the kernel's own limit for arguments and environment is below this
# The kinds of keepers: as the host is; apart from it but on its network; apart and without any network.
PLAIN, ONLINE, OFFLINE = "plain", "online", "offline"
_MAX_FDS = 16
_HEAD = struct.Struct("=I")
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Channel:
    """One end of the conversation; reads in whatever pieces the socket gives."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._buffer = bytearray()
        self._fds: list[int] = []

    def send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        """Send one message; blocks when the other side does not read."""
        body = json.dumps(message).encode()
        if len(body) > MAX_MESSAGE:
            raise OSError(7, "command and environment are too long")
        data = _HEAD.pack(len(body)) + body
        sent = socket.send_fds(self.socket, [data], fds) if fds else self.socket.send(data)
        if sent < len(data):
            self.socket.sendall(data[sent:])

    def receive(self) -> list[tuple[dict[str, Any], list[int]]] | None:
        """Read what is there: whole messages (perhaps none yet), or None when the other side is gone."""
        data, ancillary, _flags, _address = self.socket.recvmsg(
            1 << 16, socket.CMSG_SPACE(_MAX_FDS * 4), _CLOEXEC
        )
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                self._fds += list(fds)
                for fd in () if _CLOEXEC else fds:
                    os.set_inheritable(fd, False)
        if not data:
            return None
        self._buffer += data
        return list(self._messages())

    def _messages(self) -> Any:
        while len(self._buffer) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._buffer)
            if len(self._buffer) < _HEAD.size + length:
                return
            message = json.loads(self._buffer[_HEAD.size : _HEAD.size + length])
            del self._buffer[: _HEAD.size + length]
            taken, self._fds = self._fds, []
            yield message, taken

    def close(self) -> None:
        """Close the socket and whatever descriptors nobody took."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        self.socket.close()
