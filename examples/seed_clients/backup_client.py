"""A client of the kind seed 001 describes: backup, commands and restore over the WebSocket. The restore really restores.

    proctor serve                                   # in the workspace
    python examples/seed_clients/backup_client.py WORKSPACE --token-file ~/.local/state/proctor/token

The seed's combined workflow: back up, change a file, run a test that fails, restore, and see that everything is as it was.
Ends with 0 when every frame and every byte was right, with 1 otherwise. The seed left its fourth test out "for safety";
here a restore saves the present state first, so it is run.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

PROBE = "backup_client_probe.py"
GOOD, BAD = "VALUE = 1\n", "VALUE = 2  # a change that breaks the test\n"


class WrongError(Exception):
    """A frame or a file that is not as it must be."""


def check(right: bool, found: Any, wanted: str) -> None:
    """Stop at the first thing that is wrong."""
    if not right:
        raise WrongError(f"wanted {wanted}, got {json.dumps(found)[:300]}")


def picture(workspace: Path) -> dict[str, str]:
    """Every file of the workspace by its hash, version control included."""
    files = sorted(path for path in workspace.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(workspace)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


async def ask(line: ClientConnection, kind: str, **data: Any) -> dict[str, Any]:
    """Send one request and read its answer; status frames may come before it."""
    await line.send(json.dumps({"type": kind, "data": data}))
    while True:
        async with asyncio.timeout(120):
            frame: dict[str, Any] = json.loads(await line.recv())
        if frame.get("type") != "status":
            return frame


async def backup(line: ClientConnection, workspace: Path) -> str:
    """TEST 1: create a backup."""
    frame = await ask(line, "create_backup", workspace_path=str(workspace))
    check(frame.get("type") == "backup_created", frame, "backup_created")
    path = str(frame["backup_path"])
    check(re.search(r"_\d{8}_\d{6}(_\d+)?$", path) is not None, path, "<base>/<workspace>_<YYYYMMDD_HHMMSS>")
    check(Path(path).name.startswith(workspace.name), path, f"a name that begins with {workspace.name}")
    return path


async def commands(line: ClientConnection, workspace: Path) -> None:
    """TESTS 2 and 3: count and list the Python files."""
    frame = await ask(line, "execute_command", command="ls *.py | wc -l", cwd=str(workspace))
    check(frame.get("type") == "command_output" and frame["exit_code"] == 0, frame, "command_output")
    check(int(frame["stdout"]) == len(list(workspace.glob("*.py"))), frame, "the number of Python files")
    frame = await ask(line, "execute_command", command="ls *.py", cwd=str(workspace))
    check(PROBE in frame["stdout"].split(), frame, f"{PROBE} in the list")


async def workflow(line: ClientConnection, workspace: Path) -> None:
    """TEST 4: back up, modify, test, restore because the test fails."""
    before = picture(workspace)
    saved = await backup(line, workspace)
    frame = await ask(line, "write_file", path=PROBE, content=BAD)
    check(frame == {"type": "write_success", "path": PROBE}, frame, "write_success")
    frame = await ask(line, "write_file", path="left_over.txt", content="rubbish")
    check(frame["type"] == "write_success", frame, "write_success")
    frame = await ask(line, "execute_command", command=f"grep -q 'VALUE = 1' {PROBE}", cwd=str(workspace))
    check(frame.get("exit_code") == 1, frame, "the test to fail")
    frame = await ask(line, "restore_backup", backup_path=saved, workspace_path=str(workspace))
    check(frame == {"type": "restore_complete"}, frame, "restore_complete")
    check(picture(workspace) == before, sorted(picture(workspace)), "every file as it was, and nothing else")
    frame = await ask(line, "execute_command", command=f"grep -q 'VALUE = 1' {PROBE}", cwd=str(workspace))
    check(frame.get("exit_code") == 0, frame, "the test to pass")


async def mistakes(line: ClientConnection, workspace: Path) -> None:
    """What is no backup is not restored, and nothing is lost by trying."""
    before = picture(workspace)
    for path in ("/", str(workspace), "no_such_20251017_000000"):
        frame = await ask(line, "restore_backup", backup_path=path, workspace_path=str(workspace))
        check(frame.get("type") == "error", frame, "an error")
    frame = await ask(line, "create_backup")
    check(frame == {"type": "error", "message": "Missing workspace_path"}, frame, "Missing workspace_path")
    check(picture(workspace) == before, sorted(picture(workspace)), "every file as it was")


async def run(url: str, token: str | None, workspace: Path) -> None:
    """All tests over one connection; the probe file is ours and goes again."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    probe = workspace / PROBE
    probe.write_text(GOOD)
    try:
        async with connect(url, additional_headers=headers, proxy=None) as line:
            for part in (backup, commands, workflow, mistakes):
                await part(line, workspace)
                print(f"ok  {(part.__doc__ or '').strip()}")
    finally:
        probe.unlink(missing_ok=True)


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--url", default="ws://localhost:8765")
    parser.add_argument("--token-file", type=Path)
    args = parser.parse_args()
    try:
        token = args.token_file.read_text().strip() if args.token_file else None
        asyncio.run(run(args.url, token, args.workspace.resolve()))
    except Exception as error:
        print(f"FAILED  {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print("All frames and all files were right.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
