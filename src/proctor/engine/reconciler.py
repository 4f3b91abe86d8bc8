"""One level-triggered look at everything: what is ready, answered, expired, cancelled, left behind or lost.

Each pass compares rows with facts and mends the difference; nothing depends on having seen a change happen. Passes may run
in any number of executors at once: decisions are transactions, and handing a job over twice is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import sqlalchemy as sa
from loguru import logger

from proctor.engine.attempts import Attempts
from proctor.engine.dispatch import Capacity, Handover, dispatch, workspaces_that_wait
from proctor.engine.liveness import Lease
from proctor.engine.questions import OpenQuestions
from proctor.engine.runtime import Job, Runtime
from proctor.engine.tasks import Task, draft_of
from proctor.gate.approvals import expire_approvals
from proctor.gate.calls import reap_dead
from proctor.protocol.events import Draft, EventStatus
from proctor.protocol.ports import Clock
from proctor.protocol.states import TaskState
from proctor.store.database import Database
from proctor.store.tables import attempts as attempts_table
from proctor.store.tables import task_queue
from proctor.tools.job_rows import close_dead_jobs
from proctor.trace.writer import TraceWriter

__all__ = ["Reconciler"]

# A row this long in the queue or in our name without anybody working on it is looked after.
STALE = timedelta(seconds=5)
BATCH = 500
# Looked for more often than the rest is mended: an ended lease is noticed within a second.
TAKEOVER_SECONDS = 0.5

_queued = sa.and_(task_queue.c.status == TaskState.ASSIGNED.value, task_queue.c.queued_at.is_not(None))
_runs = task_queue.c.status == TaskState.IN_PROGRESS.value
_HELD = task_queue.select().where(sa.or_(_queued, _runs)).order_by(task_queue.c.assigned_at).limit(BATCH)


class Reconciler:
    """Looks and mends, for one executor."""

    def __init__(
        self,
        *,
        database: Database,
        writer: TraceWriter,
        runtime: Runtime,
        lease: Lease,
        attempts: Attempts,
        questions: OpenQuestions,
        capacity: Callable[[Iterable[str | None]], Capacity],
        clock: Clock,
    ) -> None:
        self._database = database
        self._writer = writer
        self._runtime = runtime
        self._lease = lease
        self._attempts = attempts
        self._questions = questions
        self._capacity = capacity
        self._clock = clock
        self._next_takeover = 0.0
        self._stranded: frozenset[str] = frozenset()

    async def look(self, *, full: bool) -> int:
        """One pass; the number of jobs handed over. A full one also mends what crashes left."""
        await self._cancel_requested()
        self._attempts.look()
        await self._questions.look()
        # First what is plainly ready: a new task does not wait for the mending.
        handed = await self._hand_over(full=False)
        if full or self._clock.monotonic() >= self._next_takeover:
            await self._take_over()
        if full:
            await self._expire()
            await self._requeue_lost()
            handed += await self._hand_over(full=True)
        if not handed and self._runtime.crowded:
            await self._runtime.wake()
        return handed

    async def _hand_over(self, *, full: bool) -> int:
        workspaces = await asyncio.to_thread(self._workspaces_that_wait, full)
        if not workspaces:
            return 0
        now, capacity = self._clock.now(), await asyncio.to_thread(self._capacity, workspaces)
        decided: Handover = await self._writer.transact_async(lambda c: dispatch(c, capacity, now, full=full))
        jobs = [Job(job.task_id, job.attempt, job.priority) for job in decided.jobs]
        if jobs:
            await self._runtime.enqueue(jobs)
        return len(jobs)

    def _workspaces_that_wait(self, full: bool) -> list[str | None]:
        """Whose tasks wait; a look without the write lock, so that idling costs next to nothing."""
        with self._database.read() as connection:
            return workspaces_that_wait(connection, self._clock.now(), full=full)

    async def _cancel_requested(self) -> None:
        mine = [*self._attempts.running]
        if not mine:
            return
        for task_id in await asyncio.to_thread(self._wants_cancel, mine):
            await self._attempts.cancel(task_id)

    def _wants_cancel(self, mine: Sequence[str]) -> list[str]:
        query = sa.select(task_queue.c.task_id).where(
            task_queue.c.task_id.in_(mine), task_queue.c.cancel_requested
        )
        with self._database.read() as connection:
            return list(connection.execute(query).scalars())

    async def _expire(self) -> None:
        """Close what nobody answered in time, and charge calls and background commands whose process is gone."""
        now = self._clock.now()

        def change(connection: sa.Connection) -> tuple[int, list[Draft]]:
            expired, drafts = expire_approvals(connection, now)
            reaped, more = reap_dead(connection, now)
            ended, jobs = close_dead_jobs(connection, now)
            return expired + reaped + ended, [*drafts, *more, *jobs]

        await self._writer.transact_async(change)

    async def _take_over(self) -> None:
        """Put the work of dead executors back into the queue; DBOS's claim admits one runner."""
        self._next_takeover = self._clock.monotonic() + TAKEOVER_SECONDS
        dead = await asyncio.to_thread(lambda: self._lease.dead(self._runtime.pending_executors()))
        if dead:
            count = await asyncio.to_thread(self._runtime.take_over, dead)
            logger.warning("took over {} attempts of {}", count, ", ".join(sorted(dead)))
            await self._runtime.wake()

    async def _requeue_lost(self) -> None:
        """Mend rows that the queue does not know (a death before the handover, a lost engine.db, a failed write)."""
        rows = await asyncio.to_thread(self._held_rows)
        jobs = {row.task_id: Job(row.task_id, row.attempt, row.priority) for row in rows}
        found = await asyncio.to_thread(self._runtime.known, list(jobs.values()))
        known = found.still_open
        # Twice in a row, because a claim of this very moment has not begun yet.
        stranded, self._stranded = found.stranded & self._stranded, found.stranded
        if stranded:
            logger.warning("{} attempts were claimed and never begun; again", len(stranded))
            await asyncio.to_thread(self._runtime.begin_again, stranded)
        waiting = [row for row in rows if row.status is TaskState.ASSIGNED]
        again = [jobs[row.task_id] for row in waiting if jobs[row.task_id].workflow_id not in known]
        if again:
            await self._runtime.enqueue(again)
        stale = self._clock.now() - STALE
        ended = [row for row in rows if not known.get(jobs[row.task_id].workflow_id, row in waiting)]
        for row in ended:
            if (row.assigned_at or stale) <= stale and await self._left_behind(row):
                await self._put_back(row)

    async def _left_behind(self, row: Task) -> bool:
        """Whether nobody works on a row any more: not we, and nobody who lives."""
        if row.owner is None:
            return True
        if row.owner == self._lease.executor_id:
            return row.task_id not in self._attempts.running
        return row.owner in await asyncio.to_thread(self._lease.dead, {row.owner})

    def _held_rows(self) -> list[Task]:
        with self._database.read() as connection:
            return [Task.of(row) for row in connection.execute(_HELD).mappings()]

    async def _put_back(self, task: Task) -> None:
        """Make the task ready again; the next attempt goes on where this one stopped."""

        def change(connection: sa.Connection) -> tuple[bool, list[Draft]]:
            same_owner = (
                task_queue.c.owner.is_(None) if task.owner is None else task_queue.c.owner == task.owner
            )
            same = sa.and_(
                task_queue.c.task_id == task.task_id,
                task_queue.c.attempt == task.attempt,
                task_queue.c.status == task.status.value,
                same_owner,
            )
            target = TaskState.RECOVERING if task.status is TaskState.IN_PROGRESS else TaskState.ASSIGNED
            changed = connection.execute(
                task_queue.update().where(same).values(status=target.value, owner=None, queued_at=None)
            )
            if changed.rowcount != 1:
                return False, []
            this = sa.and_(attempts_table.c.task_id == task.task_id, attempts_table.c.attempt == task.attempt)
            ended = {"ended_at": self._clock.now(), "outcome": "interrupted"}
            connection.execute(
                attempts_table.update().where(this, attempts_table.c.ended_at.is_(None)).values(ended)
            )
            details = {"reason": "nobody worked on it any more", "owner": task.owner}
            trace_id = task.trace_id or task.task_id
            return True, [
                draft_of(
                    task.task_id,
                    trace_id,
                    "attempt_interrupted",
                    attempt=task.attempt,
                    status=EventStatus.WARNING,
                    session_id=task.session_id,
                    details=details,
                )
            ]

        if await self._writer.transact_async(change):
            logger.warning("attempt {} of {} was left behind; it is ready again", task.attempt, task.task_id)
