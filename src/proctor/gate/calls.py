"""The rows of calls: one per idempotency key, from request to end, so that nothing runs twice by accident (law 4).

All functions work inside the caller's transaction, which holds the log's lock: whoever looks a key up there may insert it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from pydantic import BaseModel
from pydantic_core import to_json

from proctor.config import Settings
from proctor.gate.adapters import Binding
from proctor.gate.holder import is_gone
from proctor.gate.leases import open_leases, reap
from proctor.gate.profiles import Profile
from proctor.gate.rulebook import Ground
from proctor.protocol.errors import RefusedError
from proctor.protocol.events import ActorKind, Draft, EventKind, EventStatus
from proctor.protocol.tools import Call, CallError, CallResult, CallState, Tool, Touch
from proctor.store.lane import Step
from proctor.store.quick import Quick
from proctor.store.tables import attempts, calls, leases

__all__ = [
    "CallInProgressError",
    "Entry",
    "IdempotencyConflictError",
    "content_hash",
    "find_row",
    "finish",
    "finish_step",
    "kept_result",
    "open_row",
    "reap_dead",
    "refuse_conflict",
    "result_of",
    "save",
    "save_step",
]

MAX_RESULT: Final = 512 * 1024
MAX_ERROR: Final = 4000
SETTLING: Final = timedelta(seconds=60)
# Built once: every call passes them.
_FIND: Final = Quick(lambda _, __: calls.select().where(calls.c.idempotency_key == sa.bindparam("wanted")))
_FINISH: Final = Quick(
    lambda _, __: calls.update().where(
        calls.c.call_id == sa.bindparam("own_id"), calls.c.lease_id == sa.bindparam("own_lease")
    ),
    inserts=True,
)
_INSERT: Final = Quick(lambda _, __: calls.insert(), inserts=True)


class IdempotencyConflictError(RefusedError):
    """Refused: the key {key!r} belongs to another call ({what} differs). Use a new key for a new call."""

    code = "idempotency_conflict"


class CallInProgressError(RefusedError):
    """Refused: call {call_id} with this key is running. Wait for its end and ask again with the same key."""

    code = "call_in_progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A call that was understood: the tool, its typed input, what it touches, and by which rules."""

    call: Call
    tool: Tool
    inputs: BaseModel
    touches: tuple[Touch, ...]
    ground: Ground
    content_hash: str
    shown: Mapping[str, Any]
    """The inputs without secrets, for rows and people."""

    @property
    def profile(self) -> Profile:
        """The rules it is judged by."""
        return self.ground.profile

    @property
    def settings(self) -> Settings:
        """Of the workspace whose rules hold."""
        return self.ground.settings

    @property
    def binding(self) -> Binding:
        """How it is carried out."""
        return self.ground.binding

    @property
    def key(self) -> str:
        """What makes it the same call again."""
        return self.call.idempotency_key or self.call.call_id

    def draft(
        self,
        event: str,
        status: EventStatus,
        details: Mapping[str, Any],
        *,
        duration_ms: float | None = None,
        call_id: str | None = None,
    ) -> Draft:
        """An event of this call."""
        call = self.call
        return Draft(
            trace_id=call.trace_id,
            event=event,
            kind=EventKind.CANONICAL,
            status=status,
            actor=call.actor.kind,
            actor_name=call.actor.name,
            session_id=call.session_id,
            task_id=call.task_id,
            attempt=call.attempt,
            tool_name=self.tool.name,
            duration_ms=duration_ms,
            details={"call_id": call_id or call.call_id, **details},
        )


def content_hash(tool: Tool, inputs: BaseModel, call: Call, adapter: str) -> str:
    """Name exactly what is to be done: the tool, its whole input, where, and through which adapter."""
    # Dumped in Python's own types: bytes that are no text must not make two inputs equal.
    whole = [tool.name, inputs.model_dump(), str(call.workspace or ""), adapter]
    return hashlib.sha256(to_json(whole, bytes_mode="hex", serialize_unknown=True)).hexdigest()


def find_row(connection: sa.Connection, key: str) -> Mapping[str, Any] | None:
    """The row of a key."""
    found = _FIND.rows(connection, {"wanted": key})
    return found[0] if found else None


def refuse_conflict(row: Mapping[str, Any], entry: Entry) -> None:
    """The same key must be the same act by the same actor."""
    same = {
        "content": (row["content_hash"], entry.content_hash),
        "actor": (row["actor"], entry.call.actor.kind.value),
        "actor's name": (row["actor_name"], entry.call.actor.name[:100]),
    }
    for what, (before, now) in same.items():
        if before != now:
            raise IdempotencyConflictError(key=entry.key[:80], what=what)


def open_row(
    connection: sa.Connection, row: Mapping[str, Any], now: datetime
) -> tuple[CallState, list[Draft]]:
    """How an earlier row really stands; one whose holder is gone becomes interrupted here."""
    state = CallState(row["state"])
    if state is CallState.WAITING and row["started_at"] is not None:
        return CallState.INTERRUPTED, []  # it waits for leave to begin again, and has begun before
    if state not in {CallState.STARTED, CallState.PERMITTED}:
        return state, []
    lease = connection.execute(leases.select().where(leases.c.lease_id == row["lease_id"])).mappings().first()
    if lease is not None and lease["expires_at"] > now and not is_gone(lease["holder"]):
        raise CallInProgressError(call_id=row["call_id"])
    reap(connection, [row["lease_id"]] if lease is not None else [], now=now)
    return CallState.INTERRUPTED, _interrupt(connection, [row])


def _interrupt(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> list[Draft]:
    ids = [row["call_id"] for row in rows]
    running = [CallState.STARTED.value, CallState.PERMITTED.value]
    mine = sa.and_(calls.c.call_id.in_(ids), calls.c.state.in_(running))
    values = {"state": CallState.INTERRUPTED.value, "code": "interrupted"}
    connection.execute(calls.update().where(mine).values(values))
    return [
        Draft(
            trace_id=row["trace_id"],
            event="tool_call_error",
            kind=EventKind.CANONICAL,
            status=EventStatus.ERROR,
            actor=ActorKind(row["actor"]),
            actor_name=row["actor_name"],
            session_id=row["session_id"],
            task_id=row["task_id"],
            attempt=row["attempt"],
            tool_name=row["tool_name"],
            details={
                "call_id": row["call_id"],
                "code": "interrupted",
                "error": "its process ended before it did",
            },
        )
        for row in rows
    ]


def reap_dead(
    connection: sa.Connection, now: datetime, *, dead: frozenset[str] = frozenset()
) -> tuple[int, list[Draft]]:
    """Charge and close what was left behind: by processes that are gone or named dead, by attempts that have ended,
    and by whoever is past the end of the lease.
    """
    held = open_leases(connection, now)
    ended = _ended_attempts(connection, held, now)
    gone = [
        row
        for row in held
        if row["expires_at"] <= now
        or row["holder"] in dead
        or (row["task_id"], row["attempt"]) in ended
        or is_gone(row["holder"])
    ]
    done = set(reap(connection, [row["lease_id"] for row in gone], now=now))
    if not done:
        return 0, []
    running = [CallState.STARTED.value, CallState.PERMITTED.value]
    held_by = {row["call_id"] for row in gone if row["lease_id"] in done}
    theirs = sa.and_(calls.c.call_id.in_(held_by), calls.c.lease_id.in_(done))
    query = calls.select().where(theirs, calls.c.state.in_(running))
    rows = [dict(row) for row in connection.execute(query).mappings()]
    return len(done), _interrupt(connection, rows)


def _ended_attempts(
    connection: sa.Connection, held: Sequence[Mapping[str, Any]], now: datetime
) -> set[tuple[str, int]]:
    """Attempts that ended a while ago and still hold leases; one that just ended may be settling."""
    tasks = {row["task_id"] for row in held if row["task_id"] is not None and row["attempt"] is not None}
    if not tasks:
        return set()
    query = sa.select(attempts.c.task_id, attempts.c.attempt).where(
        attempts.c.task_id.in_(tasks), attempts.c.ended_at <= now - SETTLING
    )
    return {(row.task_id, row.attempt) for row in connection.execute(query)}


def save(connection: sa.Connection, entry: Entry, before: Mapping[str, Any] | None, **values: Any) -> str:
    """Write the call's row, new or again; gives the id under which it stands."""
    if before is not None:
        own = calls.c.call_id == before["call_id"]
        connection.execute(calls.update().where(own).values(**values))
        return str(before["call_id"])
    _INSERT.run(connection, _new_row(entry, values))
    return entry.call.call_id


def _new_row(entry: Entry, values: Mapping[str, Any]) -> dict[str, Any]:
    call = entry.call
    return {
        "call_id": call.call_id,
        "idempotency_key": entry.key,
        "content_hash": entry.content_hash,
        "tool_name": entry.tool.name,
        "domain": entry.tool.domain,
        "side_effect": entry.tool.side_effect.value,
        "adapter": entry.binding.adapter[:50],
        "simulated": entry.binding.simulated,
        "actor": call.actor.kind.value,
        "actor_name": call.actor.name[:100],
        "trace_id": call.trace_id,
        "session_id": call.session_id,
        "task_id": call.task_id,
        "attempt": call.attempt,
        "profile": entry.profile.name[:50],
        "workspace": None if call.workspace is None else str(call.workspace),
        "inputs": dict(entry.shown),
        **values,
    }


def save_step(dialect: str, entry: Entry, **values: Any) -> Step:
    """Write the row of a call whose key nobody has used, as a step of the quick lane."""
    return _INSERT.step(dialect, _new_row(entry, values))


def finish(connection: sa.Connection, call_id: str, lease_id: str, values: Mapping[str, Any]) -> None:
    """Write a call's end, unless it was given up for dead and begun again under another lease."""
    _FINISH.run(connection, {"own_id": call_id, "own_lease": lease_id, **values})


def finish_step(dialect: str, call_id: str, lease_id: str, values: Mapping[str, Any]) -> Step:
    """The same as a step of the quick lane."""
    return _FINISH.step(dialect, {"own_id": call_id, "own_lease": lease_id, **values})


def kept_result(output: Mapping[str, Any]) -> dict[str, Any] | None:
    """What of an output is kept for a repeated call; too large a one is not."""
    return dict(output) if len(to_json(output, serialize_unknown=True)) <= MAX_RESULT else None


def result_of(row: Mapping[str, Any]) -> CallResult:
    """The result of an earlier call, as it was kept (without secrets)."""
    error = CallError(row["code"] or "failed", row["error"]) if row["error"] is not None else None
    kept = row["result"] is not None or error is not None
    return CallResult(
        call_id=row["call_id"],
        tool=row["tool_name"],
        trace_id=row["trace_id"],
        state=CallState(row["state"]),
        output=row["result"],
        error=error,
        simulated=row["simulated"],
        notes=() if kept else ("It was done before; its output was not kept.",),
        approval_id=row["approval_id"],
        snapshot_id=row["snapshot_id"],
        duration_ms=row["duration_ms"] or 0.0,
        replayed=True,
    )
