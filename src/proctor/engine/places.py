"""Where attempts work: a git worktree per task below the data directory, or a plain directory without a repository.

The user's checkout is never written to. Whatever the end of an attempt was, its work is kept: on a branch when git can
tell what changed, in the worktree otherwise.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

from proctor.agents.driver import AttemptEnd
from proctor.engine.attempts import Place
from proctor.engine.claims import Claim, Work
from proctor.workspace import worktree
from proctor.workspace.worktree import DirtyWorktreeError, Worktree

__all__ = ["GitPlaces"]

MAX_PLACES = 100


class GitPlaces:
    """Prepares and collects below one directory."""

    def __init__(self, root: Path, state: Path) -> None:
        self._root = root
        self._state = state
        self._worktrees: dict[str, Worktree] = {}

    async def prepare(self, claim: Claim) -> Place:
        """Make or find the place of this task; an attempt that goes on finds its files and its cwd again."""
        return await asyncio.to_thread(self._prepare, claim)

    def _prepare(self, claim: Claim) -> Place:
        task = claim.task
        state = self._state / task.task_id
        tmp = state / f"tmp-{claim.attempt}"
        for directory in (state, tmp):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if task.workspace is None:
            directory = self._root / "no-repository" / _name(task.session_id) / task.task_id
            directory.mkdir(parents=True, exist_ok=True)
            return Place(directory, tmp, state)
        found = self._again(claim) or self._new(claim)
        self._worktrees[task.task_id] = found
        return Place(found.path, tmp, state, found.base)

    def _again(self, claim: Claim) -> Worktree | None:
        earlier = claim.earlier or {}
        path, base = earlier.get("worktree"), earlier.get("base_commit")
        goes_on = claim.taken_over or earlier.get("outcome") in {
            "interrupted",
            "parked",
            "failed",
            "timed_out",
        }
        if not (path and base and goes_on and claim.task.workspace):
            return None
        return worktree.find(Path(claim.task.workspace), Path(path), base)

    def _new(self, claim: Claim) -> Worktree:
        assert claim.task.workspace is not None
        repository = Path(claim.task.workspace)
        base = str(claim.task.context.get("base") or "HEAD")
        directory = self._root / _name(repository.name) / _name(claim.task.session_id)
        name = f"{claim.task.task_id}-{claim.attempt}"
        for number in range(1, MAX_PLACES):
            place = directory / (name if number == 1 else f"{name}.{number}")
            if not place.exists() or _cleared(repository, place):
                break
        return worktree.create(repository, place, base)

    async def collect(self, claim: Claim, place: Place, end: AttemptEnd) -> Work:
        """Commit what was left in the worktree onto the task's own branch; remove what only the attempt needed."""
        work = await asyncio.to_thread(self._collect, claim, end)
        await asyncio.to_thread(shutil.rmtree, place.tmp, ignore_errors=True)
        return work

    def _collect(self, claim: Claim, end: AttemptEnd) -> Work:
        tree = self._worktrees.pop(claim.task.task_id, None)
        if tree is None:
            return Work()
        changed = tree.changes()
        commit = tree.commit_all(_message(claim, end), f"proctor/{claim.task.task_id}")
        if commit is None:
            return Work()
        return Work(branch=commit.branch, commit=commit.id, files=changed)


def _cleared(repository: Path, place: Path) -> bool:
    """Make room for an attempt whose place nobody wrote down: whoever made it died before its agent had begun.

    Should there be work in it nevertheless, it stays and the attempt goes elsewhere. What was left half made is found
    and cleared when it is made again.
    """
    left = worktree.find(repository, place, "")
    if left is None:
        return worktree.half_made(repository, place)
    try:
        left.remove()
    except DirtyWorktreeError:
        return False
    return True


def _name(text: str | None) -> str:
    """A directory's name for anything; tasks without a session share one."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text or "tasks").lstrip(".") or "_"


def _message(claim: Claim, end: AttemptEnd) -> str:
    title = next(iter(claim.task.description.strip().splitlines()), "A task without words")[:72]
    facts = {"Task": claim.task.task_id, "Attempt": claim.attempt, "Agent": claim.agent, "End": end.outcome}
    lines = [f"{name}: {value}" for name, value in facts.items()] + ["Simulated: yes"] * end.simulated
    return "\n".join([title, "", *lines, ""])
