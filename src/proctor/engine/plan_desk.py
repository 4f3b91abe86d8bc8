"""Plans in an executor: level-triggered like everything else. Each look takes what is ready, answered or left behind.

One conditional update admits one runner; our own rows are the checkpoints, so a plan needs no workflow record elsewhere.
A plan that waits for a person is nobody's; an expired question leaves it parked until a person resumes it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa

from proctor.engine.desk import Desk
from proctor.engine.liveness import Lease
from proctor.engine.plan_run import Waits
from proctor.engine.plans import SUPERVISOR, Plans, process_is_gone
from proctor.protocol.states import PLAN, PlanState
from proctor.store.tables import approvals, controls, plans

__all__ = ["PlanDesk"]

MAX_RUNNING: Final = 16
BATCH: Final = 200
_OPEN: Final = [stage.value for stage in PlanState if stage not in PLAN.terminal]


@dataclass(slots=True)
class _Running:
    cancel: asyncio.Event = field(default_factory=asyncio.Event)


class PlanDesk(Desk):
    """Runs the supervisor's plans for one executor; told to stop, they end with their current step."""

    kind = "plan"

    def __init__(self, front: Plans, lease: Lease) -> None:
        super().__init__()
        self._plans = front
        self._lease = lease
        self.running: dict[str, _Running] = {}

    def begun(self, name: str) -> None:
        """It is ours until it ends."""
        self.running[name] = _Running()

    def ended(self, name: str) -> None:
        """It is nobody's, or has ended."""
        self.running.pop(name, None)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def find(self) -> list[str]:
        """Plans to take now."""
        await self._cancel_requested()
        room = MAX_RUNNING - len(self.running)
        return await asyncio.to_thread(self._look, room) if room > 0 else []

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
        dead = self._dead(held)
        ours = [row.plan_id for row in rows if row.owner not in held or row.owner in dead]
        return [plan_id for plan_id in ours if plan_id not in self.running][:room]

    def _dead(self, owners: set[str]) -> set[str]:
        """Owners that run nothing any more: executors by their lease, other processes by their own name."""
        processes = {owner for owner in owners if "|" in owner}
        executors = owners - processes
        gone = {owner for owner in processes if process_is_gone(owner)}
        return gone | (self._lease.dead(executors) if executors else set())

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

    async def work(self, name: str) -> None:
        """Claim the plan and run it to its end or its next question."""
        me = str(self._lease.executor_id)
        waits = Waits(cancel=self.running[name].cancel, stop=self._stop)
        row = await self._plans.claim(name, me, is_dead=lambda owner: owner in self._dead({owner}))
        if row is not None:
            await self._plans.run(row, me, waits=waits)


def _open() -> sa.ColumnElement[bool]:
    return sa.and_(plans.c.runner == SUPERVISOR, plans.c.stage.in_(_OPEN))


def _paused() -> sa.ColumnElement[bool]:
    scope = sa.or_(controls.c.scope == "all", controls.c.scope == sa.literal("session:") + plans.c.session_id)
    return sa.exists().where(controls.c.paused, scope).correlate(plans)
