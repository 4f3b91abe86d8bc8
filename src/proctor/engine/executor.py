"""An executor: lease, DBOS, reconciler and attempts as one running thing, inside a supervisor or a worker.

Order matters: take the lease, launch, take over at once, then look again and again. An executor that cannot renew its
lease in time stops its agents first and thinks afterwards: others will take its work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa
from loguru import logger

from proctor.agents.model_chats import Chats
from proctor.engine.attempts import AgentBook, Attempts, Workplaces
from proctor.engine.chat_desk import ChatDesk
from proctor.engine.claims import Claims
from proctor.engine.dispatch import Capacity
from proctor.engine.liveness import Lease, LeaseKeeper
from proctor.engine.plan_desk import PlanDesk
from proctor.engine.plans import Plans
from proctor.engine.questions import HOLD_SECONDS, OpenQuestions
from proctor.engine.reconciler import Reconciler
from proctor.engine.runtime import Runtime
from proctor.gate.profiles import Profile
from proctor.protocol.errors import ProctorError, UnavailableError
from proctor.protocol.ports import Clock, SystemClock
from proctor.store.database import Database
from proctor.store.tables import task_queue
from proctor.trace.rows import Redacts
from proctor.trace.writer import TraceWriter

__all__ = ["Executor", "Parts"]

LOOK_SECONDS = 1.0
# Among machines the end of another's lease is to be noticed within a second, and wake-ups reach only one of them.
SHARED_LOOK_SECONDS = 0.5
FULL_SECONDS = 3.0
CENSUS_SECONDS = 5.0
READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What an executor is made of; `app` brings it."""

    database: Database
    writer: TraceWriter
    engine_url: str
    lease: Lease
    book: AgentBook
    places: Workplaces
    capacity: Callable[[Iterable[str | None]], Capacity]
    clock: Clock = field(default_factory=SystemClock)
    workers: int = 16
    hold_s: float = HOLD_SECONDS
    census: Callable[[], object] | None = None
    """Keeps the table of agents in step; looks by itself when it is time."""
    plans: Plans | None = None
    chats: Chats | None = None
    redactor: Redacts | None = None
    """Takes secrets out of the questions that agents ask."""
    profile_of: Callable[[Path | None], Profile] | None = None
    """The profile that holds in a workspace; without it, standard."""


class Executor:
    """Runs until told to stop or until its lease is lost."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lease = parts.lease
        self._wake = asyncio.Event()
        self._full = True
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self.lost = False
        self._plans = PlanDesk(parts.plans, parts.lease) if parts.plans is not None else None
        self._talks = ChatDesk(parts.chats, parts.database) if parts.chats is not None else None
        claims = Claims(parts.writer, parts.lease.executor_id, parts.clock)
        questions = OpenQuestions(
            parts.database,
            parts.writer,
            parts.clock,
            is_valid=parts.lease.valid,
            hold_s=parts.hold_s,
            redactor=parts.redactor,
            profile_of=parts.profile_of,
        )
        self.attempts = Attempts(
            claims=claims,
            writer=parts.writer,
            book=parts.book,
            places=parts.places,
            questions=questions,
            clock=parts.clock,
            is_dead=self._is_dead,
            is_valid=parts.lease.valid,
            ended=self._attempt_ended,
        )
        self._runtime = Runtime(
            parts.engine_url,
            executor_id=parts.lease.executor_id,
            workers=parts.workers,
            handler=self.attempts.run,
        )
        self._reconciler = Reconciler(
            database=parts.database,
            writer=parts.writer,
            runtime=self._runtime,
            lease=parts.lease,
            attempts=self.attempts,
            questions=questions,
            capacity=parts.capacity,
            clock=parts.clock,
        )

    @property
    def executor_id(self) -> str:
        """Who it is."""
        return self._lease.executor_id

    async def forget(self, *, before_ms: int, keep: int) -> int:
        """Delete DBOS's records of attempts that ended before a moment; our own rows stay."""
        await asyncio.wait_for(self._ready.wait(), READY_SECONDS)
        return await asyncio.to_thread(self._runtime.forget, before_ms=before_ms, keep=keep)

    def wake(self) -> None:
        """Something may have changed: look now."""
        self._wake.set()
        for desk in (self._plans, self._talks):
            if desk is not None:
                desk.wake()

    def stop(self) -> None:
        """End in order; what runs is stopped and taken over by the next executor."""
        self._stop.set()
        self._wake.set()
        for desk in (self._plans, self._talks):
            if desk is not None:
                desk.stop()

    def _attempt_ended(self) -> None:
        self._full = True
        self._wake.set()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Live: returns after `stop`, or with `lost` set when the lease could not be kept."""
        loop = asyncio.get_running_loop()
        keeper = LeaseKeeper(self._lease, lambda: loop.call_soon_threadsafe(self._lost))
        await asyncio.to_thread(keeper.begin)
        try:
            await self._runtime.start()
            try:
                ready()
                self._ready.set()
                async with asyncio.TaskGroup() as group:
                    census = group.create_task(self._keep_census())
                    for desk in (self._plans, self._talks):
                        if desk is not None:
                            group.create_task(desk.run())
                    await self._look_again_and_again()
                    census.cancel()
            finally:
                await self.attempts.stop()
                await self._runtime.stop()
        finally:
            await asyncio.to_thread(keeper.end)

    def _lost(self) -> None:
        logger.error("lease {} is lost; stopping all agents", self._lease.executor_id)
        self.lost = True
        self.stop()

    async def _look_again_and_again(self) -> None:
        clock = self._parts.clock
        pause = LOOK_SECONDS if self._parts.database.dialect == "sqlite" else SHARED_LOOK_SECONDS
        next_full = clock.monotonic()
        while not self._stop.is_set():
            self._wake.clear()
            full = clock.monotonic() >= next_full or (self._full and clock.monotonic() >= next_full - 2.0)
            if full:
                self._full = False
                next_full = clock.monotonic() + FULL_SECONDS
            await self._look(full=full)
            try:
                await asyncio.wait_for(self._wake.wait(), pause)
            except TimeoutError:
                continue

    async def _look(self, *, full: bool) -> None:
        """A database that is away for a while is no reason to end: the next look finds everything again."""
        try:
            if full and not await asyncio.to_thread(self._runtime.intact):
                logger.error("the engine's database was removed or replaced; beginning anew")
                self.lost = True
                self.stop()
                return
            await self._reconciler.look(full=full)
        except (UnavailableError, sa.exc.SQLAlchemyError) as error:
            logger.error("looking failed, trying again: {}", error)
            self._full = True
            await asyncio.sleep(LOOK_SECONDS)
        except Exception:  # noqa: BLE001 - worker loop: a defect in looking must not stop the agents that run
            logger.exception("looking failed, trying again")
            self._full = True
            await asyncio.sleep(LOOK_SECONDS)

    async def _keep_census(self) -> None:
        """Beside the looks, because asking a program for its version may take seconds."""
        while self._parts.census is not None and not self._stop.is_set():
            try:
                await asyncio.to_thread(self._parts.census)
            except (ProctorError, sa.exc.SQLAlchemyError, OSError) as error:
                logger.error("looking at the agents failed, trying again: {}", error)
            await asyncio.sleep(CENSUS_SECONDS)

    async def _is_dead(self, executor_id: str) -> bool:
        return executor_id in await asyncio.to_thread(self._lease.dead, {executor_id})

    async def idle(self) -> bool:
        """Whether nothing runs and nothing waits to run."""
        if self.attempts.running:
            return False
        query = (
            sa.select(task_queue.c.task_id)
            .where(task_queue.c.status.in_(["pending", "assigned", "in_progress", "recovering", "verifying"]))
            .limit(1)
        )

        def look() -> bool:
            with self._parts.database.read() as connection:
                found = connection.execute(query).first()
            desks = [desk for desk in (self._plans, self._talks) if desk is not None]
            return found is None and not any(desk.waits() for desk in desks)

        return await asyncio.to_thread(look)
