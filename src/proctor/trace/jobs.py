"""What callers hand to the trace writer, and the three ways in which they wait for it.

A thread waits on a bare lock, an event loop on its own future, and all futures of one loop are answered by
one wake-up per batch: with 64 callers a batch, waking costs more than writing, so it is kept this plain.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa

from proctor.protocol.events import Draft, Event
from proctor.store.lane import Step
from proctor.trace.rows import Prepared
from proctor.trace.tip import Advance

__all__ = ["AsyncJob", "Change", "FutureJob", "Guard", "Job", "Sure", "ThreadJob", "answer"]

T = TypeVar("T")
Change = Callable[[sa.Connection], tuple[T, Sequence[Draft]]]
Guard = Callable[[], Exception | None]


@dataclass(frozen=True, slots=True)
class Sure:
    """What a change does in the usual case, known beforehand: its statements, its events and its value.

    Where a step does not fit, and where others wait in the same batch, the change itself is run instead.
    """

    steps: Sequence[Step]
    drafts: Sequence[Draft]
    value: Any = None


class Job:
    """What one caller wants: events, or a change of rows together with its events."""

    __slots__ = (
        "ahead",
        "change",
        "drafts",
        "error",
        "events",
        "guard",
        "prepared",
        "sure",
        "taken",
        "tried",
        "value",
    )

    def __init__(
        self, drafts: Sequence[Draft], change: Change[Any] | None = None, sure: Sure | None = None
    ) -> None:
        self.drafts, self.change, self.sure = drafts if sure is None else sure.drafts, change, sure
        self.taken = False  # by the writer, or by a caller who gave up; set under the writer's lock
        self.ahead: Advance | None = None  # how the log stands once what the quick lane was told is durable
        self.prepared: list[Prepared] = []
        self.events: list[Event] = []
        self.tried: list[Event] = []  # what may have been written before the server was lost
        self.value: Any = None
        self.error: Exception | None = None
        self.guard: Guard | None = None

    @property
    def result(self) -> Any:
        """What the caller gets when all went well."""
        return self.events if self.change is None else self.value

    def quickly(self, events: list[Event]) -> None:
        """Note that the quick lane has written it."""
        self.events, self.value = events, self.sure.value if self.sure is not None else None

    def finish(self) -> None:
        """Tell the caller."""
        raise NotImplementedError


class ThreadJob(Job):
    """Its caller is a thread."""

    __slots__ = ("_done",)

    def __init__(self, drafts: Sequence[Draft], change: Change[Any] | None = None) -> None:
        super().__init__(drafts, change)
        self._done = threading.Lock()
        self._done.acquire()  # released by the writer: the lock is the signal

    def finish(self) -> None:
        """Let the thread go on."""
        self._done.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the answer; False when the time is over."""
        return self._done.acquire(timeout=max(0.0, seconds))


class FutureJob(Job):
    """Its caller holds a future and need not wait."""

    __slots__ = ("future",)

    def __init__(self, drafts: Sequence[Draft]) -> None:
        super().__init__(drafts)
        self.future: Future[list[Event]] = Future()

    def finish(self) -> None:
        """Complete the future, unless its holder has cancelled it; the events are written all the same."""
        if not self.future.set_running_or_notify_cancel():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class AsyncJob(Job):
    """Its caller is a coroutine."""

    __slots__ = ("future", "landed", "loop")

    def __init__(
        self, drafts: Sequence[Draft], change: Change[Any] | None = None, sure: Sure | None = None
    ) -> None:
        super().__init__(drafts, change, sure)
        self.landed = False  # written before anybody had to wait
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    def finish(self) -> None:
        """Wake the coroutine; only from its own loop's thread."""
        if not self.future.done():
            self.future.set_result(None)

    def late(self) -> None:
        """Wake it because its time is over."""
        if not self.future.done():
            self.future.set_exception(TimeoutError())


def answer(jobs: Iterable[Job]) -> None:
    """Tell all callers of a batch; those of one event loop with a single wake-up."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        if isinstance(job, AsyncJob):
            loops.setdefault(job.loop, []).append(job)
        else:
            job.finish()
    for loop, waiting in loops.items():
        try:
            loop.call_soon_threadsafe(_finish_all, waiting)
        except RuntimeError:
            continue  # the loop has ended, and with it everyone who could hear


def _finish_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.finish()
