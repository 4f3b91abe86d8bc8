"""Which earlier call a repeated one is, for callers who have no key to say so: models that call a tool again.

The same act of the same agent in the same task (or, without a task, in the same workspace within a day) is the same call
while it waits for an answer, while its end is unknown, and for a while after an answer let it run. Everything else that
looks alike is a new call: running the tests twice is two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proctor.config import Settings
from proctor.gate.adapters import bind
from proctor.gate.approvals import LIFE
from proctor.gate.calls import content_hash
from proctor.gate.gate import Tools
from proctor.gate.profiles import find_profile
from proctor.protocol.ids import CallId
from proctor.protocol.ports import Clock, SystemClock
from proctor.protocol.tools import Call, CallState, SideEffect, Tool
from proctor.store.database import Database
from proctor.store.tables import approvals, calls

__all__ = ["REPLAY", "Earlier", "Repeats"]

REPLAY: Final = timedelta(minutes=10)
"""How long a call that an answer let run gives its result again instead of asking anew."""
# Spelled out, so that the partial index over agents' calls is used.
_AGENTS: Final = calls.c.actor == sa.literal_column("'agent'")
_OPEN: Final = frozenset({CallState.STARTED, CallState.PERMITTED, CallState.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class Earlier:
    """The call that is made again."""

    key: str
    call_id: str
    trace_id: str
    lapsed: str = ""
    """The question that nobody answered in time, if that is why it is still open."""

    def again(self, call: Call) -> Call:
        """The new call as that one: under its key and name, in its trace."""
        return replace(call, idempotency_key=self.key, call_id=CallId(self.call_id), trace_id=self.trace_id)


class Repeats:
    """Finds earlier calls."""

    def __init__(
        self,
        *,
        tools: Tools,
        database: Database,
        settings_for: Callable[[Path | None], Settings],
        clock: Clock | None = None,
    ) -> None:
        self._tools = tools
        self._database = database
        self._settings_for = settings_for
        self._clock = clock or SystemClock()

    def find(self, call: Call) -> Earlier | None:
        """The call this one repeats; None when it is a new one. Raises what makes no sense, as the gate does."""
        tool = self._tools.find(call.tool)
        profile = find_profile(call.profile, self._settings_for(call.rules_from).profiles)
        inputs = self._tools.parse(tool, call.inputs)
        content = content_hash(tool, inputs, call, bind(tool, call.adapter, profile).adapter)
        now = self._clock.now()
        with self._database.read() as connection:
            row = _last(connection, call, tool, content, now)
            if row is None or not _same(connection, row, tool, now):
                return None
            lapsed = _lapsed(connection, row, now)
            return Earlier(row["idempotency_key"], row["call_id"], row["trace_id"], lapsed)


def _last(
    connection: sa.Connection, call: Call, tool: Tool, content: str, now: datetime
) -> Mapping[str, Any] | None:
    alike = sa.and_(
        _AGENTS,
        calls.c.content_hash == content,
        calls.c.actor_name == call.actor.name[:100],
        calls.c.tool_name == tool.name,
        calls.c.requested_at > now - LIFE,
        calls.c.task_id == call.task_id if call.task_id is not None else calls.c.task_id.is_(None),
    )
    query = calls.select().where(alike).order_by(calls.c.requested_at.desc(), calls.c.call_id.desc()).limit(1)
    found = connection.execute(query).mappings().first()
    return None if found is None else dict(found)


def _same(connection: sa.Connection, row: Mapping[str, Any], tool: Tool, now: datetime) -> bool:
    state = CallState(row["state"])
    if state is CallState.WAITING:
        return True
    if state in _OPEN:
        return not tool.read_only  # looking twice at once harms nobody
    answered = row["approval_id"] is not None and row["started_at"] is not None and row["error"] is None
    return answered and row["ended_at"] > now - REPLAY and not _acted_since(connection, row)


def _acted_since(connection: sa.Connection, row: Mapping[str, Any]) -> bool:
    """Whether the same run has changed something meanwhile: then the same words mean a new wish."""
    later = sa.and_(
        calls.c.trace_id == row["trace_id"],
        calls.c.started_at > row["ended_at"],
        calls.c.side_effect != SideEffect.READ_ONLY.value,
    )
    return connection.execute(sa.select(calls.c.call_id).where(later).limit(1)).first() is not None


def _lapsed(connection: sa.Connection, row: Mapping[str, Any], now: datetime) -> str:
    if row["state"] != CallState.WAITING.value or row["approval_id"] is None:
        return ""
    query = sa.select(approvals.c.status, approvals.c.expires_at)
    found = connection.execute(query.where(approvals.c.approval_id == row["approval_id"])).first()
    late = found is not None and (
        found.status == "timeout" or (found.status == "pending" and found.expires_at <= now)
    )
    return str(row["approval_id"]) if late else ""
