"""The seeds' agent API, `/api/v1/agents/…`: who is there, how they do, and the task queue in the seeds' words.

Everything is computed from facts. A task ends by what its attempts prove, so nobody completes one by a request.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import sqlalchemy as sa
from fastapi import APIRouter, Body, Query
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.agents.roster import Roster
from proctor.config import load_settings
from proctor.engine.agent_facts import AgentFact, agent_facts
from proctor.engine.book import SettingsBook
from proctor.engine.by_hand import assign_task, give_up_task
from proctor.engine.seed_rows import task_row
from proctor.engine.tasks import NewTask
from proctor.protocol.errors import NotFoundError, RefusedError
from proctor.protocol.states import TaskState
from proctor.server.answers import REFUSALS, json_response
from proctor.server.front import Front, Place
from proctor.store.glance import glance
from proctor.store.tables import attempts, repo_file_cache

__all__ = ["Agents", "TaskIn", "router"]

SEED_AGENT: Final = "SOLACE"
MOST: Final = 1000
WAITING: Final = (TaskState.PENDING.value, TaskState.ASSIGNED.value)


class TaskIn(BaseModel):
    """What somebody wants done."""

    model_config = ConfigDict(extra="ignore")

    task_type: str = Field(min_length=1, max_length=50)
    description: str = Field(min_length=1)
    priority: int = 5
    file_paths: list[str] = Field(default_factory=list, max_length=MOST)
    depends_on_task_ids: list[str] = Field(default_factory=list, max_length=MOST)
    context: dict[str, Any] = Field(default_factory=dict)
    deadline: datetime | None = None
    agent: str | None = Field(
        default=None, validation_alias=AliasChoices("agent_name", "agent", "assigned_to_agent")
    )
    created_by: str | None = Field(default=None, max_length=100)


class AssignIn(BaseModel):
    """Who is to do it."""

    agent_name: str = Field(min_length=1, max_length=100)


class FailIn(BaseModel):
    """Why it is given up."""

    error_log: str = Field(default="", validation_alias=AliasChoices("error_log", "error"))


class Agents:
    """The roster here, with health that is looked at now and then."""

    def __init__(self, front: Front) -> None:
        self._front = front
        environ = front.app.settings.environ
        self._book = SettingsBook(lambda place: load_settings(place or Path("/"), environ))

    def facts(self, name: str | None = None) -> list[AgentFact]:
        """Everybody, or one; blocks while programs are asked for their version."""
        here = None if self._front.home is None else str(self._front.home)
        settings = self._book.settings(here)
        roster = Roster(settings.agents)
        listed = roster.agents() if name is None else [roster.get(name)]
        with glance(settings.database_url) as look:
            return agent_facts(look, listed, self._book.health(here))


def agent_row(fact: AgentFact) -> dict[str, Any]:
    """An agent in the words of the seeds' table."""
    return {
        "agent_name": fact.name,
        "agent_type": (fact.model.partition(":")[0] if fact.driver == "model" else "") or fact.driver,
        "capabilities": list(fact.capabilities),
        "status": fact.status,
        "current_task_id": fact.current_task_ids[0] if fact.current_task_ids else None,
        "total_tasks_completed": fact.total_tasks_completed,
        "success_rate": fact.success_rate,
        "avg_completion_time_ms": fact.avg_completion_time_ms,
        "last_active_at": fact.last_active_at,
        "simulated": fact.simulated,
        "message": f"{fact.reason}. {fact.cure}".strip() if not fact.online else fact.reason,
    }


def router(front: Front, agents: Agents) -> APIRouter:
    """All routes, the fixed words before the names."""
    routes = APIRouter(prefix="/api/v1/agents", tags=["compat"], responses=REFUSALS)
    _tasks(routes, front, agents)
    _by_hand(routes, front, agents)
    _files(routes, front)
    _builds(routes, front)
    _people(routes, agents)
    return routes


def _people(routes: APIRouter, agents: Agents) -> None:
    @routes.get("", response_model=None, summary="All agents")
    async def list_agents() -> Response:
        return json_response([agent_row(one) for one in await asyncio.to_thread(agents.facts)])

    @routes.get("/{name}", response_model=None, summary="One agent")
    async def show_agent(name: str) -> Response:
        (found,) = await asyncio.to_thread(agents.facts, name)
        return json_response(agent_row(found))

    @routes.get("/{name}/performance", response_model=None, summary="What an agent has done")
    async def performance(name: str) -> Response:
        (found,) = await asyncio.to_thread(agents.facts, name)
        names = ("total_attempts", "total_tasks_completed", "success_rate", "avg_completion_time_ms",
                 "total_tokens", "last_active_at")  # fmt: skip
        return json_response({"agent_name": found.name, **{one: getattr(found, one) for one in names}})


def _tasks(routes: APIRouter, front: Front, agents: Agents) -> None:
    @routes.post("/tasks", response_model=None, summary="Put a task into the queue")
    async def add_task(new: Annotated[TaskIn, Body()], workspace: Place = None) -> Response:
        place = front.place(workspace)
        agent, note = await asyncio.to_thread(_chosen, agents, new.agent)
        made = await asyncio.to_thread(front.app.tasks.add, _new(front, new, agent, place))
        trouble = await front.nudge()
        woken = f"; but nobody executes yet: {trouble}" if trouble else ""
        body = {
            "task_id": made.task_id,
            "assigned_to": agent,
            "message": f"Task created{note}{woken}",
            "trace_id": made.trace_id,
        }
        return json_response(body)

    @routes.get("/tasks/pending", response_model=None, summary="Tasks that wait")
    async def pending(limit: Annotated[int, Query(ge=1, le=MOST)] = 100) -> Response:
        found = await asyncio.to_thread(partial(front.app.tasks.list, status=WAITING, limit=limit))
        return json_response([task_row(one) for one in found])

    @routes.get("/tasks/{task_id}", response_model=None, summary="One task")
    async def show_task(task_id: str) -> Response:
        return json_response(task_row(await asyncio.to_thread(front.app.tasks.get, task_id)))


def _by_hand(routes: APIRouter, front: Front, agents: Agents) -> None:
    """What a person decides about one task."""

    @routes.post("/tasks/{task_id}/assign", response_model=None, summary="Say who is to do it")
    async def assign(task_id: str, said: Annotated[AssignIn, Body()]) -> Response:
        (agent,) = await asyncio.to_thread(agents.facts, said.agent_name)
        change = partial(assign_task, name=task_id, agent=agent.name, by=front.user)
        done = await front.app.writer.transact_async(change)
        await front.nudge()
        body = {"message": f"Assigned to {agent.name}", "task_id": done, "assigned_to": agent.name}
        return json_response(body)

    @routes.post(
        "/tasks/{task_id}/complete", response_model=None, summary="Refused: a task ends by its proof"
    )
    async def complete(task_id: str) -> Response:
        task = await asyncio.to_thread(front.app.tasks.get, task_id)
        if task.status is TaskState.COMPLETED:
            return json_response(
                {"message": "Task completed", "task_id": task.task_id, "status": "completed"}
            )
        raise RefusedError(
            reason=f"nobody's word completes {task.task_id}: a task ends by what its attempts prove",
            cure="POST …/fail gives it up; an agent has to do it.",
        )

    @routes.post("/tasks/{task_id}/fail", response_model=None, summary="Give a task up")
    async def fail(task_id: str, said: Annotated[FailIn | None, Body()] = None) -> Response:
        reason = (said.error_log if said else "") or "given up by hand"
        change = partial(give_up_task, name=task_id, reason=reason, by=front.user, now=datetime.now(UTC))
        done = await front.app.writer.transact_async(change)
        await front.nudge()
        row = task_row(await asyncio.to_thread(front.app.tasks.get, done))
        message = "Task failed" if row["status"] == "failed" else "It runs; it is being stopped"
        return json_response({"message": message, "task_id": done, "status": row["status"]})


def _chosen(agents: Agents, wanted: str | None) -> tuple[str | None, str]:
    """The one who was named; else the seeds' coordinator when it can work, else whoever fits."""
    if wanted is not None:
        return agents.facts(wanted)[0].name, ""
    solace = agents.facts(SEED_AGENT)[0]
    if solace.online:
        return solace.name, ""
    return None, f"; {SEED_AGENT} cannot work ({solace.reason}), so whoever fits gets it"


def _new(front: Front, new: TaskIn, agent: str | None, place: Path) -> NewTask:
    return NewTask(
        description=new.description,
        task_type=new.task_type,
        priority=new.priority,
        agent=agent,
        file_paths=new.file_paths,
        depends_on=new.depends_on_task_ids,
        context=new.context,
        deadline=new.deadline,
        workspace=str(place),
        created_by=(new.created_by or front.user)[:100],
    )


def _builds(routes: APIRouter, front: Front) -> None:
    names = ("task_id", "attempt", "agent_name", "branch", "base_commit", "head_commit", "simulated", "started_at",
             "ended_at", "outcome", "error")  # fmt: skip

    def rows(limit: int) -> list[dict[str, Any]]:
        query = sa.select(*(attempts.c[name] for name in names)).where(attempts.c.ended_at.is_not(None))
        order = attempts.c.ended_at.desc(), attempts.c.task_id, attempts.c.attempt.desc()
        with front.app.database.read() as connection:
            found = connection.execute(query.order_by(*order).limit(limit)).mappings().all()
        return [{"build_id": f"{row['task_id']}.{row['attempt']}", **row} for row in found]

    @routes.get("/builds", response_model=None, summary="Attempts that have ended, the newest first")
    async def builds(limit: Annotated[int, Query(ge=1, le=MOST)] = 100) -> Response:
        return json_response(await asyncio.to_thread(rows, limit))


def _files(routes: APIRouter, front: Front) -> None:
    def rows(place: Path, path: str | None, limit: int) -> list[dict[str, Any]]:
        query = repo_file_cache.select().where(repo_file_cache.c.workspace == str(place))
        if path is not None:
            query = query.where(repo_file_cache.c.file_path == path)
        with front.app.database.read() as connection:
            found = connection.execute(query.order_by(repo_file_cache.c.file_path).limit(limit))
            return [dict(row) for row in found.mappings()]

    @routes.get("/files", response_model=None, summary="Files that the last scan has seen")
    async def files(limit: Annotated[int, Query(ge=1, le=MOST)] = MOST, workspace: Place = None) -> Response:
        return json_response(await asyncio.to_thread(rows, front.place(workspace), None, limit))

    @routes.get("/files/by-path", response_model=None, summary="One file of the last scan")
    async def by_path(
        path: Annotated[str, Query(min_length=1, max_length=4096)], workspace: Place = None
    ) -> Response:
        found = await asyncio.to_thread(rows, front.place(workspace), path, 1)
        if not found:
            cure = "Scan first: POST /api/v1/solace-orch/orchestrate/scan."
            raise NotFoundError(kind="scanned file", name=path[:200], cure=cure)
        return json_response(found[0])
