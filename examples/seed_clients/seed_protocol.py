"""What the seeds say about the WebSocket: each answer's frame, and a client's way to ask and to be strict about it."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

from websockets.asyncio.client import ClientConnection

# Every field an answer must have, with its kind.
FRAMES: dict[str, dict[str, type]] = {
    "pong": {"timestamp": str},
    "file_content": {"path": str, "content": str},
    "write_success": {"path": str},
    "directory_listing": {"path": str, "files": list, "count": int},
    "chat_response": {"message": str},
    "architecture_rules": {"rules": list, "count": int},
    "database_schema": {"schema": dict},
    "backup_created": {"backup_path": str},
    "restore_complete": {},
    "command_output": {"stdout": str, "stderr": str, "exit_code": int},
    "error": {"message": str},
}
SECONDS = 120


class WrongFrameError(Exception):
    """A frame, or what it says was done, is not what the protocol says."""


def check(right: bool, found: Any, wanted: str) -> None:
    """Stop at the first thing that is wrong."""
    if not right:
        raise WrongFrameError(f"wanted {wanted}, got {json.dumps(found)[:300]}")


def check_frame(frame: Any, kind: str, **values: Any) -> dict[str, Any]:
    """Hold a frame against its table, and against the values it must have here."""
    check(isinstance(frame, dict) and frame.get("type") == kind, frame, f"a frame of type {kind}")
    for name, sort in FRAMES[kind].items():
        right = isinstance(frame.get(name), sort) and not isinstance(frame.get(name), bool)
        check(right, frame, f"{name} as {sort.__name__}")
    for name, value in values.items():
        check(frame.get(name) == value, frame, f"{name} = {value!r}")
    found: dict[str, Any] = frame
    return found


def check_moment(text: str) -> None:
    """Take only what is a moment in ISO 8601."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise WrongFrameError(f"wanted a moment in ISO 8601, got {text!r}") from None


async def ask(line: ClientConnection, message: Any) -> Any:
    """Send one request and read its answer; status frames may come before it, and must be right too."""
    await line.send(message if isinstance(message, str) else json.dumps(message))
    while True:
        async with asyncio.timeout(SECONDS):
            frame = json.loads(await line.recv())
        if not isinstance(frame, dict) or frame.get("type") != "status":
            return frame
        check(isinstance(frame.get("message"), str), frame, "a status with a message")


def asking(kind: str, **data: Any) -> dict[str, Any]:
    """A request in the seeds' envelope."""
    return {"type": kind, "data": data} if data else {"type": kind}
