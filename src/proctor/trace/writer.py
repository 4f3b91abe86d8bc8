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
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast

from proctor.protocol.errors import ProctorError, UnavailableError
from proctor.protocol.events import Draft, Event
from proctor.store.database import Database
from proctor.trace.batches import Batches, fail
from proctor.trace.express import Express, Flight
from proctor.trace.jobs import AsyncJob, Change, FutureJob, Guard, Job, Sure, ThreadJob, answer
from proctor.trace.rows import Redacts, prepare
from proctor.trace.wake import watcher_of

__all__ = ["Observer", "TraceWriter"]

T = TypeVar("T")

DEADLINE = 60.0
_LINGER = 0.002  # after a crowded batch: how long its callers may take to come back and share the next one
_FEW = 8  # events that the quick lane takes at once
_PATIENCE = 0.2  # how long those behind a flight wait for it, before the ordinary way goes by


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
        self._express = Express(database, key)
        self._batches = Batches(database, key, redactor, self._express.tip)
        self._queue: deque[Job] = deque()
        self._lock = threading.Lock()
        self._filled, self._drained = threading.Condition(self._lock), threading.Condition(self._lock)
        self._wanted = 1  # how many waiting jobs wake the writer
        self._crowd = 1  # how many came last time
        self._rests = False  # the thread waits, and whoever comes first may use the express in its place
        self._sent: Job | None = None  # what that one has told, and leaves to the thread to wait for
        self._landing = False  # a loop has written by itself and lets others go now
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
            flight = self._express.flight
            if flight is not None and _is_ours(flight.job.loop):  # which cannot listen while it waits here
                self._sent = self._express.recall()
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
        if not self._offer(job, writes=job):
            await asyncio.to_thread(self._put, job, until)
        if job.landed:
            await self._let_others_go()
            return _outcome(job)
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

    async def _let_others_go(self) -> None:
        """Who writes again and again without waiting must let others go between; those then share a commit."""
        try:
            await asyncio.sleep(0)
        finally:
            self._landing = False

    def _offer(self, job: Job, *, writes: AsyncJob | None = None) -> bool:
        """Hand a job over; False when the queue is full. `writes`: this is its loop, which may write it by itself."""
        with self._lock:
            self._check_open()
            if len(self._queue) >= self._max_queue:
                return False
            if writes is not None and self._is_free() and self._send(writes):
                return True
            self._queue.append(job)
            if len(self._queue) == self._wanted:
                self._filled.notify()
            return True

    def _is_free(self) -> bool:
        """Whether a loop may write by itself: nobody is at work or waits, and no crowd that could share a commit."""
        alone = self._crowd == 1 and not self._queue and not self._landing
        return alone and self._rests and self._sent is None and self._express.flight is None

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
            if self._express.flight is None:  # else its loop brings it home
                self._express.close()
            self._abandon()

    def _abandon(self) -> None:
        """At the end nobody may be left waiting, however the thread came to it."""
        with self._lock:
            self._closed = True
            left = [job for job in self._queue if not job.taken]
            left += [self._sent] if self._sent is not None else []
            self._queue.clear()
            self._drained.notify_all()
        fail(left, _refused("its thread ended", "Start the process again."))

    def _collect(self) -> list[Job] | None:
        """The next batch; None when closed and drained."""
        with self._lock:
            self._wanted, self._rests = 1, True
            while not self._is_due():
                self._filled.wait(None if self._express.flight is None else _PATIENCE)
            self._rests = False
            if self._sent is not None:
                jobs, self._sent = [self._sent], None
            elif self._queue:
                jobs = self._gather()
            else:
                return None
        self._crowd = len(jobs)
        return jobs

    def _is_due(self) -> bool:
        """Whether there is something to do for us, or the end has come; who waits behind a flight has patience."""
        flight = self._express.flight
        if flight is not None and flight.lost:
            self._sent, flight = self._express.recall(), None
        if self._sent is not None or flight is None:
            return self._sent is not None or bool(self._queue) or self._closed
        return bool(self._queue) and time.monotonic() - flight.since > _PATIENCE

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
        jobs = jobs if jobs[0].ahead is not None else self._batches.prepare(jobs)
        try:
            done = jobs if self._quick(jobs) else self._batches.commit(jobs)
        except Exception as error:  # noqa: BLE001 - worker loop: whatever it is, its waiters must hear of it
            self._part(jobs, error)
        else:
            self._tell(done, time.perf_counter() - began)

    def _part(self, jobs: list[Job], error: Exception) -> None:
        """After a failed batch: one by one if one of them may be the cause, else all hear the reason."""
        if len(jobs) == 1 or isinstance(error, UnavailableError):
            fail(jobs, error)
            return
        for job in jobs:
            self._write([job])

    def _send(self, job: AsyncJob) -> bool:
        """In the caller's own thread while ours rests: what need not wait need not change threads."""
        if not _is_known(job):
            return False
        job.prepared = prepare(job.drafts, self._redactor)
        try:
            if not self._express.tell(job):
                return False
            if self._express.lane.prompt:
                self._landing = job.landed = self._land(job)
                return job.landed
            job.taken = True
            if not self._express.listen(job, self._arrived):
                self._sent = job
                self._filled.notify()
        except BaseException:
            self._express.recall()
            self._sent = None
            self._express.close()  # an open transaction that nobody settles would keep all others out
            raise
        return True

    def _land(self, job: AsyncJob) -> bool:
        """Finish a job in its own loop; False when it is for the ordinary way after all."""
        began = time.perf_counter()
        if not self._express.land(job):
            return False
        self._publish([job], time.perf_counter() - began)
        return True

    def _arrived(self, flight: Flight) -> None:
        """Its loop heard from the server."""
        with self._lock:
            if not self._express.arrived(flight):
                return
            job = flight.job
            try:
                landed = self._land(job)
            except Exception as error:  # noqa: BLE001 - worker loop: whatever it is, its waiter must hear of it
                fail([job], error)
            else:
                self._came_down(job, landed)
            if self._queue or self._closed:
                self._filled.notify()

    def _came_down(self, job: AsyncJob, landed: bool) -> None:
        """Tell the caller, or leave it to the ordinary way, first of all; without our thread there is none."""
        if landed:
            job.finish()
        elif self._thread.is_alive():
            job.taken = False
            self._queue.appendleft(job)
        else:
            fail([job], _refused("its thread ended", "Start the process again."))

    def _quick(self, jobs: list[Job]) -> bool:
        """One job whose change is known beforehand, on a log as we left it: nothing is read, one trip writes all."""
        job = jobs[0] if len(jobs) == 1 else None
        if job is None:
            return not jobs
        if job.ahead is None and (self._express.flight is not None or not _is_known(job)):
            return False
        return (job.ahead is not None or self._express.tell(job)) and self._express.land(job)

    def _tell(self, jobs: list[Job], seconds: float) -> None:
        """After the commit: wake cursors, then the callers."""
        self._publish(jobs, seconds)
        answer(jobs)

    def _publish(self, jobs: list[Job], seconds: float) -> None:
        events = [event for job in jobs for event in job.events]
        if events:
            self._watcher.publish(events[-1].seq)
            if self._observer is not None:
                self._observer.batch(events, seconds)


def _is_ours(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this very thread runs it."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _is_known(job: Job) -> bool:
    """Whether all that it writes is known beforehand, and little enough for the quick lane."""
    return job.guard is None and (job.change is None or job.sure is not None) and 0 < len(job.drafts) <= _FEW


def _outcome(job: Job) -> Any:
    if job.error is not None:
        raise job.error
    return job.result


def _late(reason: str, deadline: float) -> UnavailableError:
    cure = "See `proctor doctor`; another process may hold the database."
    return UnavailableError(what="The trace writer", reason=f"{reason} ({deadline:g} s waited)", cure=cure)


def _refused(reason: str, cure: str) -> ProctorError:
    return UnavailableError(what="The trace writer", reason=reason, cure=cure)
