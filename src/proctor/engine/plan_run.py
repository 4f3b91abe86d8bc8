"""Runs the steps of one claimed plan, each as one call through the gate under a key of its own.

A repeated run finds from the rows what is decided and from the gate what was begun, so nothing is done twice. It ends
in one of four ways: the plan's end, parked for a person, given back because somebody else still runs its call, or stopped
with the process and gone on with later. It sleeps for a back-off, never for a person.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from proctor.engine import plan_rows
from proctor.engine.plan_rows import Decided, PlanRow, StepRow
from proctor.engine.plan_tools import StandIn
from proctor.gate.calls import find_row
from proctor.gate.gate import Gate, Tools
from proctor.protocol.errors import ProctorError
from proctor.protocol.events import ActorKind, Draft, EventKind, EventStatus
from proctor.protocol.failures import ErrorPropagation, FailureMode, find_retry, mode_of
from proctor.protocol.limits import Allowance
from proctor.protocol.plans import PlanStep
from proctor.protocol.ports import Clock
from proctor.protocol.states import PlanState
from proctor.protocol.tools import MOCK, REAL, Actor, Call, CallError, CallResult, CallState, SideEffect
from proctor.store.database import Database
from proctor.store.tables import calls, plans
from proctor.trace.writer import TraceWriter

__all__ = ["Doors", "PlanRun", "Waits"]

BUSY: Final = timedelta(seconds=5)
# Ends every plan, whatever its policy: no later step could run either.
_ENDS_ALL: Final = "budget_exceeded:total"
_STOPPED: Final = CallError(
    "interrupted",
    "Proctor was stopped while it ran; whether it took effect is not known. Look, then resume the plan.",
)


@dataclass(frozen=True, slots=True)
class Doors:
    """The gate, and how to make one for a step whose tool nobody has registered."""

    gate: Gate
    registered: Callable[[str], bool]
    stand_in: Callable[[Tools], Gate]


@dataclass(frozen=True, slots=True)
class Waits:
    """How a run waits; tests wait without waiting."""

    hold_s: float = 0.0
    """How long a question may hold the run before the plan is parked; 0: nobody is there to answer."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class _Held:
    """Why a run leaves a plan before its end."""

    approval_id: str | None = None


class PlanRun:
    """One run of one plan."""

    def __init__(
        self,
        row: PlanRow,
        owner: str,
        *,
        doors: Doors,
        database: Database,
        writer: TraceWriter,
        clock: Clock,
        waits: Waits,
        allowances: tuple[Allowance, ...] = (),
    ) -> None:
        self._row = row
        self._owner = owner
        self._doors = doors
        self._database = database
        self._writer = writer
        self._clock = clock
        self._waits = waits
        own = (Allowance(row.plan_id, row.budget),) if row.budget is not None else ()
        self._allowances = (*allowances, *own)

    async def run(self) -> None:
        """Go on from where the rows stand, to the plan's end or to where a person is needed."""
        _, steps = await asyncio.to_thread(self._load)
        for step in steps:
            if step.outcome == "failed" and self._ends(step.failure_mode, step.reason):
                break
            if step.outcome is not None:
                continue
            if await self._asked_to_cancel():
                return await self._cancelled()
            if self._waits.stop.is_set():
                return await self._give_back(None)
            decided = await self._step(step)
            if isinstance(decided, _Held):
                return await self._leave(step, decided)
            if self._waits.cancel.is_set() and decided.code == "cancelled":
                return await self._cancelled()
            if decided.outcome == "failed" and self._ends(decided.failure_mode, decided.reason):
                break
        return await self._end()

    def _load(self) -> tuple[PlanRow, list[StepRow]]:
        with self._database.read() as connection:
            return plan_rows.load(connection, self._row.plan_id)

    async def _asked_to_cancel(self) -> bool:
        if self._waits.cancel.is_set():
            return True
        query = sa.select(plans.c.cancel_requested).where(plans.c.plan_id == self._row.plan_id)

        def look() -> bool:
            with self._database.read() as connection:
                return bool(connection.execute(query).scalar())

        return await asyncio.to_thread(look)

    def _ends(self, mode: FailureMode | None, reason: str) -> bool:
        """Whether a failed step ends the plan: only `continue` and a used-up fallback go on, and not for everything."""
        if reason == _ENDS_ALL or mode is FailureMode.USER_CANCELLED:
            return True
        if self._row.on_error is ErrorPropagation.CONTINUE:
            return False
        return self._row.on_error is not ErrorPropagation.FALLBACK or mode is None or mode.terminal

    # ── one step ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _step(self, step: StepRow) -> Decided | _Held:
        """Try a step as often as the plan's policy says, then its fallback; keep what was decided."""
        policy = find_retry(self._row.retry)
        most = policy.attempts if self._row.on_error is ErrorPropagation.RETRY else 1
        tries, first = step.tries, step.tries
        while True:
            done = await self._call(step, step.step, _key(self._row, step, tries))
            if isinstance(done, _Held):
                return done
            if self._was_stopped(done) and await asyncio.to_thread(self._only_reads, done.call_id):
                tries, first = tries + 1, first + 1
                await self._count(step, tries)
                continue
            done = replace(done, error=_STOPPED) if self._was_stopped(done) else done
            mode = None if done.error is None else _mode(done.error)
            if mode is None or not mode.retryable or tries - first + 1 >= most or self._interrupted():
                break
            await self._pause(policy.delay(tries - first + 1, self._waits.chance()))
            if self._interrupted():
                break
            tries += 1
            await self._count(step, tries)
        if mode is not None and not mode.terminal and self._row.on_error is ErrorPropagation.FALLBACK:
            instead = await self._fall_back(step, tries, done)
            if instead is not None:
                return instead
        return await self._keep(step, done, _key(self._row, step, tries), tries)

    def _interrupted(self) -> bool:
        return self._waits.cancel.is_set() or self._waits.stop.is_set()

    async def _pause(self, seconds: float) -> None:
        """Wait, but not when the plan is cancelled or the process leaves."""
        async with asyncio.TaskGroup() as group:
            waits = [
                group.create_task(self._sleep(seconds)),
                group.create_task(self._waits.cancel.wait()),
                group.create_task(self._waits.stop.wait()),
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()

    async def _sleep(self, seconds: float) -> bool:
        await self._waits.sleep(seconds)
        return True

    async def _count(self, step: StepRow, tries: int) -> None:
        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            plan_rows.next_try(connection, self._row, step.index, tries)
            return None, []

        await self._writer.transact_async(change)

    async def _fall_back(self, step: StepRow, tries: int, failed: CallResult) -> Decided | _Held | None:
        """The step's other tool with the same input, else its mock; None when there is neither."""
        other = step.step.fallback
        key = f"{_key(self._row, step, tries)}:fallback"
        instead = _with(step.step, tool=other or step.step.tool, adapter=None if other else MOCK)
        await self._route(step, instead, failed)
        done = await self._call(step, instead, key)
        if isinstance(done, _Held):
            return done
        if done.error is not None:
            return None
        return await self._keep(step, done, key, tries, fallback=True)

    async def _route(self, step: StepRow, instead: PlanStep, failed: CallResult) -> None:
        code = failed.error.code if failed.error is not None else ""
        details = {
            "step": step.index,
            "selected": instead.tool if instead.tool != step.step.tool else MOCK,
            "reason": f"{step.step.tool} failed ({code})",
            "alternatives": [step.step.tool],
            "fallback": True,
        }
        draft = plan_rows.draft(
            self._row, "route_decision", EventStatus.WARNING, details, kind=EventKind.CANONICAL
        )
        await self._writer.append_async([draft])

    # ── one call ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _call(self, step: StepRow, act: PlanStep, key: str) -> CallResult | _Held:
        call = self._call_of(step, act, key)
        gate = self._doors.stand_in(StandIn(act)) if self._simulates(step, act) else self._doors.gate
        try:
            done = await gate.run(call, hold_s=self._waits.hold_s, cancel=self._waits.cancel)
        except (
            ProctorError
        ) as error:  # it makes no sense to the tool: the step has failed, not the plan's runner
            text = str(error)
            return await self._unheard(call, act, CallError(error.code, text, error.exit_code))
        if done.waiting:
            return _Held(done.approval_id)
        if done.error is not None and done.error.code == "call_in_progress":
            return _Held()
        if done.error is not None and done.error.code in {"adapter_unavailable", "idempotency_conflict"}:
            return await self._unheard(call, act, done.error)
        return done

    def _was_stopped(self, done: CallResult) -> bool:
        """Whether an earlier process left while the call ran, which is not what a person's cancel is."""
        cancelled = done.error is not None and done.error.code == "cancelled"
        return done.replayed and cancelled and not self._waits.cancel.is_set()

    def _only_reads(self, call_id: str) -> bool:
        query = sa.select(calls.c.side_effect).where(calls.c.call_id == call_id)
        with self._database.read() as connection:
            return bool(connection.execute(query).scalar() == SideEffect.READ_ONLY.value)

    def _simulates(self, step: StepRow, act: PlanStep) -> bool:
        """A tool nobody knew when the plan came stays a stand-in; one that was known never becomes one."""
        if act.tool != step.step.tool:
            return not self._doors.registered(act.tool)
        return step.unregistered

    def _call_of(self, step: StepRow, act: PlanStep, key: str) -> Call:
        row = self._row
        usual = MOCK if self._simulates(step, act) else REAL
        return Call(
            tool=act.tool,
            inputs=act.input,
            actor=Actor(ActorKind.AGENT, act.worker or "plan"),
            profile=row.profile,
            workspace=None if row.workspace is None else Path(row.workspace),
            trace_id=row.trace_id,
            session_id=row.session_id,
            task_id=row.plan_id,
            adapter=act.adapter or usual,
            reasoning=act.reason or row.goal,
            idempotency_key=key,
            allowances=self._allowances,
        )

    async def _unheard(self, call: Call, act: PlanStep, error: CallError) -> CallResult:
        """The gate did not even begin with it; the trace says so all the same."""
        details = {"code": error.code, "error": error.message, "call_id": call.call_id}
        draft = plan_rows.draft(
            self._row,
            "tool_call_error",
            EventStatus.ERROR,
            details,
            kind=EventKind.CANONICAL,
            tool=act.tool,
            actor=call.actor.kind,
            actor_name=call.actor.name,
        )
        await self._writer.append_async([draft])
        return CallResult(
            call_id=call.call_id, tool=act.tool, trace_id=call.trace_id, state=CallState.ENDED, error=error
        )

    # ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep(
        self, step: StepRow, done: CallResult, key: str, tries: int, *, fallback: bool = False
    ) -> Decided:
        error = done.error
        decided = Decided(
            index=step.index,
            outcome="completed" if error is None else "failed",
            call_key=key,
            tries=tries,
            fallback=fallback,
            failure_mode=None if error is None else _mode(error),
            code="" if error is None else error.code,
            reason="" if error is None else error.reason,
            error="" if error is None else error.message,
        )

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            known = find_row(connection, key) is not None
            plan_rows.record(
                connection, self._row, decided if known else _rowless(decided), self._clock.now()
            )
            return None, []

        await self._writer.transact_async(change)
        return decided

    async def _leave(self, step: StepRow, held: _Held) -> None:
        if held.approval_id is None:
            return await self._give_back(BUSY)
        approval_id = held.approval_id
        await self._writer.transact_async(
            lambda c: plan_rows.park(c, self._row, self._owner, approval_id=approval_id, step=step.index)
        )
        return None

    async def _give_back(self, wait: timedelta | None) -> None:
        later = None if wait is None else self._clock.now() + wait

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            plan_rows.give_back(connection, self._row, self._owner, not_before=later)
            return None, []

        await self._writer.transact_async(change)

    async def _cancelled(self) -> None:
        await self._finish(PlanState.CANCELLED, "it was cancelled")

    async def _end(self) -> None:
        _, steps = await asyncio.to_thread(self._load)
        failed = [step for step in steps if step.outcome == "failed"]
        if not failed:
            return await self._finish(PlanState.COMPLETED, None)
        return await self._finish(PlanState.FAILED, f"step {failed[0].index}: {failed[0].error}")

    async def _finish(self, stage: PlanState, error: str | None) -> None:
        _, steps = await asyncio.to_thread(self._load)
        details = {
            "steps": len(steps),
            "completed": sum(step.outcome == "completed" for step in steps),
            "failed": sum(step.outcome == "failed" for step in steps),
            **({} if steps else {"note": "the plan was empty: there was nothing to do"}),
            **({} if error is None else {"error": error}),
        }
        now = self._clock.now()
        await self._writer.transact_async(
            lambda c: plan_rows.end(c, self._row, self._owner, stage, error=error, details=details, now=now)
        )
        if self._row.session_id is None:
            await self._doors.gate.finish_run(self._row.run_id)


def _key(row: PlanRow, step: StepRow, tries: int) -> str:
    """What makes a step's call the same call after a restart."""
    again = f":{tries}" if tries > 1 else ""
    return f"{row.plan_id}:{step.index}{again}"


def _mode(error: CallError) -> FailureMode:
    return mode_of(error.code, error.exit_code)


def _rowless(decided: Decided) -> Decided:
    return replace(decided, call_key=None)


def _with(step: PlanStep, *, tool: str, adapter: str | None) -> PlanStep:
    metadata = {name: value for name, value in step.metadata.items() if name not in {"adapter", "fallback"}}
    more = {} if adapter is None else {"adapter": adapter}
    return replace(step, tool=tool, metadata={**metadata, **more})
