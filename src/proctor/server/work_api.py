"""Work in our own words: what needs a person, tasks, agents and controls. Rows are the truth; nothing is executed here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.agents.roster import Roster
from proctor.engine.controls import ALL, find_session, paused_scopes, scope_of, set_paused
from proctor.engine.overview import Listed, overview
from proctor.engine.tasks import MAX_DESCRIPTION, NewTask, Task
from proctor.protocol.states import TaskState
from proctor.server.agents_api import Agents
from proctor.server.answers import REFUSALS, json_response
from proctor.server.front import Front, Place
from proctor.server.paging import MOST, After, Limit, Page, page_of
from proctor.server.verbs import add_verbs
from proctor.store.glance import glance
from proctor.store.tables import task_queue

__all__ = ["router"]

_NAMES = MOST


class TaskNew(BaseModel):
    """What is to be done."""

    model_config = ConfigDict(extra="forbid")

    description: str = Field(min_length=1, max_length=MAX_DESCRIPTION)
    type: str = Field(default="task", min_length=1, max_length=50)
    priority: int = Field(default=5, ge=1, le=10)
    agent: str | None = Field(default=None, max_length=100, description="Whoever fits by default.")
    depends_on: list[str] = Field(default_factory=list, max_length=_NAMES)
    files: list[str] = Field(default_factory=list, max_length=_NAMES)
    context: dict[str, Any] = Field(default_factory=dict)
    deadline: datetime | None = None
    retries: int = Field(default=2, ge=0, le=100)


class ScopeIn(BaseModel):
    """What to pause or resume; everything by default."""

    model_config = ConfigDict(extra="forbid")

    session: str | None = Field(default=None, min_length=1, max_length=64)
    agent: str | None = Field(default=None, min_length=1, max_length=64)


class Controls(BaseModel):
    """Where nothing new begins."""

    paused: list[str]
    changed: list[str] = Field(default_factory=list)


def router(front: Front, agents: Agents) -> APIRouter:
    """All routes."""
    routes = APIRouter(prefix="/api", responses=REFUSALS)
    _overview(routes, front)
    _tasks(routes, front)
    _new_tasks(routes, front, agents)
    _agents(routes, agents)
    _controls(routes, front)
    return routes


def _overview(routes: APIRouter, front: Front) -> None:
    @routes.get("/overview", response_model=None, tags=["work"], summary="What needs you, runs and has ended")
    async def show(limit: Annotated[int, Query(ge=1, le=MOST)] = 20) -> Response:
        def look() -> dict[str, Any]:
            here = None if front.home is None else str(front.home)
            with glance(front.app.settings.database_url) as found:
                seen = overview(found, workspace=here, limit=limit)
            return {
                name: _listed(value) if isinstance(value, Listed) else value
                for name, value in ((name, getattr(seen, name)) for name in seen.__dataclass_fields__)
            } | {"nobody_executes": seen.abandoned}

        return json_response(await asyncio.to_thread(look))


def _listed(found: Listed[Any]) -> dict[str, Any]:
    return {"rows": [asdict(one) for one in found.rows], "total": found.total, "truncated": found.more > 0}


def _shown(row: Mapping[Any, Any]) -> dict[str, Any]:
    return asdict(Task.of(row))


def _tasks(routes: APIRouter, front: Front) -> None:
    @routes.get("/tasks", response_model=Page, tags=["work"], summary="Tasks, the newest first")
    async def list_tasks(
        status: Annotated[list[TaskState] | None, Query(description="Only these; all by default.")] = None,
        agent: Annotated[str | None, Query(max_length=100)] = None,
        session: Annotated[str | None, Query(max_length=64)] = None,
        workspace: Annotated[str | None, Query(description="Only of this workspace.")] = None,
        limit: Limit = 50,
        after: After = None,
    ) -> Any:
        wanted = {"assigned_to_agent": agent, "session_id": session, "workspace": workspace}
        query = task_queue.select().where(
            *(task_queue.c[name] == value for name, value in wanted.items() if value is not None)
        )
        if status:
            query = query.where(task_queue.c.status.in_([one.value for one in status]))

        def look() -> dict[str, Any]:
            order = task_queue.c.created_at, task_queue.c.task_id
            with front.app.database.read() as connection:
                return page_of(connection, query, order, _shown, limit=limit, after=after)

        return json_response(await asyncio.to_thread(look))

    @routes.get("/tasks/{task_id}", response_model=None, tags=["work"], summary="A task and all its attempts")
    async def show(task_id: str) -> Response:
        found = await asyncio.to_thread(front.app.tasks.show, task_id)
        return json_response({**asdict(found.task), "attempts": found.attempts, "history": found.history})

    verbs = {"cancel": "Cancel it; what runs is stopped", "retry": "Try it again"}
    add_verbs(routes, front, "task", "work", lambda: front.app.tasks, verbs)


def _new_tasks(routes: APIRouter, front: Front, agents: Agents) -> None:
    @routes.post(
        "/tasks", response_model=None, tags=["work"], summary="Put a task into the queue", status_code=201
    )
    async def add(new: Annotated[TaskNew, Body()], workspace: Place = None) -> Response:
        place = front.place(workspace)
        agent = None
        if new.agent is not None:
            agent = (await asyncio.to_thread(agents.facts, new.agent))[0].name
        made = NewTask(
            description=new.description,
            task_type=new.type,
            priority=new.priority,
            agent=agent,
            file_paths=new.files,
            depends_on=new.depends_on,
            context=new.context,
            deadline=new.deadline,
            max_retries=new.retries,
            workspace=str(place),
            created_by=front.user[:100],
        )
        task = await asyncio.to_thread(front.app.tasks.add, made)
        trouble = await front.nudge()
        body = {**asdict(task), "note": f"Nobody executes yet: {trouble}" if trouble else None}
        return json_response(body, 201, {"Location": f"/api/tasks/{task.task_id}"})


def _agents(routes: APIRouter, agents: Agents) -> None:
    @routes.get("/agents", response_model=None, tags=["work"], summary="Who is there, busy or offline")
    async def list_agents(
        everybody: Annotated[bool, Query(description="Also seed agents without key or server.")] = False,
    ) -> Response:
        found = await asyncio.to_thread(agents.facts)
        return json_response([asdict(one) for one in found if everybody or one.shown])

    @routes.get("/agents/{name}", response_model=None, tags=["work"], summary="One agent")
    async def show(name: str) -> Response:
        return json_response(asdict((await asyncio.to_thread(agents.facts, name))[0]))


def _controls(routes: APIRouter, front: Front) -> None:
    def left() -> list[str]:
        with front.app.database.read() as connection:
            return paused_scopes(connection)

    @routes.get("/controls", response_model=Controls, tags=["work"], summary="What is paused")
    async def show() -> Any:
        return json_response({"paused": await asyncio.to_thread(left), "changed": []})

    async def change(said: ScopeIn | None, paused: bool) -> Response:
        scopes = await asyncio.to_thread(_scopes, front, said or ScopeIn(), paused)
        act = partial(set_paused, scopes=scopes, paused=paused, by=front.user, now=datetime.now(UTC))
        changed = await front.app.writer.transact_async(act)
        await front.nudge()
        return json_response({"paused": await asyncio.to_thread(left), "changed": changed})

    @routes.post("/controls/pause", response_model=Controls, tags=["work"], summary="Let nothing new begin")
    async def pause(said: Annotated[ScopeIn | None, Body()] = None) -> Any:
        return await change(said, True)

    @routes.post("/controls/resume", response_model=Controls, tags=["work"], summary="Go on")
    async def resume(said: Annotated[ScopeIn | None, Body()] = None) -> Any:
        return await change(said, False)


def _scopes(front: Front, said: ScopeIn, paused: bool) -> list[str]:
    """What was named, or everything; a pause of what nobody knows would do nothing and is refused."""
    scopes = []
    if said.session is not None:
        if paused:
            with front.app.database.read() as connection:
                find_session(connection, said.session)
        scopes.append(scope_of("session", said.session))
    if said.agent is not None:
        roster = Roster(front.app.settings.agents)
        known = {one.name.casefold(): one.name for one in roster.agents()}
        name = roster.get(said.agent).name if paused else known.get(said.agent.casefold(), said.agent)
        scopes.append(scope_of("agent", name))
    return scopes or [ALL]
