"""A client of the kind seed 000 describes: it sends each request over the WebSocket and checks the frame that comes back.

    proctor serve                                   # in the workspace
    python examples/seed_clients/websocket_client.py --token-file ~/.local/state/proctor/token

Ends with 0 when every frame was right, with 1 at the first that was not. Against `proctor serve --auth none` leave the
token out. It writes one small file into the workspace and removes it again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from seed_protocol import ask, asking, check, check_frame, check_moment  # type: ignore[import-not-found]  # it lies beside this script
from websockets.asyncio.client import ClientConnection, connect

NAME = "seed_client_probe.txt"
TEXT = "written by the seeds' client: grüße\n"


async def ping(line: ClientConnection) -> None:
    """The line lives."""
    check_moment(check_frame(await ask(line, asking("ping")), "pong")["timestamp"])


async def files(line: ClientConnection) -> None:
    """Write, read and list."""
    frame = await ask(line, asking("write_file", path=NAME, content=TEXT))
    check_frame(frame, "write_success", path=NAME)
    check_frame(await ask(line, asking("read_file", path=NAME)), "file_content", path=NAME, content=TEXT)
    frame = await ask(line, asking("list_directory", path=".", recursive=True, max_depth=5))
    listed = check_frame(frame, "directory_listing", path=".", count=len(frame.get("files") or ()))["files"]
    found = [one for one in listed if isinstance(one, dict) and one.get("path") == NAME]
    check(len(found) == 1 and found[0].get("type") == "file", found, f"an entry for {NAME}")
    check(found[0].get("size") == len(TEXT.encode()), found, "its size in bytes")
    check_moment(str(found[0].get("modified")))


async def knowledge(line: ClientConnection) -> None:
    """Rules and schema."""
    frame = await ask(line, asking("get_architecture"))
    rules = check_frame(frame, "architecture_rules", count=len(frame.get("rules") or ()))["rules"]
    check(
        all(isinstance(one.get("feature_type"), str) for one in rules), rules, "a feature type in each rule"
    )
    kinds = {one["feature_type"] for one in rules}
    check(len(kinds) > 1, sorted(kinds), "several rules")
    wanted = min(kinds)
    frame = await ask(line, asking("get_architecture", feature_type=wanted))
    rules = check_frame(frame, "architecture_rules", count=len(frame.get("rules") or ()))["rules"]
    check({one["feature_type"] for one in rules} == {wanted}, rules, f"only {wanted}")
    frame = check_frame(await ask(line, asking("query_schema", table_name="task_queue")), "database_schema")
    check("assigned_to_agent" in str(frame["schema"]), frame, "the columns of task_queue")


async def commands(line: ClientConnection) -> None:
    """A command that works, one that fails, and the end of our own file."""
    frame = await ask(line, asking("execute_command", command=f"cat {NAME}", cwd="."))
    check_frame(frame, "command_output", stdout=TEXT, stderr="", exit_code=0)
    frame = await ask(line, asking("execute_command", command="echo no >&2; exit 3"))
    check_frame(frame, "command_output", stdout="", stderr="no\n", exit_code=3)
    frame = await ask(line, asking("execute_command", command=f"rm {NAME}"))
    check_frame(frame, "command_output", stdout="", stderr="", exit_code=0)


async def mistakes(line: ClientConnection) -> None:
    """Each mistake has its sentence, and the connection lives."""
    for message, text in (
        (asking("read_file", path=NAME), f"File not found: {NAME}"),
        (asking("read_file"), "Missing file path"),
        (asking("write_file", path=NAME), "Missing path or content"),
        (asking("create_backup"), "Missing workspace_path"),
        (asking("restore_backup"), "Missing backup_path or workspace_path"),
        (asking("execute_command"), "Missing command"),
        (asking("dance"), "Unknown message type: dance"),
    ):
        check_frame(await ask(line, message), "error", message=text)
    frame = check_frame(await ask(line, "{not json"), "error")
    check(frame["message"].startswith("Invalid JSON: "), frame, "Invalid JSON")


async def chat(line: ClientConnection) -> None:
    """The message beside the type, as some clients send it: an answer, or what is missing for one."""
    frame = await ask(line, {"type": "chat", "message": "hello"})
    kind = "error" if isinstance(frame, dict) and frame.get("type") == "error" else "chat_response"
    check(bool(check_frame(frame, kind)["message"].strip()), frame, "words")


async def run(url: str, token: str | None) -> None:
    """All of it over one connection."""
    headers = {"X-SOLACE-API-KEY": token} if token else {}
    async with connect(url, additional_headers=headers, proxy=None) as line:
        for part in (ping, files, knowledge, commands, mistakes, chat, ping):
            await part(line)
            print(f"ok  {part.__name__}: {(part.__doc__ or '').strip()}")


def main(words: Sequence[str] | None = None) -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="ws://localhost:8765")
    parser.add_argument("--token-file", type=Path)
    args = parser.parse_args(words)
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
