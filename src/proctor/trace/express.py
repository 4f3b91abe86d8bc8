"""The quick lane and the tip of the log in one hand: what one job writes is told at once, and durable when it has landed.

Used under the writer's lock or by its thread, one at a time. While a server works on a job, the job's own loop listens for
the answer (a flight), so that an ordinary call never changes threads; the lane is nobody else's until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from proctor.store.database import Database
from proctor.store.lane import Lane
from proctor.trace.jobs import AsyncJob, Job
from proctor.trace.tip import Tip

__all__ = ["Express", "Flight"]


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A job that the server works on, and where its answer comes in."""

    job: AsyncJob
    handle: int
    since: float

    @property
    def lost(self) -> bool:
        """Whether nobody listens any more."""
        return not self.job.loop.is_running()


class Express:
    """What a writer has for jobs that are known beforehand."""

    def __init__(self, database: Database, key: bytes) -> None:
        self.lane, self.tip = Lane(database), Tip(database.dialect, key)
        self.flight: Flight | None = None

    def tell(self, job: Job) -> bool:
        """Tell the lane what this job writes; False when that is for the ordinary way."""
        ahead = self.tip.advance(job.prepared)
        if ahead is None:
            return False
        if not self.lane.send([*ahead.steps, *(job.sure.steps if job.sure is not None else ())]):
            self.tip.miss()
            return False
        job.ahead = ahead
        return True

    def land(self, job: Job) -> bool:
        """Make what was told durable, waiting for it; False when that is for the ordinary way."""
        ahead, fits = job.ahead, self.lane.settle()
        assert ahead is not None
        if fits:
            self.tip.keep(ahead.log, ahead.heads, onto=ahead.base)
            job.quickly(ahead.events)
        else:
            self.tip.miss()
            job.tried = ahead.events if fits is None else []
        job.ahead = None
        return bool(fits)

    def listen(self, job: AsyncJob, arrived: Callable[[Flight], None]) -> bool:
        """Let the job's loop listen for the answer; False where only a thread can wait for it."""
        handle = self.lane.answers_on
        if handle is None:
            return False
        self.flight = flight = Flight(job, handle, time.monotonic())
        job.loop.add_reader(handle, arrived, flight)
        return True

    def arrived(self, flight: Flight) -> bool:
        """Whether the answer is there, which ends the flight; asked by its loop when something came in."""
        if self.flight is not flight or not self.lane.arrived():
            return False
        self.recall()
        return True

    def recall(self) -> Job | None:
        """End the flight: whoever calls waits for the answer. By the loop itself, or when it runs no more."""
        flight, self.flight = self.flight, None
        if flight is not None and not flight.job.loop.is_closed():
            flight.job.loop.remove_reader(flight.handle)
        return None if flight is None else flight.job

    def close(self) -> None:
        """Give the connection back; something that was told and not settled is undone."""
        self.lane.close()
