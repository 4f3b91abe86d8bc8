"""Group commit: many callers wait for one fsync; one thread drains a bounded queue into transactions.

Returning means durable (synchronous FULL). A caller's own rows and its events are one unit: they stand or
fall together, under a savepoint, so that one caller's failure is its own. Make the writer after a fork, not
before: threads and connections do not survive one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast

import sqlalchemy as sa

from proctor.protocol.errors import ProctorError, UnavailableError
from proctor.protocol.events import Draft, Event
from proctor.store.database import Database
from proctor.store.faults import explain
from proctor.store.lane import Lane
from proctor.trace.chain import Head
from proctor.trace.jobs import AsyncJob, Change, FutureJob, Guard, Job, Sure, ThreadJob, answer
from proctor.trace.log import append_prepared, is_written, lock_log
from proctor.trace.rows import Redacts, prepare
from proctor.trace.tip import Tip
from proctor.trace.wake import watcher_of

__all__ = ["Observer", "TraceWriter"]

T = TypeVar("T")

DEADLINE = 60.0
_LINGER = 0.002  # after a crowded batch: how long its callers may take to come back and share the next one
_HOLD_SECONDS = 10.0  # how long one batch may hold the lock that all writers of all machines need
_FEW = 8  # events that the quick lane takes at once
_RETRIES = 3
_RETRY_STATES = {"40001", "40P01"}  # serialization failure, deadlock: the database asks to do it again


class Observer(Protocol):
    """Who counts batches (`proctor.trace.metrics`)."""

    def batch(self, events: Sequence[Event], seconds: float) -> None:
        """Take notice of one committed batch."""
        ...


class TraceWriter:
    """The process's one hand on the log; safe for many threads and event loops at once."""

    def __init__(
        self,
        database: Database,
        *,
        key: bytes,
        redactor: Redacts,
        max_batch: int = 2000,
        max_queue: int = 10_000,
        observer: Observer | None = None,
    ) -> None:
        self._database, self._key, self._redactor = database, key, redactor
        self._max_batch, self._max_queue = max_batch, max_queue
        self._observer = observer
        self._watcher = watcher_of(database)
        self._lane, self._tip = Lane(database), Tip(database.dialect, key)
        self._queue: deque[Job] = deque()
        self._lock = threading.Lock()
        self._filled, self._drained = threading.Condition(self._lock), threading.Condition(self._lock)
        self._wanted = 1  # how many waiting jobs wake the writer
        self._crowd = 1  # how many came last time
        self._rests = False  # the thread waits, and whoever comes first may use lane and tip in its place
        self._sent: Job | None = None  # what that one has told the lane
        self._closed = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="proctor-trace-writer", daemon=True)
        self._thread.start()

    # What callers use

    def append(self, drafts: Sequence[Draft], *, deadline: float = DEADLINE) -> list[Event]:
        """Write events and return them once they are on disk."""
        return cast("list[Event]", self._wait(ThreadJob(drafts), deadline))

    async def append_async(self, drafts: Sequence[Draft], *, deadline: float = DEADLINE) -> list[Event]:
        """Like `append`; who is cancelled while the batch is being written finds its events written."""
        return cast("list[Event]", await self._wait_async(AsyncJob(drafts), deadline))

    def submit(
        self, drafts: Sequence[Draft], *, deadline: float = DEADLINE, guard: Guard | None = None
    ) -> Future[list[Event]]:
        """Hand events over; the future is done when they are on disk. Waits only while the queue is full.

        Do not change the drafts' details afterwards. `guard` is asked while the log's lock is held: the error it
        gives refuses them, so that who lost the right to write meanwhile writes nothing.
        """
        job = FutureJob(drafts)
        job.guard = guard
        self._put(job, time.monotonic() + deadline)
        return job.future

    def transact(self, change: Change[T], *, deadline: float = DEADLINE) -> T:
        """Run `change` in the group's transaction and write the events it returns with it, durably, as one.

        It gets the connection and returns (value, drafts). It may be run again after a deadlock, so it must
        do nothing but read and write through that connection; an error in it undoes only its own rows.
        """
        return cast("T", self._wait(ThreadJob((), change), deadline))

    async def transact_async(
        self,
        change: Change[T],
        *,
        deadline: float = DEADLINE,
        sure: Sure | None = None,
        whatever_comes: bool = False,
    ) -> T:
        """Like `transact`, for event loops; `change` runs in the writer's thread.

        `sure` is what it does in the usual case, and is tried before it: one trip instead of many. A caller who is
        cancelled takes back what has not begun, unless it must be written `whatever_comes`.
        """
        job = AsyncJob((), change, sure)
        return cast("T", await self._wait_async(job, deadline, takes_back=not whatever_comes))

    def close(self, deadline: float = DEADLINE) -> None:
        """Write what was handed over, then end; later calls are refused."""
        with self._lock:
            self._closed = True
            self._filled.notify_all()
            self._drained.notify_all()
        if os.getpid() == self._pid:
            self._thread.join(deadline)
            if self._thread.is_alive():
                raise _late("it still writes at close", deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Handing over

    def _wait(self, job: ThreadJob, deadline: float) -> Any:
        until = time.monotonic() + deadline
        self._put(job, until)
        if not job.wait(until - time.monotonic()):
            raise _late(self._give_up(job), deadline)
        return _outcome(job)

    async def _wait_async(self, job: AsyncJob, deadline: float, *, takes_back: bool = True) -> Any:
        until = time.monotonic() + deadline
        if not self._offer(job, sends=True):
            await asyncio.to_thread(self._put, job, until)
        timer = job.loop.call_later(max(0.0, until - time.monotonic()), job.late)
        try:
            await job.future
        except TimeoutError:
            raise _late(self._give_up(job), deadline) from None
        except asyncio.CancelledError:
            if takes_back:
                self._give_up(job)
            raise
        finally:
            timer.cancel()
        return _outcome(job)

    def _offer(self, job: Job, *, sends: bool = False) -> bool:
        """Hand a job over; False when the queue is full. `sends`: the caller may tell it to the quick lane itself."""
        with self._lock:
            self._check_open()
            if len(self._queue) >= self._max_queue:
                return False
            if sends and self._rests and self._sent is None and not self._queue and self._send(job):
                return True
            self._queue.append(job)
            if len(self._queue) == self._wanted:
                self._filled.notify()
            return True

    def _put(self, job: Job, until: float) -> None:
        while not self._offer(job):
            with self._lock:
                left = until - time.monotonic()
                if left <= 0 or not (len(self._queue) < self._max_queue or self._drained.wait(left)):
                    raise _late("its queue is full; nothing was written", 0)

    def _give_up(self, job: Job) -> str:
        """Take a job back if the writer has not begun with it; say what became of it."""
        with self._lock:
            begun, job.taken = job.taken, True
        return "it may still be written" if begun else "nothing was written"

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise _refused("it was made before a fork", "Make a TraceWriter in the child process.")
        if self._closed or not self._thread.is_alive():
            raise _refused("it is closed", "Write before closing it.")

    # The writer's own thread

    def _run(self) -> None:
        try:
            while (jobs := self._collect()) is not None:
                if jobs:  # all may have been taken back
                    self._write(jobs)
        finally:
            self._lane.close()
            self._abandon()

    def _abandon(self) -> None:
        """At the end nobody may be left waiting, however the thread came to it."""
        with self._lock:
            self._closed = True
            left = [job for job in self._queue if not job.taken]
            left += [self._sent] if self._sent is not None else []
            self._queue.clear()
            self._drained.notify_all()
        _fail(left, _refused("its thread ended", "Start the process again."))

    def _collect(self) -> list[Job] | None:
        """The next batch; None when closed and drained."""
        with self._lock:
            self._wanted, self._rests = 1, True
            while not self._queue and self._sent is None and not self._closed:
                self._filled.wait()
            self._rests = False
            if self._sent is not None:
                jobs, self._sent = [self._sent], None
            elif self._queue:
                jobs = self._gather()
            else:
                return None
        self._crowd = len(jobs)
        return jobs

    def _gather(self) -> list[Job]:
        """What waits, and whoever will be back in a moment."""
        if len(self._queue) < self._crowd and not self._closed:
            self._wanted = self._crowd
            self._filled.wait(_LINGER)
        jobs = self._take()
        self._drained.notify_all()
        return jobs

    def _take(self) -> list[Job]:
        jobs, size = [], 0
        while self._queue and size < self._max_batch:
            job = self._queue.popleft()
            if not job.taken:
                job.taken = True
                size += len(job.drafts) or 1
                jobs.append(job)
        return jobs

    def _write(self, jobs: list[Job]) -> None:
        began = time.perf_counter()
        jobs = jobs if jobs[0].ahead is not None else self._prepare(jobs)
        try:
            done = jobs if self._quick(jobs) else self._commit(jobs)
        except Exception as error:  # noqa: BLE001 - worker loop: whatever it is, its waiters must hear of it
            self._part(jobs, error)
        else:
            self._tell(done, time.perf_counter() - began)

    def _part(self, jobs: list[Job], error: Exception) -> None:
        """After a failed batch: one by one if one of them may be the cause, else all hear the reason."""
        if len(jobs) == 1 or isinstance(error, UnavailableError):
            _fail(jobs, error)
            return
        for job in jobs:
            self._write([job])

    def _prepare(self, jobs: list[Job]) -> list[Job]:
        """Redact before the transaction begins; a draft that cannot be written fails its own job only."""
        drafts = [draft for job in jobs for draft in job.drafts]
        try:
            prepared = prepare(drafts, self._redactor)
        except Exception as error:  # noqa: BLE001 - worker loop: find out whose it is
            if len(jobs) > 1:
                return [one for job in jobs for one in self._prepare([job])]
            _fail(jobs, error)
            return []
        place = 0
        for job in jobs:
            job.prepared = prepared[place : place + len(job.drafts)]
            place += len(job.drafts)
        return jobs

    def _send(self, job: Job) -> bool:
        """In the caller's own thread while ours rests: what waits for nothing need not change threads."""
        if not _is_known(job):
            return False
        job.prepared = prepare(job.drafts, self._redactor)
        try:
            if not self._told(job):
                return False
            job.taken, self._sent = True, job
            self._filled.notify()
        except BaseException:
            self._sent = None
            self._lane.close()  # an open transaction that nobody settles would keep all others out
            raise
        return True

    def _quick(self, jobs: list[Job]) -> bool:
        """One job whose change is known beforehand, on a log as we left it: nothing is read, one trip writes all."""
        job = jobs[0] if len(jobs) == 1 else None
        if job is None:
            return not jobs
        if job.ahead is None and not (_is_known(job) and self._told(job)):
            return False
        ahead, fits = job.ahead, self._lane.settle()
        assert ahead is not None
        if fits:
            self._tip.keep(ahead.log, ahead.heads)
            job.quickly(ahead.events)
        else:
            self._tip.miss()
            job.tried = ahead.events if fits is None else []
        return bool(fits)

    def _told(self, job: Job) -> bool:
        """Tell the lane what this job writes; False when that is for the ordinary way."""
        ahead = self._tip.advance(job.prepared)
        if ahead is None:
            return False
        if not self._lane.send([*ahead.steps, *(job.sure.steps if job.sure is not None else ())]):
            self._tip.miss()
            return False
        job.ahead = ahead
        return True

    def _commit(self, jobs: list[Job]) -> list[Job]:
        """One durable transaction for all; those whose own change failed hear of it and are left out."""
        failed: list[tuple[Job, Exception]] = []
        for attempt in range(1, _RETRIES + 1):
            try:
                heads: dict[str, Head] = {}
                with self._database.write(within=_HOLD_SECONDS) as connection:
                    log = lock_log(connection, self._key)
                    self._tip.meet(log)
                    failed = self._apply(connection, jobs, log, heads)
            except (sa.exc.DBAPIError, UnavailableError) as error:
                self._tip.forget()
                if attempt == _RETRIES or not _once_more(error):
                    raise
            else:
                self._tip.keep(log, heads)
                break
        for job, reason in failed:
            _fail([job], reason)
        out = {id(job) for job, _ in failed}
        return [job for job in jobs if id(job) not in out]

    def _apply(
        self, connection: sa.Connection, jobs: list[Job], log: Head, heads: dict[str, Head]
    ) -> list[tuple[Job, Exception]]:
        failed: list[tuple[Job, Exception]] = []
        if jobs[0].tried and is_written(connection, jobs[0].tried[0]):
            jobs[0].quickly(jobs[0].tried)  # the server was lost after the commit, not before
            return failed
        for job in jobs:
            refusal = job.guard() if job.guard is not None else None
            if refusal is not None:
                job.prepared = []
                failed.append((job, refusal))
            elif job.change is not None:
                try:
                    # Alone it needs no savepoint of its own: its error undoes the whole transaction.
                    with connection.begin_nested() if len(jobs) > 1 else nullcontext():
                        job.value, drafts = job.change(connection)
                        job.prepared = prepare(drafts, self._redactor)
                except Exception as error:  # worker loop: it goes to its caller
                    if len(jobs) == 1:
                        raise
                    if not connection.in_transaction() or connection.invalidated or _is_fault(error):
                        raise
                    job.prepared = []
                    failed.append((job, error))
        rows = [row for job in jobs for row in job.prepared]
        written, place = append_prepared(connection, rows, key=self._key, log=log, heads=heads), 0
        for job in jobs:
            job.events = written[place : place + len(job.prepared)]
            place += len(job.prepared)
        return failed

    def _tell(self, jobs: list[Job], seconds: float) -> None:
        """After the commit: wake cursors, then the callers."""
        events = [event for job in jobs for event in job.events]
        if events:
            self._watcher.publish(events[-1].seq)
            if self._observer is not None:
                self._observer.batch(events, seconds)
        answer(jobs)


def _is_known(job: Job) -> bool:
    """Whether all that it writes is known beforehand, and little enough for the quick lane."""
    return job.guard is None and (job.change is None or job.sure is not None) and 0 < len(job.drafts) <= _FEW


def _outcome(job: Job) -> Any:
    if job.error is not None:
        raise job.error
    return job.result


def _fail(jobs: list[Job], error: Exception) -> None:
    if isinstance(error, sa.exc.DBAPIError):
        error = explain(error, "of the trace") or error
    for job in jobs:
        job.error = error
    answer(jobs)


def _once_more(error: Exception) -> bool:
    """Whether the database itself asks to do the transaction again."""
    cause = error if isinstance(error, sa.exc.DBAPIError) else error.__cause__
    return getattr(getattr(cause, "orig", None), "sqlstate", None) in _RETRY_STATES


def _is_fault(error: Exception) -> bool:
    """Whether disk, server or lock failed: then it failed for all, not only for the caller who met it."""
    return isinstance(error, sa.exc.DBAPIError) and explain(error, "") is not None


def _late(reason: str, deadline: float) -> UnavailableError:
    cure = "See `proctor doctor`; another process may hold the database."
    return UnavailableError(what="The trace writer", reason=f"{reason} ({deadline:g} s waited)", cure=cure)


def _refused(reason: str, cure: str) -> ProctorError:
    return UnavailableError(what="The trace writer", reason=reason, cure=cure)
