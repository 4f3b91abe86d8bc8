"""Plans in an executor: level-triggered like everything else. Each look takes what is ready, answered or left behind.

One conditional update admits one runner; our own rows are the checkpoints, so a plan needs no workflow record elsewhere.
A plan that waits for a person is nobody's; an expired question leaves it parked until a person resumes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa
from loguru import logger

from proctor.engine.liveness import Lease
from proctor.engine.plan_run import Waits
from proctor.engine.plans import SUPERVISOR, Plans
from proctor.protocol.errors import UnavailableError
from proctor.protocol.states import PLAN, PlanState
from proctor.store.tables import approvals, controls, plans

__all__ = ["PlanDesk"]

LOOK_SECONDS: Final = 1.0
STOP_SECONDS: Final = 10.0
MAX_RUNNING: Final = 16
BATCH: Final = 200
_OPEN: Final = [stage.value for stage in PlanState if stage not in PLAN.terminal]


@dataclass(slots=True)
class _Running:
    cancel: asyncio.Event = field(default_factory=asyncio.Event)


class PlanDesk:
    """Runs the supervisor's plans for one executor."""

    def __init__(self, front: Plans, lease: Lease, *, ended: Callable[[], None] = lambda: None) -> None:
        self._plans = front
        self._lease = lease
        self._ended = ended
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self.running: dict[str, _Running] = {}

    def wake(self) -> None:
        """Something may have changed: look now."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no more; what runs ends with its current step."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Look and run until stopped."""
        async with asyncio.TaskGroup() as group:
            at_work: set[asyncio.Task[None]] = set()
            while not self._stop.is_set():
                self._wake.clear()
                for plan_id in await self._ready():
                    self.running[plan_id] = _Running()
                    one = group.create_task(self._one(plan_id))
                    at_work.add(one)
                    one.add_done_callback(at_work.discard)
                await self._next()
            await self._leave(at_work)

    async def _next(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
        except TimeoutError:
            return

    async def _leave(self, at_work: set[asyncio.Task[None]]) -> None:
        if at_work:
            _, late = await asyncio.wait(set(at_work), timeout=STOP_SECONDS)
            for one in late:
                one.cancel()

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ready(self) -> list[str]:
        """Plans to take now; a database that is away is looked at again later."""
        try:
            await self._cancel_requested()
            room = MAX_RUNNING - len(self.running)
            return await asyncio.to_thread(self._look, room) if room > 0 else []
        except (UnavailableError, sa.exc.SQLAlchemyError) as error:
            logger.error("looking for plans failed, trying again: {}", error)
            return []

    def _look(self, room: int) -> list[str]:
        now = self._plans.clock.now()
        answered = sa.exists().where(
            approvals.c.approval_id == plans.c.waiting_for,
            approvals.c.status.in_(["approved", "rejected", "void"]),
        )
        due = sa.or_(plans.c.not_before.is_(None), plans.c.not_before <= now)
        free = sa.or_(plans.c.waiting_for.is_(None), answered, plans.c.cancel_requested)
        query = sa.select(plans.c.plan_id, plans.c.owner).where(_open(), due, free, ~_paused())
        with self._plans.database.read() as connection:
            rows = connection.execute(query.order_by(plans.c.created_at).limit(BATCH)).all()
        held = {row.owner for row in rows if row.owner is not None and row.owner != self._lease.executor_id}
        dead = self._lease.dead(held) if held else set()
        ours = [row.plan_id for row in rows if row.owner not in held or row.owner in dead]
        return [plan_id for plan_id in ours if plan_id not in self.running][:room]

    async def _cancel_requested(self) -> None:
        mine = list(self.running)
        if not mine:
            return
        query = sa.select(plans.c.plan_id).where(plans.c.plan_id.in_(mine), plans.c.cancel_requested)

        def look() -> list[str]:
            with self._plans.database.read() as connection:
                return list(connection.execute(query).scalars())

        for plan_id in await asyncio.to_thread(look):
            if plan_id in self.running:
                self.running[plan_id].cancel.set()

    def waits(self) -> bool:
        """Whether a plan could be run now or is being run, here or elsewhere."""
        ready = sa.or_(plans.c.waiting_for.is_(None), plans.c.cancel_requested)
        query = sa.select(plans.c.plan_id).where(_open(), ready, ~_paused()).limit(1)
        with self._plans.database.read() as connection:
            return bool(self.running) or connection.execute(query).first() is not None

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _one(self, plan_id: str) -> None:
        me = str(self._lease.executor_id)
        waits = Waits(cancel=self.running[plan_id].cancel, stop=self._stop)
        try:
            row = await self._plans.claim(
                plan_id, me, is_dead=lambda owner: owner in self._lease.dead({owner})
            )
            if row is not None:
                await self._plans.run(row, me, waits=waits)
        except Exception as error:  # noqa: BLE001 - worker loop: one plan's trouble is its own, and is looked at again
            logger.error("plan {} was left as it stands: {!r}", plan_id, error)
            await asyncio.sleep(LOOK_SECONDS)
        finally:
            self.running.pop(plan_id, None)
            self._wake.set()
            self._ended()


def _open() -> sa.ColumnElement[bool]:
    return sa.and_(plans.c.runner == SUPERVISOR, plans.c.stage.in_(_OPEN))


def _paused() -> sa.ColumnElement[bool]:
    scope = sa.or_(controls.c.scope == "all", controls.c.scope == sa.literal("session:") + plans.c.session_id)
    return sa.exists().where(controls.c.paused, scope).correlate(plans)
