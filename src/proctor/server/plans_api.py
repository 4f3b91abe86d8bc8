"""Plans over REST: seed 002's `POST /api/agents/execute`, and how a plan stands in our own words.

A plan is left to whoever executes, and a request only watches it: it goes on when the client leaves, when a person has
answered and after any death. The same plan again repeats nothing. What has not ended is 202 with the place to look at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.engine.controls import ALL, paused_scopes
from proctor.protocol.errors import UsageError
from proctor.protocol.ids import new_id
from proctor.protocol.limits import Limits
from proctor.protocol.plans import (
    DEFAULT_PROFILE,
    MAX_STEPS,
    ExecutionContext,
    ExecutionResult,
    Plan,
    PlanStep,
)
from proctor.protocol.states import PLAN
from proctor.server.answers import REFUSALS, json_response
from proctor.server.front import HOLD_SECONDS, Front, Place
from proctor.server.hub import event_json
from proctor.trace.reader import MAX_PAGE, trace_events

__all__ = ["PlanIn", "router", "status_word"]

WATCH_SECONDS: Final = 3600.0
BEGIN_SECONDS: Final = 20.0
"""How long a plan may be nobody's before the answer is that it has not begun."""
LOOK_SECONDS: Final = 0.25
_BIG: Final = 2**53
_NOT_YET: Final = "It has not ended and goes on by itself; `proctor status` tells when work is paused."
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    **REFUSALS,
    202: {"description": "It has not ended: a person has to answer first, or nobody runs it yet."},
}


class StepIn(BaseModel):
    """One call of a plan."""

    model_config = ConfigDict(extra="ignore")

    tool: str = Field(min_length=1, max_length=90)
    input: dict[str, Any] = Field(default_factory=dict)
    name: str = Field(default="", max_length=200)
    reason: str = Field(default="", max_length=4000)
    metadata: dict[str, Any] = Field(default_factory=dict)


class BudgetIn(BaseModel):
    """Seed 002's budget: calls in all, by domain and by tool."""

    model_config = ConfigDict(extra="forbid")

    total_calls: int | None = Field(default=None, ge=0, lt=_BIG)
    calls_per_domain: dict[str, Annotated[int, Field(ge=0, lt=_BIG)]] = Field(default_factory=dict)
    calls_per_tool: dict[str, Annotated[int, Field(ge=0, lt=_BIG)]] = Field(default_factory=dict)
    warning_threshold: float = Field(default=0.8, gt=0, lt=1)

    def limits(self) -> Limits:
        """As the gate counts."""
        return Limits(
            calls=self.total_calls,
            domains=self.calls_per_domain,
            tools=self.calls_per_tool,
            warn_at=max(1, round(self.warning_threshold * 100)),
        )


class PlanIn(BaseModel):
    """What is to be called, in order, and by which rules."""

    model_config = ConfigDict(extra="ignore")

    plan_id: str | None = Field(default=None, min_length=1, max_length=64)
    goal: str = Field(default="", max_length=10_000)
    steps: list[StepIn] = Field(default_factory=list, max_length=MAX_STEPS)
    profile: str = Field(default=DEFAULT_PROFILE, max_length=50)
    budget: BudgetIn | None = None
    request_id: str | None = Field(default=None, max_length=200)
    memory_scope: str = Field(default="default/session", max_length=200)
    trace_id: str | None = Field(default=None, min_length=1, max_length=64)


def router(front: Front) -> APIRouter:
    """All routes."""
    routes = APIRouter(prefix="/api", responses=REFUSALS)

    @routes.post(
        "/agents/execute",
        response_model=None,
        responses=_ANSWERS,
        tags=["compat"],
        summary="Run a plan, or go on with it",
    )
    async def execute(
        request: Request,
        said: Annotated[PlanIn, Body()],
        hold: Annotated[
            float, Query(ge=0, le=HOLD_SECONDS, description="Wait so long for each answer.")
        ] = 0.0,
        workspace: Place = None,
    ) -> Response:
        plan, context = _plan(said)
        place = front.place(workspace)
        made = await asyncio.to_thread(
            lambda: front.app.plans.submit(plan, context, workspace=place, by=front.user)
        )
        trouble = "" if made.stage in PLAN.terminal else await front.nudge()
        if not trouble:
            await _watch(front, made.plan_id, hold, gone=request.is_disconnected)
        return await _answer(front, made.plan_id, trouble)

    @routes.get("/plans/{plan_id}", response_model=None, tags=["plans"], summary="How a plan stands")
    async def show(plan_id: str) -> Response:
        return json_response((await asyncio.to_thread(front.app.plans.result, plan_id)).as_dict())

    return routes


def _plan(said: PlanIn) -> tuple[Plan, ExecutionContext]:
    texts = [
        said.goal,
        said.request_id or "",
        said.memory_scope,
        *(one.reason + one.name for one in said.steps),
    ]
    if any("\0" in text for text in texts):
        raise UsageError(message="The plan holds a character that cannot be kept.")
    plan = Plan(
        goal=said.goal,
        steps=tuple(
            PlanStep(tool=one.tool, input=one.input, name=one.name, reason=one.reason, metadata=one.metadata)
            for one in said.steps
        ),
        plan_id=said.plan_id or new_id("plan"),
        trace_id=said.trace_id,
        profile=said.profile,
        budget=None if said.budget is None else said.budget.limits(),
    )
    context = ExecutionContext(
        trace_id=said.trace_id or new_id("trace"),
        request_id=said.request_id,
        profile=said.profile,
        memory_scope=said.memory_scope,
    )
    return plan, context


def status_word(result: ExecutionResult) -> str:
    """Seed 002's word: success, partial or failed; what has not ended has not failed."""
    if result.success:
        return "success"
    return "partial" if result.results or result.stage not in PLAN.terminal else "failed"


async def _watch(front: Front, plan_id: str, hold: float, *, gone: Callable[[], Awaitable[bool]]) -> None:
    """Look until it has ended, its question was open for `hold` seconds, nobody takes it, or nobody wants to know."""
    begun = since = time.monotonic()
    stood, wait = "", 0.01
    while not front.closing and time.monotonic() - begun < WATCH_SECONDS and not await gone():
        stands, patience = await asyncio.to_thread(_stands, front, plan_id, hold)
        if stands != stood:
            stood, since = stands, time.monotonic()
        if time.monotonic() - since >= patience:
            return
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, LOOK_SECONDS)


def _stands(front: Front, plan_id: str, hold: float) -> tuple[str, float]:
    """How a plan stands, and how many seconds of that are worth waiting for."""
    row = front.app.plans.get(plan_id)
    if row.stage in PLAN.terminal:
        return "ended", 0.0
    if front.app.plans.stuck(row):
        return f"asks {row.waiting_for}", hold
    if row.owner is not None:
        return "runs", WATCH_SECONDS
    with front.app.database.read() as connection:
        paused = ALL in paused_scopes(connection)
    return ("paused", 0.0) if paused else ("nobody's", BEGIN_SECONDS)


async def _answer(front: Front, plan_id: str, trouble: str) -> Response:
    def facts() -> tuple[ExecutionResult, list[dict[str, Any]], dict[str, Any]]:
        result = front.app.plans.result(plan_id)
        with front.app.database.read() as connection:
            found = trace_events(connection, result.trace_id, limit=MAX_PAGE)
        return result, [event_json(event) for event in found], front.app.plans.signals(result.trace_id)

    result, events, signals = await asyncio.to_thread(facts)
    context = result.failure_context or {}
    ended = result.stage in PLAN.terminal
    missing = "" if ended or result.parked else trouble or _NOT_YET
    body = {
        "status": status_word(result),
        "result": result.as_dict(),
        "error": context.get("message") or missing or None,
        "trace": events,
        "signals": signals,
        "budget": result.budget_utilization,
        "trace_id": result.trace_id,
    }
    if not ended:
        where = {"Location": f"/api/plans/{result.plan_id}", "Retry-After": "5"}
        return json_response(body, 202, where)
    return json_response(body)
