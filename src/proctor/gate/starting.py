"""How a call begins: its row, the answer it uses, its share of the budget and the event of its start are one transaction,
and with it comes its permit. Whoever leaves while that is being written leaves nothing behind that counts as running.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from proctor.gate import calls, leases
from proctor.gate.asking import Asking, Leave
from proctor.gate.calls import Entry
from proctor.gate.holder import this_process
from proctor.gate.leases import Held
from proctor.gate.outcome import Opened, lines, path_of, start_draft, warning_text, wish_of
from proctor.protocol.errors import ProctorError
from proctor.protocol.events import Draft, EventStatus
from proctor.protocol.ids import CallId
from proctor.protocol.permits import mint_permit
from proctor.protocol.ports import Clock
from proctor.protocol.tools import CallError, CallResult, CallState, Usage
from proctor.store.database import Database
from proctor.trace.jobs import Sure
from proctor.trace.writer import TraceWriter

__all__ = ["SETTLE_SECONDS", "Starting"]

SETTLE_SECONDS: Final = 30.0
MAX_SEEN: Final = 4096


class Starting:
    """Begins the calls of one gate."""

    def __init__(self, database: Database, writer: TraceWriter, asking: Asking, clock: Clock) -> None:
        self._database, self._writer = database, writer
        self._asking, self._clock = asking, clock
        self._seen: set[tuple[str, str, str]] = set()  # where calls have begun, as a hint that rows are there

    async def start(self, entry: Entry, leave: Leave, snapshot_id: str | None) -> Opened | CallResult:
        """Begin a call that may; an earlier one with its key that has ended gives its result again."""
        usual = self._usual_start(entry, snapshot_id) if leave.ask is None else None
        tried: list[tuple[str, Held]] = [] if usual is None else [usual.value]

        def begin(connection: sa.Connection) -> tuple[tuple[str, Held] | CallResult, list[Draft]]:
            found, drafts = self._begin(connection, entry, leave, snapshot_id)
            tried.extend([] if isinstance(found, CallResult) else [found])
            return found, drafts

        try:
            begun = await self._writer.transact_async(begin, sure=usual)
        except asyncio.CancelledError:
            await self._call_off(entry, tried)
            raise
        if isinstance(begun, CallResult):
            return begun
        call_id, held = begun
        seconds = min(entry.tool.seconds, held.millis / 1000) if held.millis else entry.tool.seconds
        began = self._clock.monotonic()
        permit = mint_permit(
            call_id=CallId(call_id),
            tool=entry.tool.name,
            actor=entry.call.actor.kind,
            actor_name=entry.call.actor.name,
            content_hash=entry.content_hash,
            expires=time.monotonic() + seconds,
            single_use=entry.tool.single_use,
        )
        notes = (*entry.binding.notes, *leave.notes, *(warning_text(one) for one in held.warnings))
        return Opened(
            entry,
            call_id,
            permit,
            held,
            seconds,
            began,
            leave.approval_id,
            snapshot_id,
            notes,
            leave.confined,
        )

    def _usual_start(self, entry: Entry, snapshot_id: str | None) -> Sure | None:
        """What `_begin` does for a new call far from any limit: known before it is tried."""
        call, now, dialect = entry.call, self._clock.now(), self._database.dialect
        by = leases.Holding(call.call_id, this_process(), now, entry.tool.seconds, call.task_id, call.attempt)
        path = path_of(entry, now)
        place = (path[0].node_id, path[-1].node_id, entry.tool.name)
        reserved = leases.reserve_steps(dialect, path, wish_of(entry), by, seen=place in self._seen)
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen.add(place)
        if reserved is None:
            return None
        steps, held = reserved
        row = calls.save_step(
            dialect,
            entry,
            state=CallState.STARTED.value,
            started_at=now,
            lease_id=held.lease_id,
            snapshot_id=snapshot_id,
        )
        return Sure([*steps, row], [start_draft(entry, call.call_id, None)], (call.call_id, held))

    def _begin(
        self, connection: sa.Connection, entry: Entry, leave: Leave, snapshot_id: str | None
    ) -> tuple[tuple[str, Held] | CallResult, list[Draft]]:
        """The transaction of the permit: row, answer, lease and the event of the start, all or nothing."""
        now = self._clock.now()
        drafts: list[Draft] = []
        row = calls.find_row(connection, entry.key)
        if row is not None:
            calls.refuse_conflict(row, entry)
            state, drafts = calls.open_row(connection, row, now)
            if state is CallState.ENDED and row["started_at"] is not None:
                return calls.result_of(row), []
            if state is CallState.INTERRUPTED and not entry.tool.read_only and leave.ask is None:
                raise calls.CallInProgressError(call_id=row["call_id"])
        self._asking.use(connection, entry, leave, now)
        held = leases.reserve(
            connection,
            path_of(entry, now),
            wish_of(entry),
            call_id=entry.call.call_id if row is None else row["call_id"],
            holder=this_process(),
            now=now,
            seconds=entry.tool.seconds,
            task_id=entry.call.task_id,
            attempt=entry.call.attempt,
        )
        call_id = calls.save(
            connection,
            entry,
            row,
            state=CallState.STARTED.value,
            started_at=now,
            lease_id=held.lease_id,
            approval_id=leave.approval_id,
            snapshot_id=snapshot_id,
            code=None,
            error=None,
        )
        return (call_id, held), [
            *drafts,
            start_draft(entry, call_id, leave.approval_id),
            *lines(entry, held.warnings),
        ]

    async def _call_off(self, entry: Entry, tried: Sequence[tuple[str, Held]]) -> None:
        """The caller left while its start was being written: if it was, end it, so that nothing stays held."""
        now, error = self._clock.now(), CallError("cancelled", "It was cancelled before it ran.", 130)

        def end(connection: sa.Connection) -> tuple[None, list[Draft]]:
            for call_id, held in tried:
                if leases.settle(connection, held, Usage(), millis=1, now=now)[0]:
                    ended = {"state": CallState.ENDED.value, "ended_at": now, "duration_ms": 0.0}
                    known = {"code": error.code, "error": error.message}
                    calls.finish(connection, call_id, held.lease_id, {**ended, **known})
                    details = {"simulated": entry.binding.simulated, **known}
                    failed = EventStatus.ERROR
                    return None, [entry.draft("tool_call_error", failed, details, call_id=call_id)]
            return None, []

        with contextlib.suppress(ProctorError):  # where nothing can be written, the lease's own end decides
            await self._writer.transact_async(end, deadline=SETTLE_SECONDS, whatever_comes=True)
