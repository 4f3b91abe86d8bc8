"""Reading the queue, changing it by hand and waiting for a task, for the façade of seed 000's coordinator.

Everything that changes goes through the queue's own functions with their events. A task's and an agent's status are facts:
what cannot be brought about by a person's decision is refused, never written down.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proctor.agents.health import health
from proctor.agents.roster import Roster
from proctor.compat.house import House
from proctor.engine import client
from proctor.engine.agent_facts import AgentFact, agent_facts
from proctor.engine.by_hand import assign_task, give_up_task
from proctor.engine.controls import scope_of, set_paused
from proctor.engine.seed_rows import task_row
from proctor.engine.tasks import NewTask, Task
from proctor.protocol.errors import RefusedError, UsageError
from proctor.protocol.events import ActorKind, Draft, EventStatus
from proctor.protocol.states import TASK, TaskState
from proctor.store.glance import glance
from proctor.store.tables import task_history, task_queue

__all__ = ["AgentOfflineError", "NotByHandError", "Queue"]

BATCH: Final = 10
LOOK_SECONDS: Final = 0.2
ENSURE_SECONDS: Final = 5.0
_WAITING: Final = (TaskState.PENDING.value, TaskState.ASSIGNED.value)
_STUCK: Final = frozenset({TaskState.AWAITING_APPROVAL, TaskState.BLOCKED})


class NotByHandError(RefusedError):
    """Refused: {what} is {found!r}, and {wanted!r} is a fact that nobody writes down. {cure}"""

    code = "not_by_hand"


class AgentOfflineError(RefusedError):
    """Refused: {name} cannot work now ({reason}). {cure}"""

    code = "agent_offline"


class Queue:
    """The queue of one state, seen from one workspace."""

    def __init__(self, house: House, workspace: Path) -> None:
        self._house = house
        self._workspace = workspace

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def pending(self) -> list[dict[str, Any]]:
        """The next ten that wait: the highest priority first, then the oldest."""
        query = task_queue.select().where(task_queue.c.status.in_(_WAITING))
        query = query.order_by(task_queue.c.priority.desc(), task_queue.c.created_at).limit(BATCH)
        with self._house.app.database.read() as connection:
            return [task_row(Task.of(row)) for row in connection.execute(query).mappings()]

    def agent(self, name: str) -> AgentFact:
        """One agent, from facts: what it is, whether it can work, what it does."""
        settings = self._house.app.settings_for(self._workspace)
        found = Roster(settings.agents).get(name)
        with glance(settings.database_url) as look:
            (fact,) = agent_facts(look, [found], {found.name: health(found, settings.environ)})
        return fact

    def history(self, agent_name: str, task_id: str) -> dict[str, Any] | None:
        """The newest entry of an agent's history of a task, as its attempt wrote it."""
        mine = sa.and_(task_history.c.task_id == task_id, task_history.c.agent_name == agent_name)
        query = task_history.select().where(mine).order_by(task_history.c.created_at.desc()).limit(1)
        with self._house.app.database.read() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else dict(row)

    def delegated(self, task: Task) -> Task | None:
        """The task that an agent handed on while it worked on this one."""
        mine = sa.and_(
            task_queue.c.trace_id == task.trace_id,
            task_queue.c.context["delegated_from"].as_string() == task.task_id,
        )
        query = task_queue.select().where(mine).order_by(task_queue.c.created_at.desc()).limit(1)
        with self._house.app.database.read() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else Task.of(row)

    # ── by hand ───────────────────────────────────────────────────────────────────────────────────────────────────

    def set_status(self, task_id: str, status: str, *, error: str | None) -> dict[str, Any]:
        """Bring a status about where a person's decision can: give up, try again. One that holds already stays."""
        app = self._house.app
        task = app.tasks.get(task_id)
        row, by = task_row(task), self._house.person().name
        if status not in {"pending", "assigned", "in_progress", "completed", "failed"}:
            raise UsageError(message=f"{status!r} is no status of a task: pending, assigned, failed …")
        if row["status"] == status or (status == "assigned" and task.status is TaskState.PENDING):
            return row
        if status == "failed" and task.status not in TASK.terminal:
            reason = error or "given up by hand"
            change = partial(give_up_task, name=task_id, reason=reason, by=by, now=datetime.now(UTC))
            app.writer.transact(change)
        elif status in {"pending", "assigned"} and task.status in {*TASK.reopens, TaskState.BLOCKED}:
            app.tasks.retry(task_id, by=by)
        else:
            cure = "A task runs and completes by what its attempts do: execute_task(task)."
            raise NotByHandError(what=task.task_id, found=row["status"], wanted=status, cure=cure)
        return task_row(app.tasks.get(task_id))

    def set_agent(self, name: str, status: str) -> dict[str, Any]:
        """`offline` lets an agent begin nothing more, `idle` takes that back; whether it is busy is a fact."""
        if status not in {"idle", "busy", "offline"}:
            raise UsageError(message=f"{status!r} is no status of an agent: idle, busy or offline.")
        fact = self.agent(name)
        if status == "busy" and fact.status != "busy":
            cure = "An agent is busy while an attempt of its runs: execute_task(task)."
            raise NotByHandError(what=fact.name, found=fact.status, wanted=status, cure=cure)
        if status != "busy":
            scopes, paused = [scope_of("agent", fact.name)], status == "offline"
            by, now = self._house.person().name, datetime.now(UTC)
            self._house.app.writer.transact(lambda c: set_paused(c, scopes, paused=paused, by=by, now=now))
            client.wake(self._house.app.settings.paths)
            fact = self.agent(name)
        return {
            "agent_name": fact.name,
            "status": fact.status,
            "paused": fact.paused,
            "current_task_id": fact.current_task_ids[0] if fact.current_task_ids else None,
            "message": fact.reason,
        }

    def note(self, agent_name: str, task_id: str, claim: Mapping[str, Any]) -> None:
        """Write what somebody says of a task into its trace, as the claim it is."""
        task = self._house.app.tasks.get(task_id)
        draft = Draft(
            trace_id=task.trace_id or task.task_id,
            event="note",
            status=EventStatus.SUCCESS if claim.get("success") else EventStatus.WARNING,
            actor=ActorKind.HUMAN,
            actor_name=self._house.person().name,
            task_id=task.task_id,
            session_id=task.session_id,
            details={"claim": {"agent_name": agent_name, **claim}},
        )
        self._house.app.writer.append([draft])

    # ── executing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def hand_over(self, task: Mapping[str, Any] | str, agent: str | None) -> Task:
        """Find the task or put it in, and say who is to do it."""
        tasks = self._house.app.tasks
        known = task if isinstance(task, str) else task.get("task_id")
        name = None if agent is None else self._able(agent)
        if known is None:
            assert not isinstance(task, str)
            return tasks.add(self._new(task, name))
        found = tasks.get(str(known))
        if name is not None and found.agent != name and found.status not in TASK.terminal:
            by = self._house.person().name
            self._house.app.writer.transact(
                lambda connection: assign_task(connection, found.task_id, name, by=by)
            )
        return tasks.get(found.task_id)

    def _able(self, agent: str) -> str:
        """The agent's name; one that cannot begin would keep its caller waiting for nothing."""
        fact = self.agent(agent)
        if not fact.online:
            raise AgentOfflineError(name=fact.name, reason=fact.reason.rstrip("."), cure=fact.cure)
        return fact.name

    def _new(self, task: Mapping[str, Any], agent: str | None) -> NewTask:
        return NewTask(
            description=str(task.get("description") or ""),
            task_type=str(task.get("task_type") or "task")[:50],
            priority=int(task.get("priority") or 5),
            agent=agent or task.get("assigned_to_agent"),
            file_paths=list(task.get("file_paths") or ()),
            depends_on=list(task.get("depends_on_task_ids") or ()),
            context=dict(task.get("context") or {}),
            workspace=str(task.get("workspace") or self._workspace),
            created_by=str(task.get("created_by") or self._house.person().name)[:100],
        )

    def wait(self, task: Task, seconds: float) -> Task:
        """Until the task has ended, needs a person, or the time is over; the supervisor does the work."""
        settings, tasks = self._house.app.settings, self._house.app.tasks
        deadline, ensured = time.monotonic() + seconds, 0.0
        while True:
            if not ensured or time.monotonic() - ensured > ENSURE_SECONDS:
                client.ensure(settings)  # it may have died meanwhile
                ensured = time.monotonic()
            now = tasks.get(task.task_id)
            if now.status in TASK.terminal or now.status in _STUCK or time.monotonic() > deadline:
                return now
            time.sleep(LOOK_SECONDS)
