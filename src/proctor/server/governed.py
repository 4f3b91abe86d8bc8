"""Seed 002's REST: budgets, traces, profiles and capabilities, all read from what really is.

Nothing here is made up when something is missing: what does not exist is 404, what has no limit says null.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import sqlalchemy as sa
from fastapi import APIRouter, Body, Query
from pydantic import AliasChoices, BaseModel, Field
from starlette.responses import Response

from proctor.gate.adapters import bind
from proctor.gate.limits import TOTAL, tighter
from proctor.gate.profiles import Profile, all_profiles, limits_of_settings
from proctor.gate.report import report_of
from proctor.protocol.errors import NotFoundError
from proctor.protocol.tools import REAL, Tool
from proctor.server.answers import REFUSALS, json_response
from proctor.server.front import MAX_NAME, Front
from proctor.server.hub import event_json
from proctor.store.tables import budget_nodes
from proctor.trace.reader import MAX_PAGE, stream, trace_events
from proctor.trace.signals import measure

__all__ = ["budget_of", "profile_row", "router"]

FEATURES: Final = ("trace_continuity", "budget_enforcement", "approvals", "profiles", "graceful_degradation")
Run = Annotated[
    str | None, Query(max_length=MAX_NAME, description="A session or trace; the busiest by default.")
]


class ProfileIn(BaseModel):
    """Which rules are to hold for requests to this server."""

    profile_id: str = Field(
        min_length=1, max_length=50, validation_alias=AliasChoices("profile_id", "profile_name", "profile")
    )


def router(front: Front) -> APIRouter:
    """All routes of this dialect but execute and approve."""
    routes = APIRouter(prefix="/api", tags=["compat"], responses=REFUSALS)
    _agents(routes, front)
    _capabilities(routes, front)
    _profile(routes, front)
    return routes


# ── budgets and traces ────────────────────────────────────────────────────────────────────────────────────────────


def _agents(routes: APIRouter, front: Front) -> None:
    @routes.get(
        "/agents/budget/{profile}", response_model=None, summary="How much of a profile's budget is used"
    )
    async def budget(profile: str, run: Run = None) -> Response:
        return json_response(await asyncio.to_thread(budget_of, front, front.profile_of(profile), run))

    @routes.get("/agents/trace/{trace_id}", response_model=None, summary="A trace with its signals")
    async def trace(trace_id: str) -> Response:
        return json_response(await asyncio.to_thread(_trace, front, trace_id))

    @routes.get("/agents/health", response_model=None, summary="That plans can be run")
    async def health() -> Response:
        names = [one.name for one in all_profiles(front.app.settings.profiles)]
        return json_response({"status": "healthy", "service": "agents-coordinator", "profiles": names,
                              "features": list(FEATURES)})  # fmt: skip

    @routes.get("/budgets", response_model=None, summary="The budget that holds here, as rows")
    async def budgets(run: Run = None) -> Response:
        return json_response(_rows(await asyncio.to_thread(budget_of, front, front.profile_of(), run)))


def budget_of(front: Front, profile: Profile, run: str | None) -> dict[str, Any]:
    """One run's use of its profile's budget; without a name the busiest run of today."""
    limits = tighter(profile.limits, limits_of_settings(front.app.settings.limits))
    with front.app.database.read() as connection:
        node = f"session:{run}" if run is not None else _busiest(connection, profile)
        report = report_of(connection, node or "", limits)
    used, limit = report["total"]["used"] + report["total"]["held"], report["total"]["limit"]
    share = 0.0 if limit is None else 1.0 if limit == 0 else min(1.0, used / limit)
    return {
        "profile": profile.name,
        "total_calls": limit,
        "used_calls": used,
        "remaining_calls": None if limit is None else max(0, limit - used),
        "utilization": share,
        "warning": limit is not None and share * 100 >= limits.warn_at,
        "by_domain": report["by_domain"],
        "by_tool": report["by_tool"],
        "run": node.partition(":")[2] if node else None,
    }


def _busiest(connection: sa.Connection, profile: Profile) -> str | None:
    """A profile limits each run for itself, so the one nearest to its limit tells the most."""
    today = f"profile:{profile.name}:{datetime.now(UTC):%Y-%m-%d}"
    mine = sa.and_(
        budget_nodes.c.parent_id == today, budget_nodes.c.kind == "session", budget_nodes.c.bucket == TOTAL
    )
    order = (budget_nodes.c.used_calls + budget_nodes.c.held_calls).desc(), budget_nodes.c.node_id
    found = connection.execute(
        sa.select(budget_nodes.c.node_id).where(mine).order_by(*order).limit(1)
    ).scalar()
    return None if found is None else str(found)


def _rows(budget: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [{"category": "total", "used": budget["used_calls"], "limit": budget["total_calls"]}]
    for kind in ("domain", "tool"):
        for name, one in budget[f"by_{kind}"].items():
            rows.append(
                {"category": f"{kind}:{name}", "used": one["used"] + one["held"], "limit": one["limit"]}
            )
    return rows


def _trace(front: Front, trace_id: str) -> dict[str, Any]:
    with front.app.database.read() as connection:
        found = trace_events(connection, trace_id, limit=MAX_PAGE)
    if not found:
        raise NotFoundError(kind="trace", name=trace_id[:80], cure="`proctor trace` lists the newest ones.")
    signals = measure(stream(front.app.database, trace_id))
    body = {
        "trace_id": trace_id,
        "events": [event_json(event) for event in found],
        "signals": signals.as_dict(),
        "duration_ms": signals.duration_ms,
    }
    return body if signals.total_events <= len(found) else {**body, "truncated": True}


# ── capabilities ──────────────────────────────────────────────────────────────────────────────────────────────────


def _capabilities(routes: APIRouter, front: Front) -> None:
    @routes.get(
        "/capabilities/status", response_model=None, summary="What each tool can do under the profile"
    )
    async def status() -> Response:
        profile = front.profile_of()
        return json_response([_capability(tool, profile) for tool in front.app.registry.tools()])

    @routes.get("/capabilities/budgets", response_model=None, summary="Each profile's budget")
    async def budgets() -> Response:
        def look() -> list[dict[str, Any]]:
            return [budget_of(front, one, None) for one in all_profiles(front.app.settings.profiles)]

        return json_response(await asyncio.to_thread(look))

    @routes.get("/capabilities/profiles", response_model=None, summary="All profiles")
    async def profiles() -> Response:
        found = all_profiles(front.app.settings.profiles)
        return json_response([{**profile_row(one), "active": one.name == front.profile} for one in found])


def _capability(tool: Tool, profile: Profile) -> dict[str, Any]:
    binding = bind(tool, REAL, profile)
    said = {"name": tool.name, "domain": tool.domain, "side_effect_class": tool.side_effect.value}
    if binding.refused is not None:
        return {
            **said,
            "status": "offline",
            "adapter": REAL,
            "mode": "live",
            "message": binding.refused.reason,
        }
    return {
        **said,
        "status": "degraded" if binding.simulated else "online",
        "adapter": binding.adapter,
        "mode": "mock" if binding.simulated else "live",
        "message": " ".join(binding.notes) or tool.summary,
    }


# ── profiles ──────────────────────────────────────────────────────────────────────────────────────────────────────


def profile_row(profile: Profile) -> dict[str, Any]:
    """A profile in the words of seed 002."""
    limits = profile.limits
    return {
        "profile_id": profile.name,
        "profile_name": profile.name,
        "name": profile.name,
        "description": profile.description,
        "budget": {
            "total_calls": limits.calls,
            "calls_per_domain": dict(limits.domains),
            "calls_per_tool": dict(limits.tools),
            "warning_threshold": limits.warn_at / 100,
        },
        "approval_required": sorted(effect.value for effect in profile.asks),
        "allowed_adapters": None if profile.adapters is None else list(profile.adapters),
        "guardrails": profile.guardrails,
    }


def _profile(routes: APIRouter, front: Front) -> None:
    @routes.get("/profile", response_model=None, summary="The profile that holds for requests to this server")
    async def show() -> Response:
        return json_response(profile_row(front.profile_of()))

    @routes.post("/profile", response_model=None, summary="Choose another, until this server ends")
    async def choose(said: Annotated[ProfileIn, Body()]) -> Response:
        front.profile = front.profile_of(said.profile_id).name
        return json_response(profile_row(front.profile_of()))
