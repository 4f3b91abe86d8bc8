"""Background commands: each has a thread with its own event loop, a row, and events in its call's trace.

The row says who holds it; what it printed is in the trace, redacted. A command ends with the process that holds it: its
row then has no end and its holder is dead, which every reader calls interrupted (`job_rows.py`). Whoever wants it stopped
writes that into the row; the holder looks once a second. Its time is charged to its call's budget when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.context import Context
from proctor.gate.later import charge_later, seconds_left
from proctor.protocol.errors import NotFoundError, ProctorError, RefusedError, first_of
from proctor.protocol.events import ActorKind, Draft, EventStatus
from proctor.protocol.ids import new_id
from proctor.sandbox.identity import ProcessIdentity
from proctor.sandbox.run import run
from proctor.sandbox.spec import Result, Spec
from proctor.store.tables import command_jobs
from proctor.tools.confined import sandbox_facts
from proctor.tools.job_rows import close_dead_jobs, facts_of, find_job, is_held
from proctor.tools.models import now

__all__ = ["MOST_RUNNING", "last_line", "start", "status", "stop"]

MOST_RUNNING: Final = 16
_KEPT: Final = 64  # ended ones that stay in memory; others are read from row and trace
_TAIL: Final = 16_000  # characters of each stream that are kept
_LOOK: Final = 1.0  # how often the holder looks whether somebody wants it stopped
_TELL: Final = 5.0  # how often progress becomes an event, at most
_FIRST: Final = 0.3  # how long a start waits for a quick failure
_STOP: Final = 20.0
_LEAST: Final = 1.0  # seconds of the budget without which nothing is begun
_jobs: dict[str, _Job] = {}
_lock = threading.Lock()


def last_line(text: str) -> str:
    """The last line with something on it, short enough for a status line."""
    lines = text.rstrip().rsplit("\n", 1)
    return lines[-1].strip()[:200]


@dataclass(eq=False)
class _Job:
    """One background command, seen from the process that holds it."""

    context: Context
    spec: Spec
    command: str
    cwd: str
    job_id: str = field(default_factory=lambda: new_id("job"))
    started_at: datetime = field(default_factory=now)
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    tails: dict[str, str] = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    cut: bool = False
    line: str = ""
    result: Result | None = None
    error: ProctorError | None = None
    ended_at: datetime | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Let it run in a thread of its own; the keeper ends the tree should this process end first."""
        threading.Thread(target=self._main, name=f"proctor-{self.job_id}", daemon=True).start()

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        finally:
            self.seconds = time.monotonic() - self.began
            self.ended_at = now()
            self.ended.set()

    async def _run(self) -> None:
        cancel = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(self._watch(cancel))
                self.result = await run(
                    self.spec, permit=self.context.permit, on_output=self._take, cancel=cancel
                )
                watcher.cancel()
        except* Exception as problems:  # noqa: BLE001 - driver: whatever ends a job, its row says so
            first = first_of(problems)
            self.error = first if isinstance(first, ProctorError) else ProctorError(message=f"{first}.")
        self.ended_at = now()
        await self._record()

    def _take(self, stream: str, text: str) -> None:
        whole = self.tails[stream] + text
        self.cut = self.cut or len(whole) > _TAIL
        self.tails[stream] = whole[-_TAIL:]
        self.line = last_line(text) or self.line

    async def _watch(self, cancel: asyncio.Event) -> None:
        """Look for a wish to stop, and tell how far it is; a database that is away does not end the command."""
        told, last = "", time.monotonic()
        while not self.stopping.is_set():
            await asyncio.sleep(_LOOK)
            with contextlib.suppress(ProctorError):
                if await asyncio.to_thread(self._stop_wanted):
                    self.stopping.set()
                elif self.line != told and time.monotonic() - last >= _TELL:
                    told, last = self.line, time.monotonic()
                    await self.context.writer.append_async([self._draft("command_progress", line=told)])
        cancel.set()

    def _stop_wanted(self) -> bool:
        with self.context.database.read() as connection:
            wanted = sa.select(command_jobs.c.stop_requested_at).where(command_jobs.c.job_id == self.job_id)
            return connection.execute(wanted).scalar() is not None

    @property
    def outcome(self) -> str:
        """How it ended, in one word; `running` until then."""
        if not self.ended.is_set() and self.ended_at is None:
            return "running"
        if self.result is None:
            return "not_started"
        if self.result.timed_out:
            return "timed_out"
        if self.result.killed_for == "cancelled":
            return "stopped"
        return "completed" if self.result.ok else "failed"

    def _draft(self, event: str, **details: Any) -> Draft:
        call = self.context.call
        ok = self.outcome in {"running", "completed", "stopped"}
        return Draft(
            call.trace_id,
            event,
            status=EventStatus.SUCCESS if ok else EventStatus.ERROR,
            actor=call.actor.kind,
            actor_name=call.actor.name,
            session_id=call.session_id,
            task_id=call.task_id,
            attempt=call.attempt,
            tool_name="start_command",
            details={"job_id": self.job_id, "command": self.command, "cwd": self.cwd, **details},
        )

    async def open(self) -> None:
        """Write the row before anything runs."""
        call = self.context.call
        row = {
            "job_id": self.job_id,
            "call_id": call.call_id,
            "trace_id": call.trace_id,
            "workspace": str(self.context.root),
            "holder": ProcessIdentity.of(os.getpid(), "").encode(),
            "started_at": self.started_at,
        }

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            self._within(seconds_left(connection, call.call_id))
            limit = self.spec.limits.seconds or 0.0
            connection.execute(sa.insert(command_jobs).values(**row, seconds=limit))
            return None, [self._draft("command_started", seconds=limit)]

        await self.context.writer.transact_async(change)

    def _within(self, left: float | None) -> None:
        """Cut its time to what the budget has left, or refuse."""
        if left is None:
            return
        if left < _LEAST:
            raise RefusedError(
                reason="budget_exceeded:seconds", cure="No time is left for a command; see `proctor cost`."
            )
        limits = self.spec.limits
        seconds = left if limits.seconds is None else min(limits.seconds, left)
        self.spec = replace(self.spec, limits=replace(limits, seconds=seconds))

    async def give_up(self) -> None:
        """Forget one that did not come to run; its row may be written already and must not look like a running one."""
        _jobs.pop(self.job_id, None)
        self.ended_at = now()
        self.ended.set()
        await self._record()

    async def _record(self) -> None:
        """Write how it ended, with the end of what it printed."""
        facts = {"outcome": self.outcome, "ended_at": self.ended_at, "exit_code": self.exit_code}
        shown = {**self.tails, "truncated": self.cut, "error": self.error and str(self.error)}
        used = self._used()

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            mine = sa.and_(command_jobs.c.job_id == self.job_id, command_jobs.c.ended_at.is_(None))
            if connection.execute(sa.update(command_jobs).where(mine).values(**facts)).rowcount == 0:
                return None, []  # given up for dead and charged by somebody else
            told = {name: facts[name] for name in ("outcome", "exit_code")}
            drafts = [self._draft("command_ended", **told, **used, **shown)]
            refused = self.result.sandbox.refused if self.result is not None else ()
            drafts += [self._draft("network_refused", hosts=list(refused))] if refused else []
            call = self.context.call
            whose = {
                name: getattr(call, name)
                for name in ("call_id", "trace_id", "session_id", "task_id", "attempt")
            }
            millis = round(used["charged_seconds"] * 1000)
            return None, drafts + charge_later(
                connection, whose | {"tool_name": "start_command"}, millis=millis
            )

        try:
            await self.context.writer.transact_async(change)
        except ProctorError as error:
            # The process is leaving and the log is closed: the row stays without an end, read as interrupted.
            self.error = self.error or error

    def _used(self) -> dict[str, Any]:
        """Its time and CPU, and how well it was confined; one that did not start has used nothing."""
        if self.result is None:
            return {"charged_seconds": 0.0}
        used = {
            "charged_seconds": round(self.result.duration, 3),
            "cpu_seconds": round(self.result.cpu_seconds, 3),
        }
        return {**used, "sandbox": sandbox_facts(self.result.sandbox)}

    @property
    def exit_code(self) -> int | None:
        """The command's own answer, once there is one."""
        return None if self.result is None else self.result.exit_code

    def facts(self) -> dict[str, Any]:
        """Everything a caller may know now."""
        over = self.ended.is_set()
        spent = self.seconds if over else time.monotonic() - self.began
        return {
            "job_id": self.job_id,
            "state": self.outcome if over else "running",
            "running": not over,
            "command": self.command,
            "cwd": self.cwd,
            "progress": self.line,
            **self.tails,
            "exit_code": self.exit_code if over else None,
            "success": over and self.result is not None and self.result.ok,
            "truncated": self.cut,
            "error": None if self.error is None else str(self.error),
            "started_at": self.started_at,
            "ended_at": self.ended_at if over else None,
            "duration_ms": round(spent * 1000, 3),
            "cpu_seconds": self.result and round(self.result.cpu_seconds, 3),
            "sandbox": self.result and sandbox_facts(self.result.sandbox),
        }


async def start(context: Context, spec: Spec, command: str, cwd: str) -> dict[str, Any]:
    """Start a command; returns once it runs, or with the reason why it does not."""
    job = _Job(context, spec, command, cwd)
    _admit(job)
    try:
        await job.open()
    except BaseException:
        await job.give_up()
        raise
    job.begin()
    try:
        await _until_ended(job, _FIRST)
    except asyncio.CancelledError:
        job.stopping.set()  # nobody will ever know its name
        raise
    if job.error is not None:
        raise job.error
    return job.facts()


def _admit(job: _Job) -> None:
    """Keep a place for it; old ended ones are forgotten, and there is a most."""
    with _lock:
        ended = [one.job_id for one in _jobs.values() if one.ended.is_set()]
        for name in ended[: max(0, len(ended) - _KEPT)]:
            del _jobs[name]
        if sum(not one.ended.is_set() for one in _jobs.values()) >= MOST_RUNNING:
            reason = f"{MOST_RUNNING} commands run in the background already"
            raise RefusedError(reason=reason, cure="Wait for one or stop one with stop_command.")
        _jobs[job.job_id] = job


async def status(context: Context, job_id: str, *, wait: float = 0.0) -> dict[str, Any]:
    """Say how a command stands, whoever holds it."""
    row = await _row(context, job_id)
    job = _jobs.get(job_id)
    if job is not None:
        await _until_ended(job, wait, context.cancel)
        return job.facts()
    until = time.monotonic() + wait
    while row["ended_at"] is None and time.monotonic() < until and not context.cancel.is_set():
        await asyncio.sleep(min(_LOOK, wait))
        row = await _row(context, job_id)
    return await asyncio.to_thread(facts_of, context.database, row, now())


async def stop(context: Context, job_id: str) -> dict[str, Any]:
    """Have a command ended, and wait until it has."""
    await _row(context, job_id)

    def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
        open_ = (command_jobs.c.job_id == job_id) & command_jobs.c.ended_at.is_(None)
        wish = {"stop_requested_at": now(), "stop_requested_by": context.call.actor.name[:100]}
        connection.execute(sa.update(command_jobs).where(open_).values(**wish))
        return None, []

    await context.writer.transact_async(change)
    job = _jobs.get(job_id)
    if job is not None:
        job.stopping.set()
    return await status(context, job_id, wait=_STOP)


async def _until_ended(job: _Job, seconds: float, cancel: asyncio.Event | None = None) -> None:
    until = time.monotonic() + seconds
    while not job.ended.is_set() and time.monotonic() < until:
        if cancel is not None and cancel.is_set():
            return
        await asyncio.sleep(0.02)


async def _row(context: Context, job_id: str) -> Mapping[str, Any]:
    """Find the row; an agent finds only those of its own workspace. One whose holder is dead is ended here."""
    row = await asyncio.to_thread(find_job, context.database, job_id)
    stranger = context.call.actor.kind is ActorKind.AGENT
    if row is None or (stranger and row["workspace"] != str(context.root)):
        raise NotFoundError(kind="background command", name=job_id, cure="Take the id of start_command.")
    if row["ended_at"] is not None or job_id in _jobs or is_held(row, now()):
        return row

    def close(connection: sa.Connection) -> tuple[int, list[Draft]]:
        return close_dead_jobs(connection, now(), only=job_id)

    await context.writer.transact_async(close)
    return await asyncio.to_thread(find_job, context.database, job_id) or row
