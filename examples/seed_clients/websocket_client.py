"""A client of the kind seed 000 describes: it sends each request over the WebSocket and checks the frame that comes back.

    proctor serve                                   # in the workspace
    python examples/seed_clients/websocket_client.py --token-file ~/.local/state/proctor/token

Ends with 0 when every frame was right, with 1 at the first that was not. Against `proctor serve --auth none` leave the
token out. It writes one small file into the workspace and removes it again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

NAME = "seed_client_probe.txt"
TEXT = "written by the seeds' client: grüße\n"


class WrongFrameError(Exception):
    """A frame that is not what the protocol says."""


def check(right: bool, frame: Any, wanted: str) -> None:
    """Stop at the first wrong frame."""
    if not right:
        raise WrongFrameError(f"wanted {wanted}, got {json.dumps(frame)[:300]}")


async def ask(line: ClientConnection, message: Any) -> dict[str, Any]:
    """Send one request and read its answer; status frames may come before it."""
    await line.send(message if isinstance(message, str) else json.dumps(message))
    while True:
        async with asyncio.timeout(60):
            frame: dict[str, Any] = json.loads(await line.recv())
        if frame.get("type") != "status":
            return frame


async def files(line: ClientConnection) -> None:
    """Write, read and list."""
    frame = await ask(line, {"type": "write_file", "data": {"path": NAME, "content": TEXT}})
    check(frame == {"type": "write_success", "path": NAME}, frame, "write_success")
    frame = await ask(line, {"type": "read_file", "data": {"path": NAME}})
    check(frame == {"type": "file_content", "path": NAME, "content": TEXT}, frame, "file_content")
    frame = await ask(
        line, {"type": "list_directory", "data": {"path": ".", "recursive": True, "max_depth": 5}}
    )
    check(frame.get("type") == "directory_listing", frame, "directory_listing")
    check(frame.get("count") == len(frame["files"]), frame, "count = number of files")
    found = [one for one in frame["files"] if one["path"] == NAME]
    check(len(found) == 1 and found[0]["type"] == "file", found, f"an entry for {NAME}")
    check(found[0]["size"] == len(TEXT.encode()), found, "its size in bytes")


async def knowledge(line: ClientConnection) -> None:
    """Rules and schema."""
    frame = await ask(line, {"type": "get_architecture"})
    check(frame.get("type") == "architecture_rules", frame, "architecture_rules")
    check(
        isinstance(frame["rules"], list) and frame["count"] == len(frame["rules"]), frame, "rules and count"
    )
    frame = await ask(line, {"type": "query_schema", "data": {"table_name": "task_queue"}})
    check(
        frame.get("type") == "database_schema" and isinstance(frame["schema"], dict), frame, "database_schema"
    )


async def commands(line: ClientConnection) -> None:
    """A command that works, one that fails, and the end of our own file."""
    frame = await ask(line, {"type": "execute_command", "data": {"command": f"cat {NAME}", "cwd": "."}})
    check(frame.get("type") == "command_output", frame, "command_output")
    check((frame["stdout"], frame["exit_code"]) == (TEXT, 0), frame, "the file's text and exit code 0")
    frame = await ask(line, {"type": "execute_command", "data": {"command": "exit 3"}})
    check(frame.get("exit_code") == 3, frame, "exit code 3")
    frame = await ask(line, {"type": "execute_command", "data": {"command": f"rm {NAME}"}})
    check(frame.get("exit_code") == 0, frame, "the file removed")


async def mistakes(line: ClientConnection) -> None:
    """Each mistake has its sentence, and the connection lives."""
    for message, text in (
        ({"type": "read_file", "data": {"path": NAME}}, f"File not found: {NAME}"),
        ({"type": "read_file"}, "Missing file path"),
        ({"type": "write_file", "data": {"path": NAME}}, "Missing path or content"),
        ({"type": "execute_command"}, "Missing command"),
        ({"type": "dance"}, "Unknown message type: dance"),
    ):
        frame = await ask(line, message)
        check(frame == {"type": "error", "message": text}, frame, text)
    frame = await ask(line, "{not json")
    check(
        frame.get("type") == "error" and frame["message"].startswith("Invalid JSON: "), frame, "Invalid JSON"
    )
    frame = await ask(line, {"type": "chat", "message": "hello"})
    check(frame.get("type") in {"chat_response", "error"}, frame, "chat_response, or what is missing for it")


async def ping(line: ClientConnection) -> None:
    """The line lives."""
    frame = await ask(line, {"type": "ping"})
    check(
        frame.get("type") == "pong" and isinstance(frame.get("timestamp"), str),
        frame,
        "pong with a timestamp",
    )


async def run(url: str, token: str | None) -> None:
    """All of it over one connection."""
    headers = {"X-SOLACE-API-KEY": token} if token else {}
    async with connect(url, additional_headers=headers, proxy=None) as line:
        for part in (ping, files, knowledge, commands, mistakes, ping):
            await part(line)
            print(f"ok  {part.__name__}: {(part.__doc__ or '').strip()}")


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="ws://localhost:8765")
    parser.add_argument("--token-file", type=Path)
    args = parser.parse_args()
    try:
        token = args.token_file.read_text().strip() if args.token_file else None
        asyncio.run(run(args.url, token))
    except Exception as error:
        print(f"FAILED  {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print("All frames were right.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
