"""The statements of claiming and ending an attempt, built once: they run several times for every task.

Those that end name task, attempt, owner and state, so that whoever lost the task changes nothing.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from proctor.protocol.states import TaskState
from proctor.store.tables import attempts, controls, events, task_history, task_queue

__all__ = [
    "BEGIN",
    "END_ATTEMPT",
    "GIVE_BACK",
    "HAND_OVER",
    "HISTORY",
    "LEAVE",
    "NEW_ATTEMPT",
    "NOTE",
    "TAKE",
    "TAKE_OVER",
    "attempts_of",
    "ending",
    "wishes_before",
]

MAX_EARLIER = 50
_task: sa.BindParameter[str] = sa.bindparam("b_task")
_attempt: sa.BindParameter[int] = sa.bindparam("b_attempt")
_owner: sa.BindParameter[str] = sa.bindparam("b_owner")
_this = task_queue.c.task_id == _task
_this_attempt = sa.and_(attempts.c.task_id == _task, attempts.c.attempt == _attempt)

_scope = sa.or_(
    controls.c.scope == "all",
    controls.c.scope == sa.literal("session:") + task_queue.c.session_id,
    controls.c.scope == sa.literal("agent:") + task_queue.c.assigned_to_agent,
)
_paused = sa.exists().where(controls.c.paused, _scope).correlate(task_queue).label("paused")

# The row, locked, and whether its scope is paused.
TAKE = sa.select(task_queue, _paused).where(_this).with_for_update(of=task_queue)
GIVE_BACK = task_queue.update().where(_this).values(queued_at=None)
BEGIN = (
    task_queue.update()
    .where(_this)
    .values(
        status=TaskState.IN_PROGRESS.value,
        owner=_owner,
        queued_at=None,
        started_at=sa.bindparam("b_started"),
    )
)
TAKE_OVER = attempts.update().where(_this_attempt).values(owner=_owner)
NEW_ATTEMPT = attempts.insert()
NOTE = attempts.update().where(_this_attempt, attempts.c.owner == _owner)
# What else changes comes with the parameters.
LEAVE = (
    task_queue.update()
    .where(
        _this,
        task_queue.c.attempt == _attempt,
        task_queue.c.owner == _owner,
        task_queue.c.status == TaskState.IN_PROGRESS.value,
    )
    .values(owner=None, queued_at=None)
)
END_ATTEMPT = (
    attempts.update()
    .where(_this_attempt)
    .values(native_id=sa.func.coalesce(sa.bindparam("b_native"), attempts.c.native_id))
)
HISTORY = task_history.insert()
HAND_OVER = (
    task_queue.update()
    .where(_this)
    .values(
        status=TaskState.ASSIGNED.value,
        assigned_to_agent=sa.bindparam("b_agent"),
        attempt=_attempt,
        assigned_at=sa.bindparam("b_now"),
        queued_at=sa.bindparam("b_now"),
        trace_id=sa.bindparam("b_trace"),
        not_before=None,
        error_log=None,
    )
)
_EARLIER = (
    attempts.select()
    .where(attempts.c.task_id == _task)
    .order_by(attempts.c.attempt.desc())
    .limit(MAX_EARLIER)
)

# What a conversation said before the process that goes on with it: in earlier attempts, or before a takeover.
_of_task = events.c.task_id == _task
_began = sa.select(sa.func.max(events.c.seq)).where(
    _of_task, events.c.attempt == _attempt, events.c.event.in_(["attempt_started", "takeover"])
)
_talk = sa.select(attempts.c.native_id).where(_this_attempt)
_same_talk = sa.select(attempts.c.attempt).where(
    attempts.c.task_id == _task,
    attempts.c.attempt <= _attempt,
    attempts.c.native_id == _talk.scalar_subquery(),
)
_WISHES = (
    sa.select(events.c.details)
    .where(
        _of_task,
        events.c.event == "task",
        events.c.attempt.in_(_same_talk),
        events.c.seq < _began.scalar_subquery(),
    )
    .order_by(events.c.seq)
    .limit(MAX_EARLIER)
)


def attempts_of(connection: sa.Connection, task_id: str) -> list[dict[str, Any]]:
    """The newest attempts of a task, the newest first."""
    return [dict(row) for row in connection.execute(_EARLIER, {"b_task": task_id}).mappings()]


def ending(now: datetime, result: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    """What the end of a task writes into its row."""
    return {"completed_at": now, "result": result, "error_log": reason, "cancel_requested": False}


def wishes_before(connection: sa.Connection, task_id: str, attempt: int) -> list[dict[str, Any]]:
    """What the agent wanted to hand on before the process that now ends, as the log has it."""
    found = connection.execute(_WISHES, {"b_task": task_id, "b_attempt": attempt}).scalars()
    return [wish for wish in map(json.loads, found) if wish.get("delegate_to") and wish.get("text")]
