"""`fixes run`: one task per open fix in the queue; what comes back is written into the same file, atomically.

Killed at any moment nothing is lost: a task knows its file and fix, so a second run finds the tasks of the first and
goes on waiting for them instead of adding them again.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proctor.engine.tasks import NewTask, Task, Tasks
from proctor.proof.answer import no_answer, prompt_for, result_in, with_origin
from proctor.proof.fixfile import FixDocument, load_fix_file, replace_file, with_result
from proctor.proof.stale import times_in_trace
from proctor.protocol.decisions import Severity
from proctor.protocol.errors import UnavailableError
from proctor.protocol.events import Event, EventKind
from proctor.protocol.states import TASK, TaskState
from proctor.store.database import Database
from proctor.trace.reader import stream

__all__ = ["FixRun"]

PRIORITY = {Severity.CRITICAL: 9, Severity.MAJOR: 6, Severity.MINOR: 3}
POLL_SECONDS = 0.25
MAX_MESSAGES = 200
_ENDED = TASK.terminal | {TaskState.BLOCKED}


class FixRun:
    """The run of one fix file by one agent (or whoever is good at it)."""

    def __init__(self, tasks: Tasks, database: Database, file: Path, workspace: Path) -> None:
        self._tasks, self._database = tasks, database
        self._file, self._workspace = file.resolve(), workspace

    def add(self, agent: str | None) -> dict[str, str]:
        """Put a task into the queue for every fix without a result, the gravest first; those already there are kept."""
        document = load_fix_file(self._file)
        waiting = [fix for fix in document.fixes if fix.result is None]
        known = self._known()
        ordered = sorted(waiting, key=lambda fix: list(PRIORITY).index(fix.severity))
        found = {str(fix.id): known[str(fix.id)] for fix in ordered if str(fix.id) in known}
        new = [fix for fix in ordered if str(fix.id) not in found]
        added = self._tasks.add_many(
            [
                NewTask(
                    description=prompt_for(document.data, fix, str(self._workspace)),
                    task_type="fix",
                    priority=PRIORITY[fix.severity],
                    agent=agent,
                    file_paths=[fix.path],
                    context={"fix_file": str(self._file), "fix_id": str(fix.id)},
                    workspace=str(self._workspace),
                    created_by="fixes run",
                )
                for fix in new
            ]
        )
        return found | {str(fix.id): task for fix, task in zip(new, added, strict=True)}

    def _known(self) -> dict[str, str]:
        """Tasks of an earlier run of this file that have not ended."""
        rows = self._tasks.list(limit=1000)
        mine = [task for task in rows if task.context.get("fix_file") == str(self._file)]
        return {str(task.context.get("fix_id")): task.task_id for task in mine}

    def follow(self, tasks: dict[str, str], *, seconds: float, tell: Callable[[str, Task], None]) -> None:
        """Wait for all tasks and write each result as it comes; stops at the deadline with what is still open named."""
        deadline = time.monotonic() + seconds
        left = dict(tasks)
        while left:
            for fix_id, task_id in list(left.items()):
                task = self._tasks.get(task_id)
                if task.status in _ENDED:
                    self._write(fix_id, task)
                    tell(fix_id, task)
                    del left[fix_id]
            if left and time.monotonic() >= deadline:
                open_ones = ", ".join(sorted(left))
                cure = f"They go on; run `proctor fixes run {self._file.name}` again to wait for them."
                raise UnavailableError(
                    what=f"The result of fix {open_ones}", reason=f"not there after {seconds:g} s", cure=cure
                )
            if left:
                time.sleep(POLL_SECONDS)

    def finish(self) -> Path:
        """Let a file whose fixes all have a result appear among what came back; say where it is now."""
        document = load_fix_file(self._file)
        if self._file.parent.name != "outgoing" or any(fix.result is None for fix in document.fixes):
            return self._file
        target = self._file.parent.parent / "incoming" / self._file.name
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            return self._file  # never over another answer
        self._file.rename(target)
        return target

    def _write(self, fix_id: str, task: Task) -> None:
        result = self._answer(task)
        with _locked(self._file):
            document = load_fix_file(self._file)
            index = _place(document, fix_id)
            if index is not None:
                replace_file(self._file, with_result(document, index, result).text)

    def _answer(self, task: Task) -> dict[str, Any]:
        facts = task.result or {}
        origin = {
            "agent": task.agent,
            "task_id": task.task_id,
            "commit": facts.get("commit"),
            "branch": facts.get("branch"),
            "simulated": bool(facts.get("simulated")),
        }
        found = result_in(_messages(self._said(task))) if task.status is TaskState.COMPLETED else None
        origin |= times_in_trace(self._said(task)).as_members()
        reason = task.error or f"the task is {task.status.value} and its last words are no result"
        return with_origin(found or no_answer(reason), **origin)

    def _said(self, task: Task) -> Iterator[Event]:
        """The agent's own events of this task; a trace may be long, so they are read one by one."""
        events = stream(self._database, task.trace_id or "")
        return (event for event in events if event.task_id == task.task_id and event.kind is EventKind.WORKER)


def _messages(events: Iterator[Event]) -> Sequence[str]:
    """What the agent itself said last."""
    said = (event.details.get("text") for event in events)
    return list(deque((text for text in said if isinstance(text, str)), maxlen=MAX_MESSAGES))


def _place(document: FixDocument, fix_id: str) -> int | None:
    return next((n for n, fix in enumerate(document.fixes) if str(fix.id) == fix_id), None)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One writer at a time: between reading the file and replacing it nobody else may."""
    handle = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
