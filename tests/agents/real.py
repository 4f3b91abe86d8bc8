"""What the tests with real CLIs share: a repository, a worktree, and the environment of one agent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.agents.driver import AgentEvent, AttemptEnd, AttemptRequest, Driver, Limits, Outcome
from proctor.agents.identity import survivors
from proctor.workspace.worktree import Worktree, create
from tests.agents.conftest import node_path
from tests.agents.runs import attempt

__all__ = ["becomes_a_commit", "fake", "prepare", "resumes_after_kill"]


def fake(*steps: dict[str, Any]) -> str:
    """Make a prompt that carries a script for the model server."""
    return f"Please do it. FAKE:{json.dumps({'steps': steps})}"


def prepare(place: Path, model: str, env: dict[str, str]) -> tuple[Worktree, AttemptRequest]:
    """Make a repository, a worktree and a request whose agent knows only its own HOME."""
    repo = place / "repo"
    repo.mkdir()
    identity = ["-c", "user.name=U", "-c", "user.email=u@x"]
    for words in (["init", "-q", "-b", "main"], [*identity, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *words], cwd=repo, check=True)
    for name in ("tmp", "state", "agent-home"):
        (place / name).mkdir()
    tree = create(repo, place / "wt")
    request = AttemptRequest(
        task_id="task_1",
        attempt=1,
        prompt="",
        worktree=tree.path,
        tmp=place / "tmp",
        state=place / "state",
        model=model,
        env={"PATH": node_path(), "HOME": str(place / "agent-home"), **env},
        limits=Limits(timeout_s=90, silence_s=60, grace_s=1),
    )
    return tree, request


def shown(tree: Worktree, name: str) -> str:
    """What the repository holds under a name."""
    return subprocess.run(
        ["git", "show", name], cwd=tree.common, capture_output=True, text=True, check=True
    ).stdout


def wait_there(path: Path, seconds: float = 60.0) -> None:
    """Wait until a file has appeared."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


async def becomes_a_commit(
    driver: Driver, tree: Worktree, request: AttemptRequest
) -> tuple[list[AgentEvent], AttemptEnd]:
    """A task becomes a commit on a branch and leaves no process."""
    write = {"tool": "write", "path": str(tree.path / "hello.txt"), "content": "hi\n"}
    prompt = fake(write, {"tool": "shell", "command": "cat hello.txt"}, {"text": "All done."})
    events, end, run = await attempt(driver, replace(request, prompt=prompt))
    assert end.outcome is Outcome.SUCCEEDED, end
    assert end.final_text == "All done."
    assert end.native_id == run.native_id
    commit = tree.commit_all("Say hello", "proctor/task_1")
    assert commit is not None
    assert shown(tree, f"{commit.branch}:hello.txt") == "hi\n"
    assert run.identity is not None
    assert survivors(run.identity) == []
    return events, end


async def resumes_after_kill(driver: Driver, tree: Worktree, request: AttemptRequest) -> AttemptEnd:
    """SIGKILL in the middle of a command; the same conversation goes on and the first work is still there."""
    write = {"tool": "write", "path": str(tree.path / "one.txt"), "content": "1\n"}
    note = tree.path.parent / "running"
    code = f"import pathlib,time; pathlib.Path({str(note)!r}).touch(); time.sleep(300)"
    sleep = {"tool": "shell", "command": f'python3 -c "{code}"'}
    async with driver.launch(replace(request, prompt=fake(write, sleep, {"text": "never"}))) as run:
        async for _ in run.events():
            if run.native_id and note.exists():
                break
        assert run.identity is not None
        await asyncio.to_thread(wait_there, note)
        os.kill(run.identity.pid, 9)
        first = await run.end()
    assert first.outcome is Outcome.INTERRUPTED, first
    assert survivors(run.identity) == []
    prompt = fake(
        {"tool": "write", "path": str(tree.path / "two.txt"), "content": "2\n"}, {"text": "Went on."}
    )
    _, second, _ = await attempt(driver, replace(request, prompt=prompt, resume=first.native_id, attempt=2))
    assert second.outcome is Outcome.SUCCEEDED, second
    assert second.native_id == first.native_id
    assert sorted(path.name for path in tree.path.iterdir() if path.name != ".git") == ["one.txt", "two.txt"]
    return second
