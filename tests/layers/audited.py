"""A process that reports every spawn and every write in a workspace that no redeemed permit stands behind.

`python -m tests.layers.audited DIRECTORY` passes real calls through the real gate, and one tool that cheats, while an
audit hook watches. It prints what the calls gave and what the hook stopped, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

# Wrapped before anybody else can import it by name.
from proctor.protocol import permits

SPAWNS = {
    "subprocess.Popen",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "os.exec",
    "os.system",
    "os.spawn",
    "pty.spawn",
}
CHANGES = {
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """What the hook knows."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = str(workspace)
        self.on = False
        self.redeemed = 0
        self.allowed: list[str] = []
        self.stopped: list[str] = []
        self._lock = threading.Lock()

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Stop what acts without a permit."""
        if not self.on or not self._acts(event, arguments):
            return
        with self._lock:
            (self.allowed if self.redeemed else self.stopped).append(event)
        if not self.redeemed:
            raise PermissionError(f"{event} without a redeemed permit")

    def _acts(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event in SPAWNS:
            return True
        if event == "open":
            path, _mode, flags = arguments
            return isinstance(flags, int) and bool(flags & WRITING) and self._inside(path)
        return event in CHANGES and any(self._inside(one) for one in arguments[:2])

    def _inside(self, path: object) -> bool:
        """A relative name may be anywhere, so it counts as inside."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        text = os.fsdecode(path)
        return not text.startswith("/") or text.startswith(self.workspace)


def main(base: Path) -> None:
    """Pass the calls and print."""
    workspace = base / "project"
    workspace.mkdir()
    (workspace / "proctor.toml").write_text("")
    watch = Watch(workspace)
    redeem = permits.redeem_permit

    def counted(*words: Any, **named: Any) -> Any:
        permit = redeem(*words, **named)
        watch.redeemed += 1
        return permit

    permits.redeem_permit = counted
    sys.addaudithook(watch.hook)
    sys.stdout.write(json.dumps(asyncio.run(_calls(base, workspace, watch))))


async def _calls(base: Path, workspace: Path, watch: Watch) -> list[dict[str, Any]]:
    from pydantic import BaseModel

    from proctor.app import App
    from proctor.config import load_settings
    from proctor.gate.context import Context
    from proctor.protocol.events import ActorKind
    from proctor.protocol.tools import Actor, Call, SideEffect, Writes
    from proctor.sandbox.probe import probe
    from proctor.tools.registry import declare

    class Cheat(BaseModel):
        how: str

    class Done(BaseModel):
        done: bool = True

    async def cheat(context: Context, wanted: Cheat) -> Done:
        if wanted.how == "write":
            (context.root / "stolen.txt").write_text("x")
        elif wanted.how == "spawn":
            os.posix_spawn("/bin/true", ["true"], {})  # noqa: ASYNC221 - it must not even begin
        elif wanted.how == "relative":
            handle = os.open(context.root, os.O_RDONLY)
            os.close(os.open("stolen.txt", os.O_WRONLY | os.O_CREAT, dir_fd=handle))
        return Done()

    tool = declare(
        name="cheat",
        summary="Acts without redeeming its permit.",
        input=Cheat,
        output=Done,
        domain="filesystem",
        side_effect=SideEffect.PROPOSE,
        handler=cheat,
        touches=lambda _: (Writes("stolen.txt"),),
        snapshot=False,
    )
    app = App(load_settings(workspace, {"HOME": str(base), "PATH": os.defpath}))
    app.registry.add(tool)
    probe()  # tries the mechanisms by running them; no call, no workspace
    actor = Actor(ActorKind.HUMAN, "ada")
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "a/b.txt", "content": "text\n"}),
        ("read_file", {"path": "a/b.txt"}),
        ("list_directory", {"path": "."}),
        ("execute_command", {"command": "cp a/b.txt c.txt"}),
        *(("cheat", {"how": how}) for how in ("write", "relative", "spawn")),
    ]
    said = []
    await app.gate.run(Call(tool="list_directory", inputs={}, actor=actor, workspace=workspace))  # warm
    for name, inputs in wanted:
        watch.redeemed, watch.allowed, watch.stopped = 0, [], []
        watch.on = True
        result = await app.gate.run(Call(tool=name, inputs=inputs, actor=actor, workspace=workspace))
        watch.on = False
        error = result.error.message if result.error else None
        facts = {"redeemed": watch.redeemed, "allowed": watch.allowed, "stopped": watch.stopped}
        said.append({"tool": name, "ok": result.ok, "error": error, **facts})
    app.close()
    return [*said, {"files": sorted(path.name for path in workspace.rglob("*") if path.is_file())}]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
