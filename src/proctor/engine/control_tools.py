"""Proctor's own controls as tools: add, list and show tasks, look at everything, pause, go on, stop.

Declared like any other tool, so every door has them and every use passes the gate. An agent at work on a task may look and
may hand on a little work; it does not pause, resume or stop anything: that is for whoever started it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from proctor.agents.roster import Roster
from proctor.engine.claims import MAX_DELEGATIONS
from proctor.engine.control_models import (
    LISTED,
    LONG,
    AddIn,
    AddOut,
    AttemptOut,
    ListIn,
    ListOut,
    NameIn,
    PauseOut,
    ScopeIn,
    ShowOut,
    StatusOut,
    StopIn,
    StopOut,
    TaskOut,
)
from proctor.engine.controls import ALL, paused_scopes, scope_of, set_paused
from proctor.engine.overview import Listed, overview
from proctor.engine.tasks import OPEN, NewTask, Task, Tasks, find_task, insert_task
from proctor.gate.context import Context
from proctor.protocol.errors import ProctorError, RefusedError
from proctor.protocol.events import ActorKind, Draft
from proctor.protocol.tools import SideEffect, Tool
from proctor.store.glance import glance
from proctor.store.tables import task_queue
from proctor.tools.catalog import standard_registry
from proctor.tools.confined import Shell
from proctor.tools.models import NothingIn, now
from proctor.tools.registry import Registry, declare

__all__ = ["control_tools", "whole_registry"]

Wake = Callable[[], object]

SHOWN: Final = 10
SHORT: Final = 300


class NotYoursError(RefusedError):
    """Refused: an agent at work on a task does not {act}. Leave it to the person who started it."""

    code = "not_yours"


def _task(task: Task) -> TaskOut:
    result = task.result or {}
    branch = result.get("branch")
    return TaskOut(
        task_id=task.task_id,
        status=task.status,
        description=_cut(task.description),
        agent=task.agent,
        priority=task.priority,
        created_at=task.created_at,
        error=None if task.error is None else _cut(task.error),
        branch=str(branch) if branch else None,
        simulated=bool(result.get("simulated")),
    )


def _cut(text: str, most: int = SHORT) -> str:
    return text if len(text) <= most else f"{text[:most]}… truncated: {len(text) - most} more characters"


# ── what they do ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Controls:
    """The handlers; `wake` tells whoever executes that there may be something to do."""

    def __init__(self, wake: Wake) -> None:
        self._wake = wake

    async def add(self, context: Context, call: AddIn) -> AddOut:
        agent = None if call.agent is None else Roster(context.settings.agents).get(call.agent).name
        actor = context.call.actor
        place = context.settings.workspace

        def change(connection: sa.Connection) -> tuple[str, list[Draft]]:
            new = NewTask(
                description=call.description,
                priority=call.priority,
                agent=agent,
                file_paths=call.files,
                depends_on=call.after,
                context=_handed_on(connection, context),
                workspace=None if place is None else str(place),
                session_id=context.call.session_id,
                trace_id=context.call.trace_id if context.call.task_id is not None else None,
                created_by=actor.name[:100],
            )
            return insert_task(connection, new, actor.kind)

        task_id = await context.writer.transact_async(change)
        trouble = await self._tell()
        task = await asyncio.to_thread(_tasks(context).get, task_id)
        message = f"{task_id} is in the queue; show_task tells how it stands. {trouble}".strip()
        return AddOut(task=_task(task), message=message)

    async def list(self, context: Context, call: ListIn) -> ListOut:
        status = [state.value for state in call.status] or list(OPEN)
        found = await asyncio.to_thread(lambda: _tasks(context).list(status=status, limit=call.limit + 1))
        return ListOut(tasks=[_task(one) for one in found[: call.limit]], truncated=len(found) > call.limit)

    async def show(self, context: Context, call: NameIn) -> ShowOut:
        detail = await asyncio.to_thread(_tasks(context).show, call.task)
        result = detail.task.result or {}
        return ShowOut(
            task=_task(detail.task),
            result=_cut(str(result.get("text") or ""), LONG),
            commit=str(result["commit"]) if result.get("commit") else None,
            attempts=[_attempt(row) for row in detail.attempts[-LISTED:]],
            truncated=len(detail.attempts) > LISTED,
        )

    async def status(self, context: Context, _call: NothingIn) -> StatusOut:
        return await asyncio.to_thread(_status, context)

    async def pause(self, context: Context, call: ScopeIn) -> PauseOut:
        return await self._set(context, call, paused=True)

    async def resume(self, context: Context, call: ScopeIn) -> PauseOut:
        return await self._set(context, call, paused=False)

    async def _set(self, context: Context, call: ScopeIn, *, paused: bool) -> PauseOut:
        _not_at_work(context, "pause or resume work")
        scope = (
            ALL
            if call.agent is None
            else scope_of("agent", Roster(context.settings.agents).get(call.agent).name)
        )
        actor = context.call.actor

        def change(connection: sa.Connection) -> tuple[tuple[list[str], list[str]], list[Draft]]:
            changed, drafts = set_paused(
                connection, [scope], paused=paused, by=actor.name, now=now(), actor=actor.kind
            )
            return (changed, paused_scopes(connection)), drafts

        changed, left = await context.writer.transact_async(change)
        trouble = await self._tell()
        word = "What runs goes on to its end; nothing new begins." if paused else "New work begins again."
        return PauseOut(changed=changed, paused=left[:LISTED], message=f"{word} {trouble}".strip())

    async def stop(self, context: Context, call: StopIn) -> StopOut:
        _not_at_work(context, "stop tasks")
        names = [call.task] if call.task is not None else await asyncio.to_thread(_open_here, context)
        tasks, actor = _tasks(context), context.call.actor

        def end(name: str) -> Task:
            return tasks.cancel(name, by=actor.name, actor=actor.kind)

        stopped = [await asyncio.to_thread(end, name) for name in names[:LISTED]]
        trouble = await self._tell()
        word = (
            "Stopping; their work is kept, and `proctor tasks retry` opens one again."
            if stopped
            else "Nothing was open."
        )
        more = len(names) > LISTED
        return StopOut(
            tasks=[_task(one) for one in stopped], message=f"{word} {trouble}".strip(), truncated=more
        )

    async def _tell(self) -> str:
        """What was asked for is on disk, so trouble with the executor is only said."""
        try:
            await asyncio.to_thread(self._wake)
        except ProctorError as error:
            return str(error)
        return ""


def _tasks(context: Context) -> Tasks:
    return Tasks(context.database, context.writer)


def _attempt(row: Any) -> AttemptOut:
    return AttemptOut(
        attempt=row["attempt"],
        agent=row["agent_name"],
        outcome=row["outcome"] or "running",
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        tokens=(row["input_tokens"] or 0) + (row["output_tokens"] or 0),
        error=None if row["error"] is None else _cut(row["error"]),
    )


def _not_at_work(context: Context, act: str) -> None:
    if context.call.actor.kind is ActorKind.AGENT and context.call.task_id is not None:
        raise NotYoursError(reason=act, act=act, cure="")


def _handed_on(connection: sa.Connection, context: Context) -> dict[str, Any]:
    """What an agent at work hands on is bounded in depth and number, as a delegation is."""
    task_id = context.call.task_id
    if task_id is None:
        return {}
    depth = int(find_task(connection, task_id).context.get("delegation_depth", 0)) + 1
    mine = sa.and_(
        task_queue.c.trace_id == context.call.trace_id,
        task_queue.c.created_by == context.call.actor.name[:100],
    )
    handed = connection.execute(sa.select(task_queue.c.context).where(mine).limit(1000)).scalars()
    count = sum(1 for one in handed if (one or {}).get("delegated_from") == task_id)
    if depth > MAX_DELEGATIONS or count >= MAX_DELEGATIONS:
        raise RefusedError(
            reason=f"a task hands on at most {MAX_DELEGATIONS} others, {MAX_DELEGATIONS} levels deep",
            cure="Do the rest yourself, or leave it to the person.",
        )
    return {"delegated_from": task_id, "delegation_depth": depth}


def _open_here(context: Context) -> list[str]:
    place = context.settings.workspace
    mine = sa.and_(task_queue.c.status.in_(OPEN), task_queue.c.workspace == str(place))
    query = sa.select(task_queue.c.task_id).where(mine).order_by(task_queue.c.created_at).limit(LISTED + 1)
    with context.database.read() as connection:
        return list(connection.execute(query).scalars())


def _status(context: Context) -> StatusOut:
    place = context.settings.workspace
    with glance(context.settings.database_url) as look:
        found = overview(look, workspace=None if place is None else str(place), limit=SHOWN)
    asked = [
        f"{one.approval_id}: {_cut(one.action)} (`proctor approve {one.approval_id}`)"
        for one in found.approvals.rows
    ]
    stuck = [f"{one.task_id} is blocked: {_cut(one.reason)}" for one in found.blocked.rows]
    offline = [
        f"{one.agent or 'every agent'} is offline: {_cut(one.reason)}" for one in found.offline[:SHOWN]
    ]
    nobody = ["No supervisor runs and tasks are open: `proctor supervisor start`"] if found.abandoned else []
    lists: Sequence[Listed[Any]] = (found.approvals, found.blocked, found.running, found.finished)
    return StatusOut(
        needs_you=[*nobody, *asked, *stuck, *offline],
        running=[
            f"{one.task_id} {one.agent} (attempt {one.attempt}): {_cut(one.title)}"
            for one in found.running.rows
        ],
        waiting=dict(found.waiting),
        finished=[f"{one.task_id} {one.status}: {_cut(one.title)}" for one in found.finished.rows],
        paused=[one.scope for one in found.paused.rows],
        truncated=any(one.more for one in lists),
    )


def control_tools(wake: Wake) -> tuple[Tool, ...]:
    """All of them; `wake` may block and may raise one of our own errors."""
    controls = _Controls(wake)
    return (*_looking(controls), *_acting(controls))


def whole_registry(shell: Shell = "bash", wake: Wake = lambda: None) -> Registry:
    """Every tool there is: the built-in ones and Proctor's own controls."""
    registry = standard_registry(shell)
    for tool in control_tools(wake):
        registry.add(tool)
    return registry


def _looking(controls: _Controls) -> tuple[Tool, ...]:
    looks: dict[str, Any] = {"domain": "tasks", "side_effect": SideEffect.READ_ONLY, "seconds": 60.0}
    return (
        declare(
            name="list_tasks",
            summary="List the tasks in Proctor's queue, open ones by default, the newest first.",
            input=ListIn,
            output=ListOut,
            handler=controls.list,
            **looks,
        ),
        declare(
            name="show_task",
            summary="Show one task: its state, every attempt, what its agent said, branch and commit.",
            input=NameIn,
            output=ShowOut,
            handler=controls.show,
            **looks,
        ),
        declare(
            name="get_status",
            summary="Say what needs the person, what runs, what waits and what has finished, in all repositories.",
            input=NothingIn,
            output=StatusOut,
            handler=controls.status,
            **looks,
        ),
    )


def _acting(controls: _Controls) -> tuple[Tool, ...]:
    effect = SideEffect.EXECUTE
    acts: dict[str, Any] = {"domain": "tasks", "side_effect": effect, "seconds": 120.0, "snapshot": False}
    return (
        declare(
            name="add_task",
            summary="Give work to one of Proctor's agents: it is done in a worktree of its own, in the background, "
            "and committed to a branch. Answers at once with the task's id; use show_task to see how it stands.",
            input=AddIn,
            output=AddOut,
            handler=controls.add,
            **acts,
        ),
        declare(
            name="pause_work",
            summary="Let no new task begin, everywhere or for one agent, until resume_work; what runs goes on to its end.",
            input=ScopeIn,
            output=PauseOut,
            handler=controls.pause,
            **acts,
        ),
        declare(
            name="resume_work",
            summary="Let new tasks begin again after pause_work.",
            input=ScopeIn,
            output=PauseOut,
            handler=controls.resume,
            **acts,
        ),
        declare(
            name="stop_tasks",
            summary="Stop one task, or all open tasks of this workspace, with their agents; their work is kept.",
            input=StopIn,
            output=StopOut,
            handler=controls.stop,
            **acts,
        ),
    )
