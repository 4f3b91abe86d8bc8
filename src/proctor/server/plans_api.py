"""Plans over REST: seed 002's `POST /api/agents/execute`, and how a plan stands in our own words.

A plan runs in this process and its rows are the truth: the same plan again goes on where it stands, repeating nothing. Where
a person must answer first the answer is 202 with the place to look at.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.engine.plan_run import Waits
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
from proctor.server.answers import REFUSALS, json_response
from proctor.server.front import HOLD_SECONDS, Front, Place
from proctor.server.hub import event_json
from proctor.trace.reader import MAX_PAGE, trace_events

__all__ = ["PlanIn", "router", "status_word"]

_BIG: Final = 2**53


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
        "/agents/execute", response_model=None, tags=["compat"], summary="Run a plan, or go on with it"
    )
    async def execute(
        said: Annotated[PlanIn, Body()],
        hold: Annotated[
            float, Query(ge=0, le=HOLD_SECONDS, description="Wait so long for each answer.")
        ] = 0.0,
        workspace: Place = None,
    ) -> Response:
        plan, context = _plan(said)
        result = await front.app.plans.execute_plan(
            plan, context, workspace=front.place(workspace), waits=Waits(hold_s=hold), by=front.user
        )
        return await _answer(front, result)

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
    """Seed 002's word: success, partial or failed; what waits for a person has not failed."""
    if result.success:
        return "success"
    return "partial" if result.results or result.parked else "failed"


async def _answer(front: Front, result: ExecutionResult) -> Response:
    def facts() -> tuple[list[dict[str, Any]], dict[str, Any]]:
        with front.app.database.read() as connection:
            found = trace_events(connection, result.trace_id, limit=MAX_PAGE)
        return [event_json(event) for event in found], front.app.plans.signals(result.trace_id)

    events, signals = await asyncio.to_thread(facts)
    context = result.failure_context or {}
    body = {
        "status": status_word(result),
        "result": result.as_dict(),
        "error": context.get("message") or None,
        "trace": events,
        "signals": signals,
        "budget": result.budget_utilization,
        "trace_id": result.trace_id,
    }
    if result.parked:
        where = {"Location": f"/api/plans/{result.plan_id}", "Retry-After": "5"}
        return json_response(body, 202, where)
    return json_response(body)
