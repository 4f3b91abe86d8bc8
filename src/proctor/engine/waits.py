"""Why a task waits, from the same facts that the dispatcher looks at; for people who ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import sqlalchemy as sa

from proctor.engine.agent_facts import AgentFact
from proctor.engine.controls import paused_scopes
from proctor.engine.tasks import Task
from proctor.protocol.states import TaskState
from proctor.store.tables import task_queue

__all__ = ["why_it_waits"]

SHOWN = 3
_WAITS = {TaskState.PENDING, TaskState.ASSIGNED, TaskState.RECOVERING}


def why_it_waits(
    connection: sa.Connection, task: Task, agents: Callable[[], Sequence[AgentFact]], now: datetime
) -> str | None:
    """One sentence; None for a task that somebody works on, that has ended or whose state says it."""
    if task.owner is not None or task.status not in _WAITS:
        return None
    if mine := _paused(connection, task):
        return f"paused ({', '.join(mine)}); `proctor resume` lets it begin"
    if task.not_before is not None and task.not_before > now:
        return f"tried again at {task.not_before.astimezone():%H:%M:%S}, after a pause"
    if names := _not_done(connection, task.depends_on):
        return f"for {', '.join(names)}"
    return _of_agents(task, agents())


def _paused(connection: sa.Connection, task: Task) -> list[str]:
    agent = f"agent:{task.agent}".casefold()
    mine = {"all", f"session:{task.session_id}"}
    return [scope for scope in paused_scopes(connection) if scope in mine or scope.casefold() == agent]


def _not_done(connection: sa.Connection, names: Sequence[str]) -> list[str]:
    query = sa.select(task_queue.c.task_id, task_queue.c.status).where(task_queue.c.task_id.in_(names))
    states = {row.task_id: row.status for row in connection.execute(query)}
    left = [name for name in names if states.get(name) != TaskState.COMPLETED.value]
    more = [f"{len(left) - SHOWN} more"] if len(left) > SHOWN else []
    return [f"{name} ({states.get(name, 'unknown')})" for name in left[:SHOWN]] + more


def _of_agents(task: Task, agents: Sequence[AgentFact]) -> str:
    if task.agent is None:
        online = any(one.online for one in agents)
        return "for an agent that is free" if online else "nobody can work there; see `proctor agents`"
    named = next((one for one in agents if one.name.casefold() == task.agent.casefold()), None)
    if named is None:
        return (
            f"the settings of its workspace name no agent {task.agent}; cancel it, or name it in proctor.toml"
        )
    if not named.online:
        return f"{named.name} is offline: {named.reason.rstrip('.')}. {named.cure}".strip()
    if len(named.current_task_ids) >= named.max_parallel:
        return f"{named.name} works on {', '.join(named.current_task_ids[:SHOWN])}"
    return "about to begin, as soon as a supervisor looks"
