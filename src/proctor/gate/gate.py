"""The one door (law 1): policy → budget check → approval if asked → lease, permit and start in one transaction → run →
end and settlement in one transaction.

Every call gets a result, and every result a row and its events; a request that makes no sense raises before any of that.
Whatever ends a running call, an error, a time-out, a cancelled caller, it is settled and its end is written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import sqlalchemy as sa
from pydantic import BaseModel

from proctor.config import Settings
from proctor.gate import calls, leases
from proctor.gate.asking import Asking, Leave
from proctor.gate.calls import Entry
from proctor.gate.context import Context, ProgressCallback
from proctor.gate.judge import Case, judge
from proctor.gate.leases import BudgetExceededError
from proctor.gate.outcome import (
    SHORT,
    AnswerChangedError,
    CallRefusedError,
    Opened,
    denial,
    end_draft,
    error_of,
    estimate_of,
    failure,
    lines,
    shown_inputs,
    too_late,
    unrecorded,
)
from proctor.gate.rulebook import Grounds, RuleBook
from proctor.gate.snapshots import Snapshots
from proctor.gate.starting import SETTLE_SECONDS, Starting
from proctor.gate.verdict import Allow, Deny
from proctor.protocol.errors import ProctorError
from proctor.protocol.events import Draft, EventStatus
from proctor.protocol.ports import Clock, SystemClock
from proctor.protocol.tools import Call, CallError, CallResult, CallState, Tool
from proctor.sandbox.probe import best_level
from proctor.sandbox.spec import Level
from proctor.store.database import Database
from proctor.trace.jobs import Sure
from proctor.trace.rows import Redacts
from proctor.trace.writer import TraceWriter

__all__ = ["Gate", "Tools"]

MAX_ASKS: Final = 3  # how often the ground may change under a question before the caller is told


class Tools(Protocol):
    """What the gate asks of the registry (`proctor.tools.registry.Registry`)."""

    def find(self, name: str) -> Tool:
        """Find a tool by name or alias."""
        ...

    def parse(self, tool: Tool, inputs: Mapping[str, Any]) -> BaseModel:
        """Make the tool's input of what a caller sent."""
        ...


class Gate:
    """The door of this process."""

    def __init__(
        self,
        *,
        tools: Tools,
        database: Database,
        writer: TraceWriter,
        redactor: Redacts,
        settings_for: Callable[[Path | None], Settings],
        snapshots: Snapshots | None = None,
        clock: Clock | None = None,
        level: Callable[[], Level] | None = None,
    ) -> None:
        self._tools = tools
        self._database = database
        self._writer = writer
        self._redactor = redactor
        self._settings_for = settings_for
        self._snapshots = snapshots
        self._clock = clock or SystemClock()
        self._level = level or (lambda: best_level(Level.LIMITS))
        self._rules, self._grounds = RuleBook(), Grounds()
        self._asking = Asking(
            database=database,
            writer=writer,
            redactor=redactor,
            snapshots=snapshots,
            clock=self._clock,
        )
        self._starting = Starting(database, writer, self._asking, self._clock)
        self._known_level: Level | None = None

    # ── the two ways in ───────────────────────────────────────────────────────────────────────────────────────────

    async def run(
        self,
        call: Call,
        *,
        hold_s: float = 0.0,
        progress: ProgressCallback | None = None,
        cancel: asyncio.Event | None = None,
    ) -> CallResult:
        """Carry out a call through its tool's handler.

        When a person must answer first, this waits up to `hold_s` seconds and else gives a result that is waiting: the
        same call again goes on from there. Raises only for an unknown tool or profile and for inputs that fit no model.
        """
        opened = await self._enter(call, hold_s)
        if isinstance(opened, CallResult):
            return opened
        given = {"progress": progress} if progress is not None else {}
        context = Context(
            call=call,
            permit=opened.permit,
            settings=opened.entry.settings,
            database=self._database,
            writer=self._writer,
            confined=opened.confined,
            seconds=opened.seconds,
            cancel=cancel or asyncio.Event(),
            meter=opened.meter,
            **given,
        )
        try:
            await self._handle(opened, context)
        except asyncio.CancelledError:
            opened.error = CallError("cancelled", "It was cancelled while it ran.", 130)
            await self._leave(opened)
            raise
        return await self._leave(opened)

    @contextlib.asynccontextmanager
    async def open(self, call: Call, *, hold_s: float = 0.0) -> AsyncIterator[Opened]:
        """Begin a call whose act is the body of the `async with`: it gets the permit, and is settled at the end.

        Raises `CallRefusedError` when the call does not begin.
        """
        opened = await self._enter(call, hold_s)
        if isinstance(opened, CallResult):
            raise CallRefusedError(opened)
        try:
            yield opened
        except BaseException as error:
            opened.error = failure(error)
            await self._leave(opened)
            raise
        await self._leave(opened)

    # ── before ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _enter(self, call: Call, hold_s: float) -> Opened | CallResult:
        entry = self._understand(call)
        if entry.binding.refused is not None:
            return await self._refuse(entry, denial(entry.binding.refused))
        try:
            earlier = await self._earlier(entry)
            if isinstance(earlier, CallResult):
                return earlier
            return await self._admit(entry, hold_s, interrupted=earlier is CallState.INTERRUPTED)
        except BudgetExceededError as error:
            return await self._refuse(
                entry, error_of(error, str(error.facts["reason"])), event="budget_exceeded"
            )
        except (calls.CallInProgressError, calls.IdempotencyConflictError) as error:
            return unrecorded(call, entry.tool.name, error_of(error))

    def _understand(self, call: Call) -> Entry:
        tool = self._tools.find(call.tool)
        ground = self._grounds.of(tool, call, self._settings_for(call.rules_from))
        inputs = self._tools.parse(tool, call.inputs)
        touches = tuple(tool.touches(inputs)) if tool.touches is not None else ()
        return Entry(
            call=call,
            tool=tool,
            inputs=inputs,
            touches=touches,
            ground=ground,
            content_hash=calls.content_hash(tool, inputs, call, ground.binding.adapter),
            shown=shown_inputs(self._redactor.value(inputs.model_dump(mode="json"))),
        )

    async def _earlier(self, entry: Entry) -> CallState | CallResult | None:
        """What is known of this key: a finished call gives its result again, one left behind is interrupted."""
        if entry.call.idempotency_key is None:
            return None

        def look(connection: sa.Connection) -> tuple[CallState | CallResult | None, list[Draft]]:
            row = calls.find_row(connection, entry.key)
            if row is None:
                return None, []
            calls.refuse_conflict(row, entry)
            state, drafts = calls.open_row(connection, row, self._clock.now())
            done = state is CallState.ENDED and row["started_at"] is not None
            return (calls.result_of(row) if done else state), drafts

        return await self._writer.transact_async(look)

    async def _admit(self, entry: Entry, hold_s: float, *, interrupted: bool) -> Opened | CallResult:
        until = self._clock.monotonic() + hold_s
        for _ in range(MAX_ASKS):
            leave = await self._decide(entry, until, interrupted=interrupted)
            if isinstance(leave, CallResult):
                return leave
            saved = await self._save(entry, leave)
            if isinstance(saved, CallError):
                return await self._refuse(entry, saved)
            with contextlib.suppress(AnswerChangedError):
                return await self._starting.start(entry, leave, saved)
        return await self._refuse(entry, error_of(AnswerChangedError(approval_id="to this call")))

    async def _decide(self, entry: Entry, until: float, *, interrupted: bool) -> Leave | CallResult:
        call = entry.call
        case = Case(
            tool=entry.tool,
            touches=entry.touches,
            actor=call.actor.kind,
            profile=entry.profile,
            workspace=call.workspace,
            # Rules are about what is touched; without that nobody need look whether their files have changed.
            rules=self._rules.of(call.rules_from if entry.touches else None),
            level=self._known_level or await self._best_level(),
            protected=entry.ground.protected,
            interrupted=interrupted,
        )
        verdict = judge(case)
        if isinstance(verdict, Deny):
            return await self._refuse(entry, denial(verdict))
        if isinstance(verdict, Allow):
            return Leave(verdict.confined, verdict.reading, verdict.notes)
        answer = await self._asking.ask(entry, verdict, until)
        return await self._refuse(entry, answer) if isinstance(answer, CallError) else answer

    async def _best_level(self) -> Level:
        if self._known_level is None:
            self._known_level = await asyncio.to_thread(self._level)
        return self._known_level

    # ── beginning ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _save(self, entry: Entry, leave: Leave) -> str | CallError | None:
        """Save the workspace before the first change of a run; without that the call does not begin."""
        wanted = entry.tool.snapshot
        if wanted is None:
            wanted = bool(entry.touches) and not entry.tool.read_only and not leave.reading
        if (
            self._snapshots is None
            or not wanted
            or entry.binding.simulated
            or entry.call.worktree_of is not None
        ):
            return None
        try:
            return await self._snapshots.before_write(entry.call, f"before {entry.tool.name}")
        except (ProctorError, OSError) as error:
            text = f"Refused: the workspace could not be saved first: {error}"
            return CallError("snapshot_failed", text[:SHORT], 5)

    # ── running and ending ────────────────────────────────────────────────────────────────────────────────────────

    async def _handle(self, opened: Opened, context: Context) -> None:
        """Let the handler work within its time; whatever it raises becomes the call's error."""
        entry = opened.entry
        timer = asyncio.timeout(opened.seconds)
        try:
            async with timer:
                output = await entry.binding.handler(context, entry.inputs)
            if not isinstance(output, entry.tool.output):
                raise TypeError(f"the handler gave {type(output).__name__}, not {entry.tool.output.__name__}")
            opened.output = output.model_dump(mode="json")
        except Exception as error:  # noqa: BLE001 - driver boundary: a tool's failure is its call's, never the gate's
            late = timer.expired() and isinstance(error, TimeoutError)
            opened.error = too_late(opened.seconds) if late else failure(error)

    async def _leave(self, opened: Opened) -> CallResult:
        """Write the end and settle, even while the caller is being cancelled."""
        now, duration_ms = self._clock.now(), (self._clock.monotonic() - opened.began) * 1000
        redacted = None if opened.output is None else self._redactor.value(opened.output)
        used = opened.meter.used or estimate_of(opened.entry)
        draft = end_draft(opened, redacted, duration_ms, used)
        held, millis = opened.held, max(1, round(duration_ms))
        row = opened.call_id, held.lease_id, self._last_values(opened, redacted, now, duration_ms)

        def end(connection: sa.Connection) -> tuple[None, list[Draft]]:
            _, reached = leases.settle(connection, held, used, millis=millis, now=now)
            calls.finish(connection, *row)
            return None, [draft, *lines(opened.entry, reached)]

        dialect = self._database.dialect
        settled = leases.settle_steps(dialect, held, used, millis=millis, now=now)
        usual = Sure([*settled, calls.finish_step(dialect, *row)], [draft])
        await self._writer.transact_async(end, deadline=SETTLE_SECONDS, sure=usual, whatever_comes=True)
        return CallResult(
            call_id=opened.call_id,
            tool=opened.entry.tool.name,
            trace_id=opened.entry.call.trace_id,
            state=CallState.ENDED,
            output=opened.output,
            error=opened.error,
            simulated=opened.entry.binding.simulated,
            notes=opened.notes,
            approval_id=opened.approval_id,
            snapshot_id=opened.snapshot_id,
            duration_ms=duration_ms,
        )

    def _last_values(
        self, opened: Opened, output: dict[str, Any] | None, now: datetime, duration_ms: float
    ) -> dict[str, Any]:
        """The columns of a call that has ended."""
        entry, error = opened.entry, opened.error
        keeps = output is not None and (entry.call.idempotency_key is not None or not entry.tool.read_only)
        return {
            "state": CallState.ENDED.value,
            "ended_at": now,
            "duration_ms": duration_ms,
            "result": calls.kept_result(output) if keeps and output is not None else None,
            "code": error.code[:50] if error else None,
            "error": self._redactor.text(error.message)[: calls.MAX_ERROR] if error else None,
        }

    async def _refuse(self, entry: Entry, error: CallError, *, event: str = "tool_call_error") -> CallResult:
        """Write down that a call did not begin; it is not charged."""

        def change(connection: sa.Connection) -> tuple[str, list[Draft]]:
            row = calls.find_row(connection, entry.key)
            if row is not None and row["started_at"] is not None:
                return str(row["call_id"]), []  # what ran before keeps its own end
            values = {"state": CallState.ENDED.value, "ended_at": self._clock.now(), "code": error.code[:50]}
            call_id = calls.save(connection, entry, row, **values, error=error.message[: calls.MAX_ERROR])
            details = {
                "code": error.code,
                "reason": error.reason,
                "error": error.message,
                "inputs": entry.shown,
            }
            return call_id, [entry.draft(event, EventStatus.ERROR, details, duration_ms=0.0, call_id=call_id)]

        call_id = await self._writer.transact_async(change)
        return CallResult(
            call_id=call_id,
            tool=entry.tool.name,
            trace_id=entry.call.trace_id,
            state=CallState.ENDED,
            error=error,
            simulated=entry.binding.simulated,
            notes=entry.binding.notes,
        )

    # ── upkeep ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def finish_run(self, run_id: str) -> int:
        """Let go of the snapshots a run has pinned, when it has ended."""
        return 0 if self._snapshots is None else await self._snapshots.release(run_id)
