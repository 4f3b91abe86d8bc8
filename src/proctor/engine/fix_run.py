"""`fixes run`: one task per open fix in the queue; what comes back is written into the same file, atomically.

Killed at any moment nothing is lost, and nothing is done twice: a task knows its file and fix, so another run finds the
tasks of the first, waits for those that are open and writes down what the ended ones said.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proctor.engine.tasks import NewTask, Task, Tasks
from proctor.proof.answer import no_answer, prompt_for, result_in, with_origin
from proctor.proof.exchange import Exchange
from proctor.proof.fixfile import FixDocument, load_fix_file, replace_file, with_result
from proctor.proof.schema import Fix
from proctor.proof.stale import times_in_trace
from proctor.protocol.decisions import Severity
from proctor.protocol.errors import UnavailableError, UsageError
from proctor.protocol.events import Draft, Event, EventKind
from proctor.protocol.states import TASK, TaskState
from proctor.store.database import Database
from proctor.store.tables import task_queue
from proctor.trace.reader import stream
from proctor.trace.writer import TraceWriter
from proctor.workspace.locks import directory_lock

__all__ = ["FixRun"]

PRIORITY = {Severity.CRITICAL: 9, Severity.MAJOR: 6, Severity.MINOR: 3}
POLL_SECONDS = 0.25
MAX_MESSAGES = 200
MAX_EARLIER: Final = 10_000
TASK_TYPE: Final = "fix"
# What the trace says once a result is in the file: a fix whose result a person removes is then worked on anew.
WRITTEN: Final = "result written into the fix file"
_ENDED = TASK.terminal | {TaskState.BLOCKED}


class FixRun:
    """The run of one fix file by one agent (or whoever is good at it)."""

    def __init__(
        self, tasks: Tasks, database: Database, writer: TraceWriter, file: Path, workspace: Path
    ) -> None:
        self._tasks, self._database, self._writer = tasks, database, writer
        self._file, self._workspace = file.resolve(), workspace
        self._box = Exchange(self._file.parent.parent, ".")

    def add(self, agent: str | None) -> dict[str, str]:
        """Put a task into the queue for every fix without a result, the gravest first; those already there are kept."""
        with directory_lock(self._file.parent):  # or two runs at once would each find none and add all
            document = load_fix_file(self._file)
            waiting = [fix for fix in document.fixes if fix.result is None]
            earlier = self._earlier()
            ordered = sorted(waiting, key=lambda fix: list(PRIORITY).index(fix.severity))
            found = {str(fix.id): earlier[str(fix.id)] for fix in ordered if str(fix.id) in earlier}
            new = [fix for fix in ordered if str(fix.id) not in found]
            added = self._tasks.add_many([self._task(document, fix, agent) for fix in new])
        return found | {str(fix.id): task for fix, task in zip(new, added, strict=True)}

    def _task(self, document: FixDocument, fix: Fix, agent: str | None) -> NewTask:
        return NewTask(
            description=prompt_for(document.data, fix, str(self._workspace)),
            task_type=TASK_TYPE,
            priority=PRIORITY[fix.severity],
            agent=agent,
            file_paths=[fix.path],
            context={"fix_file": str(self._file), "fix_id": str(fix.id)},
            workspace=str(self._workspace),
            created_by="fixes run",
        )

    def _earlier(self) -> dict[str, str]:
        """The newest task of each fix, as far as its result is not in the file yet; it may have ended meanwhile."""
        c = task_queue.c
        mine = sa.and_(c.task_type == TASK_TYPE, c.workspace == str(self._workspace))
        query = sa.select(c.task_id, c.trace_id, c.status, c.context).where(mine)
        newest = query.order_by(c.created_at.desc(), c.task_id.desc()).limit(MAX_EARLIER)
        with self._database.read() as connection:
            rows = connection.execute(newest).all()
        found: dict[str, Any] = {}
        for row in rows:
            if (row.context or {}).get("fix_file") == str(self._file):
                found.setdefault(str(row.context.get("fix_id")), row)
        return {fix_id: row.task_id for fix_id, row in found.items() if not self._is_written(row)}

    def _is_written(self, row: Any) -> bool:
        if TaskState(row.status) not in TASK.terminal:
            return False
        told = stream(self._database, row.trace_id or "")
        return any(one.task_id == row.task_id and one.details.get("what") == WRITTEN for one in told)

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
        with directory_lock(self._file.parent):
            if self._moved():
                return self._place()
            if self._file.parent != self._box.outgoing or any(
                fix.result is None for fix in load_fix_file(self._file).fixes
            ):
                return self._file
            try:
                return self._box.deliver(self._file.name)
            except UsageError:
                return self._file  # another answer of that name came back before: both stay

    def _moved(self) -> bool:
        """Whether another run of this file has put it among what came back."""
        sent = self._file.parent == self._box.outgoing and not self._file.exists()
        return sent and (self._box.incoming / self._file.name).exists()

    def _place(self) -> Path:
        return self._box.incoming / self._file.name if self._moved() else self._file

    def _write(self, fix_id: str, task: Task) -> None:
        result = self._answer(task)
        with directory_lock(self._file.parent):
            place = self._place()
            document = load_fix_file(place)
            index = _index(document, fix_id)
            # One that is there already came from another run, or from a person: it stays.
            if index is not None and document.fixes[index].result is None:
                replace_file(place, with_result(document, index, result).text)
        details = {"what": WRITTEN, "file": str(place), "fix": fix_id}
        trace_id = task.trace_id or task.task_id
        self._writer.append([Draft(trace_id, "note", task_id=task.task_id, details=details)])

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


def _index(document: FixDocument, fix_id: str) -> int | None:
    return next((n for n, fix in enumerate(document.fixes) if str(fix.id) == fix_id), None)
