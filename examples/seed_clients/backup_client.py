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
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from seed_protocol import ask, asking, check, check_frame  # type: ignore[import-not-found]  # it lies beside this script
from websockets.asyncio.client import ClientConnection, connect

PROBE = "backup_client_probe.py"
GOOD, BAD = "VALUE = 1\n", "VALUE = 2  # a change that breaks the test\n"


def picture(workspace: Path) -> dict[str, str]:
    """Everything in the workspace, version control included: directories, links, modes and every file by its hash."""
    found = {}
    for path in sorted(workspace.rglob("*")):
        mode = oct(path.lstat().st_mode)
        if path.is_symlink():
            what = f"link {os.readlink(path)}"  # noqa: PTH115 - the text of the link, unresolved
        else:
            what = "directory" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(workspace))] = f"{mode} {what}"
    return found


async def backup(line: ClientConnection, workspace: Path) -> str:
    """TEST 1: create a backup."""
    frame = check_frame(
        await ask(line, asking("create_backup", workspace_path=str(workspace))), "backup_created"
    )
    path = str(frame["backup_path"])
    check(re.search(r"_\d{8}_\d{6}(_\d+)?$", path) is not None, path, "<base>/<workspace>_<YYYYMMDD_HHMMSS>")
    check(Path(path).name.startswith(workspace.name), path, f"a name that begins with {workspace.name}")
    return path


async def commands(line: ClientConnection, workspace: Path) -> None:
    """TESTS 2 and 3: count and list the Python files."""
    here = sorted(path.name for path in workspace.glob("*.py"))
    frame = await ask(line, asking("execute_command", command="ls *.py | wc -l", cwd=str(workspace)))
    count = check_frame(frame, "command_output", stderr="", exit_code=0)["stdout"]
    check(count.strip() == str(len(here)), frame, "the number of Python files")
    frame = await ask(line, asking("execute_command", command="ls *.py", cwd=str(workspace)))
    listed = check_frame(frame, "command_output", stderr="", exit_code=0)["stdout"]
    check(listed.splitlines() == here, frame, f"the list {here}")


async def workflow(line: ClientConnection, workspace: Path) -> None:
    """TEST 4: back up, modify, test, restore because the test fails."""
    test = asking("execute_command", command=f"grep -q 'VALUE = 1' {PROBE}", cwd=str(workspace))
    before = picture(workspace)
    saved = await backup(line, workspace)
    for name, text in ((PROBE, BAD), ("left_over/rubbish.txt", "rubbish")):
        frame = await ask(line, asking("write_file", path=name, content=text))
        check_frame(frame, "write_success", path=name)
        check((workspace / name).read_text() == text, name, "the file as it was written")
    check_frame(await ask(line, test), "command_output", stdout="", stderr="", exit_code=1)
    frame = await ask(line, asking("restore_backup", backup_path=saved, workspace_path=str(workspace)))
    check_frame(frame, "restore_complete")
    check(picture(workspace) == before, sorted(picture(workspace)), "every file as it was, and nothing else")
    check_frame(await ask(line, test), "command_output", stdout="", stderr="", exit_code=0)


async def mistakes(line: ClientConnection, workspace: Path) -> None:
    """What is no backup is not restored, and nothing is lost by trying."""
    before = picture(workspace)
    for path in ("/", str(workspace), "no_such_20251017_000000"):
        frame = await ask(line, asking("restore_backup", backup_path=path, workspace_path=str(workspace)))
        check(bool(check_frame(frame, "error")["message"]), frame, "why")
    check_frame(await ask(line, asking("create_backup")), "error", message="Missing workspace_path")
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


def main(words: Sequence[str] | None = None) -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--url", default="ws://localhost:8765")
    parser.add_argument("--token-file", type=Path)
    args = parser.parse_args(words)
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
