"""Plans: the front door. Put one in, run it here or leave it to the supervisor, look at it, go on with it.

`execute_plan` runs in the calling process; `submit` leaves the plan to the supervisor. Either way the rows are the truth:
whoever is killed in the middle goes on with the same plan and repeats nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proctor.config import Settings
from proctor.engine import plan_rows
from proctor.engine.plan_result import result_of
from proctor.engine.plan_rows import PlanRow
from proctor.engine.plan_run import Doors, PlanRun, Waits
from proctor.gate.approvals import Waiter
from proctor.gate.holder import is_gone, this_process
from proctor.gate.limits import tighter
from proctor.gate.profiles import find_profile, limits_of_settings
from proctor.protocol.errors import NotFoundError, RefusedError
from proctor.protocol.events import ActorKind, Draft
from proctor.protocol.ids import new_id
from proctor.protocol.limits import Allowance, Limits
from proctor.protocol.plans import ExecutionContext, ExecutionResult, Plan
from proctor.protocol.ports import Clock, SystemClock
from proctor.protocol.states import PLAN, PlanState
from proctor.store.database import Database
from proctor.store.tables import approvals, plans
from proctor.trace.reader import stream
from proctor.trace.signals import measure
from proctor.trace.writer import TraceWriter

__all__ = ["PROCESS", "SUPERVISOR", "PlanBusyError", "Plans", "process_is_gone"]

PROCESS: Final = "process"
SUPERVISOR: Final = plan_rows.SUPERVISOR
MAX_LIST: Final = 1000


class PlanBusyError(RefusedError):
    """Refused: the plan {plan_id} is being run by {owner}. Wait for it; `proctor plan show {plan_id}` tells."""

    code = "plan_busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """The plans of one database."""

    database: Database
    writer: TraceWriter
    doors: Doors
    settings_for: Callable[[Path | None], Settings]
    clock: Clock = SystemClock()  # noqa: RUF009 - it has no state

    # ── putting in ────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        plan: Plan,
        context: ExecutionContext | None = None,
        *,
        workspace: Path | None = None,
        by: str = "",
        runner: str = SUPERVISOR,
    ) -> PlanRow:
        """Write a plan down; returning means it is on disk. The same plan again is found as it stands."""
        plan, context = _honoured(plan, context)
        plan.check()
        find_profile(plan.profile, self.settings_for(workspace).profiles)
        unregistered = [not self.doors.registered(step.tool) for step in plan.steps]
        now = self.clock.now()
        return self.writer.transact(
            lambda connection: plan_rows.insert_plan(
                connection,
                plan,
                context,
                unregistered=unregistered,
                workspace=None if workspace is None else str(workspace),
                runner=runner,
                by=by,
                now=now,
            )
        )

    # ── running here ──────────────────────────────────────────────────────────────────────────────────────────────

    async def execute_plan(
        self,
        plan: Plan,
        context: ExecutionContext | None = None,
        *,
        workspace: Path | None = None,
        waits: Waits | None = None,
        allowances: tuple[Allowance, ...] = (),
        by: str = "",
    ) -> ExecutionResult:
        """Run a plan in this process, or go on with it: budget, approval, start, call, end and usage of each step.

        Where a person must answer and nobody does within `waits.hold_s`, the plan is parked: the result says so, and the
        same call again goes on.
        """
        row = await asyncio.to_thread(
            lambda: self.submit(plan, context, workspace=workspace, by=by, runner=PROCESS)
        )
        if row.stage in PLAN.terminal:
            return await asyncio.to_thread(self.result, row.plan_id)
        return await self.go_on(row.plan_id, waits=waits, allowances=allowances)

    async def go_on(
        self, plan_id: str, *, waits: Waits | None = None, allowances: tuple[Allowance, ...] = ()
    ) -> ExecutionResult:
        """Go on with a plan in this process."""
        me = f"{this_process()}|{new_id('run')}"
        row = await self.claim(plan_id, me, is_dead=process_is_gone)
        if row is None:
            current, _ = await asyncio.to_thread(self._load, plan_id)
            if current.stage in PLAN.terminal:
                return await asyncio.to_thread(self.result, plan_id)
            raise PlanBusyError(plan_id=plan_id, owner=current.owner or "another process")
        try:
            await self.run(row, me, waits=waits or Waits(), allowances=allowances)
        finally:
            await asyncio.shield(asyncio.to_thread(self.release, row, me))
        return await asyncio.to_thread(self.result, plan_id)

    async def claim(self, plan_id: str, owner: str, *, is_dead: Callable[[str], bool]) -> PlanRow | None:
        """Take a plan from nobody, or from an owner that is certainly gone."""
        current, _ = await asyncio.to_thread(self._load, plan_id)
        held = current.owner is not None and current.owner != owner
        if held and not await asyncio.to_thread(is_dead, str(current.owner)):
            return None
        now = self.clock.now()
        return await self.writer.transact_async(
            lambda c: plan_rows.claim(c, plan_id, owner, instead_of=current.owner, now=now)
        )

    async def run(
        self, row: PlanRow, owner: str, *, waits: Waits, allowances: tuple[Allowance, ...] = ()
    ) -> None:
        """Run a plan that was claimed."""
        await PlanRun(
            row,
            owner,
            doors=self.doors,
            database=self.database,
            writer=self.writer,
            clock=self.clock,
            waits=waits,
            allowances=allowances,
        ).run()

    def release(self, row: PlanRow, owner: str) -> None:
        """Hold a plan no longer, however its run came to its end."""

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            plan_rows.give_back(connection, row, owner, not_before=None)
            return None, []

        with self.database.read() as connection:
            current, _ = plan_rows.load(connection, row.plan_id)
        if current.owner == owner:
            self.writer.transact(change)

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _load(self, plan_id: str) -> tuple[PlanRow, list[plan_rows.StepRow]]:
        with self.database.read() as connection:
            return plan_rows.load(connection, plan_id)

    def get(self, name: str) -> PlanRow:
        """One plan by id or unique beginning."""
        with self.database.read() as connection:
            row, _ = plan_rows.load(connection, plan_rows.find_plan(connection, name))
        return row

    def of_file(self, plan: Plan, *, given_id: bool, workspace: Path | None) -> PlanRow | None:
        """The plan that a file was run as: by its own id, else the newest of the same content."""
        place = None if workspace is None else str(workspace)
        with self.database.read() as connection:
            name = plan.plan_id if given_id else plan_rows.find_same(connection, plan, place)
        if name is None:
            return None
        try:
            row = self.get(name)
        except NotFoundError:
            return None
        return row if row.plan_id == name else None

    def list(self, *, limit: int = 50) -> Sequence[PlanRow]:
        """The newest plans first."""
        query = plans.select().order_by(plans.c.created_at.desc(), plans.c.plan_id.desc())
        with self.database.read() as connection:
            return [
                PlanRow.of(row) for row in connection.execute(query.limit(min(limit, MAX_LIST))).mappings()
            ]

    def result(self, name: str) -> ExecutionResult:
        """What came of a plan so far."""
        row = self.get(name)
        with self.database.read() as connection:
            return result_of(connection, row.plan_id, limits=self._limits(row))

    def _limits(self, row: PlanRow) -> Limits:
        settings = self.settings_for(None if row.workspace is None else Path(row.workspace))
        profile = find_profile(row.profile, settings.profiles)
        return tighter(profile.limits, limits_of_settings(settings.limits))

    def signals(self, trace_id: str) -> dict[str, Any]:
        """The golden signals of a trace."""
        return measure(stream(self.database, trace_id)).as_dict()

    def resume(self, name: str, *, by: str, hand_over: bool = True) -> PlanRow:
        """Let a plan go on: an expired question is asked anew, what failed is tried again.

        The supervisor goes on with it, unless the caller keeps it (`hand_over` False) and does so itself.
        """

        def change(connection: sa.Connection) -> tuple[str, list[Draft]]:
            row, _ = plan_rows.load(connection, plan_rows.find_plan(connection, name))
            if hand_over:
                plan_rows.leave_to_supervisor(connection, row.plan_id)
            if row.stage is PlanState.FAILED:
                return row.plan_id, plan_rows.reopen(connection, row, by=by)
            if row.stage in PLAN.terminal:
                PLAN.reopen(row.stage)
            if row.waiting_for is None or self._open_question(connection, row.waiting_for):
                return row.plan_id, []
            mine = plans.update().where(plans.c.plan_id == row.plan_id)
            connection.execute(mine.values(waiting_for=None, not_before=None))
            return row.plan_id, []

        return self.get(self.writer.transact(change))

    def _open_question(self, connection: sa.Connection, approval_id: str) -> bool:
        query = sa.select(approvals.c.status, approvals.c.expires_at)
        found = connection.execute(query.where(approvals.c.approval_id == approval_id)).first()
        return found is not None and found.status == "pending" and found.expires_at > self.clock.now()

    def stuck(self, row: PlanRow) -> bool:
        """Whether it waits for an answer that nobody has given yet."""
        if row.waiting_for is None or row.owner is not None:
            return False
        return Waiter(self.database, self.clock).status(row.waiting_for) in {"pending", "timeout"}

    def cancel(self, name: str, *, by: str) -> PlanRow:
        """Cancel at once what nobody runs; ask the runner to stop what runs."""

        def change(connection: sa.Connection) -> tuple[str, list[Draft]]:
            row, _ = plan_rows.load(connection, plan_rows.find_plan(connection, name))
            if row.stage in PLAN.terminal:
                return row.plan_id, []
            mine = plans.update().where(plans.c.plan_id == row.plan_id)
            if row.owner is not None and not process_is_gone(row.owner):
                connection.execute(mine.values(cancel_requested=True))
                return row.plan_id, []
            return row.plan_id, _cancel_now(connection, row, by, self.clock.now())

        return self.get(self.writer.transact(change))


def _cancel_now(connection: sa.Connection, row: PlanRow, by: str, now: datetime) -> list[Draft]:
    holder = f"cancel:{row.plan_id}"
    taken, _ = plan_rows.claim(connection, row.plan_id, holder, instead_of=row.owner, now=now)
    if taken is None:
        return []
    details = {"by": by}
    _, drafts = plan_rows.end(
        connection, taken, holder, PlanState.CANCELLED, error="it was cancelled", details=details, now=now
    )
    return [replace(one, actor=ActorKind.HUMAN, actor_name=by) for one in drafts]


def process_is_gone(owner: str) -> bool:
    """Whether the owner is a process like ours that certainly runs no more; of executors we cannot tell here."""
    return is_gone(owner.rpartition("|")[0])


def _honoured(plan: Plan, context: ExecutionContext | None) -> tuple[Plan, ExecutionContext]:
    """One trace: that of the context it runs in, else the plan's own; `plan_created` tells when they differ."""
    context = context or ExecutionContext(trace_id=plan.trace_id or new_id("trace"))
    return replace(plan, profile=context.profile or plan.profile), context
