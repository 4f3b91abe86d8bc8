"""What was done, in our own words: traces, calls, plans, costs, backups and grants. Reads, but for plans and grants."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from proctor.engine.plan_rows import PlanRow
from proctor.gate.grants import list_grants, revoke_grant
from proctor.gate.report import costs, report_of
from proctor.protocol.errors import NotFoundError
from proctor.server.answers import REFUSALS, json_response
from proctor.server.front import MAX_NAME, Front
from proctor.server.hub import event_json
from proctor.server.paging import MOST, After, Limit, Page, page_of
from proctor.server.tools_api import SHOWN
from proctor.server.verbs import add_verbs
from proctor.store.plan_tables import plans
from proctor.store.tables import calls, trace_heads
from proctor.trace.reader import MAX_PAGE, trace_events, traces
from proctor.workspace.backups import Backups
from proctor.workspace.catalog import Backup

__all__ = ["router"]

KINDS = {"session": "session", "task": "task", "day": "profile"}
Name = Annotated[str | None, Query(max_length=MAX_NAME)]


def router(front: Front) -> APIRouter:
    """All routes."""
    routes = APIRouter(prefix="/api", responses=REFUSALS)
    _traces(routes, front)
    _calls(routes, front)
    _plans(routes, front)
    _costs(routes, front)
    _backups(routes, front)
    _grants(routes, front)
    return routes


def _traces(routes: APIRouter, front: Front) -> None:
    def listing(limit: int, after: str | None) -> dict[str, Any]:
        before = None if after is None else _place(front, after)
        found = traces(front.app.database, limit=limit + 1, before=before)
        last = found[limit - 1].trace_id if len(found) > limit else None
        return {"items": [asdict(one) for one in found[:limit]], "next": last}

    @routes.get("/traces", response_model=Page, tags=["traces"], summary="Traces, the newest first")
    async def list_traces(limit: Limit = 50, after: After = None) -> Any:
        return json_response(await asyncio.to_thread(listing, limit, after))

    @routes.get(
        "/traces/{trace_id}", response_model=Page, tags=["traces"], summary="Events of a trace in order"
    )
    async def show(
        trace_id: str,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 500,
        after: Annotated[int, Query(ge=0, lt=2**62, description="A `trace_seq`.")] = 0,
    ) -> Any:
        def look() -> dict[str, Any]:
            _place(front, trace_id)
            with front.app.database.read() as connection:
                found = trace_events(connection, trace_id, after=after, limit=limit)
            more = str(found[-1].trace_seq) if len(found) == limit else None
            return {"items": [event_json(one) for one in found], "next": more}

        return json_response(await asyncio.to_thread(look))


def _place(front: Front, trace_id: str) -> int:
    query = sa.select(trace_heads.c.first_seq).where(trace_heads.c.trace_id == trace_id)
    with front.app.database.read() as connection:
        found = connection.execute(query).scalar() if trace_id else None
    if found is None:
        raise NotFoundError(kind="trace", name=trace_id[:80], cure="GET /api/traces lists them.")
    return int(found)


def _calls(routes: APIRouter, front: Front) -> None:
    @routes.get("/calls", response_model=Page, tags=["calls"], summary="Calls, the newest first")
    async def list_calls(
        state: Annotated[str | None, Query(max_length=20)] = None,
        tool: Annotated[str | None, Query(max_length=100)] = None,
        trace_id: Name = None,
        task_id: Name = None,
        session_id: Name = None,
        limit: Limit = 50,
        after: After = None,
    ) -> Any:
        wanted = {"state": state, "tool_name": tool, "trace_id": trace_id, "task_id": task_id,
                  "session_id": session_id}  # fmt: skip
        query = sa.select(*(calls.c[name] for name in SHOWN)).where(
            *(calls.c[name] == value for name, value in wanted.items() if value is not None)
        )

        def look() -> dict[str, Any]:
            order = calls.c.requested_at, calls.c.call_id
            with front.app.database.read() as connection:
                return page_of(connection, query, order, dict, limit=limit, after=after)

        return json_response(await asyncio.to_thread(look))


def _plans(routes: APIRouter, front: Front) -> None:
    @routes.get("/plans", response_model=Page, tags=["plans"], summary="Plans, the newest first")
    async def list_plans(limit: Limit = 50, after: After = None) -> Any:
        def look() -> dict[str, Any]:
            order = plans.c.created_at, plans.c.plan_id
            with front.app.database.read() as connection:
                return page_of(connection, plans.select(), order, _plan, limit=limit, after=after)

        return json_response(await asyncio.to_thread(look))

    verbs = {"resume": "Let it go on", "cancel": "Cancel it; what runs is stopped"}
    add_verbs(routes, front, "plan", "plans", lambda: front.app.plans, verbs)


def _plan(row: Any) -> dict[str, Any]:
    return asdict(PlanRow.of(row))


def _costs(routes: APIRouter, front: Front) -> None:
    @routes.get("/cost", response_model=None, tags=["cost"], summary="What was used, the dearest first")
    async def cost(by: Literal["session", "task", "day"] = "session", limit: Limit = 50) -> Response:
        def look() -> list[dict[str, Any]]:
            with front.app.database.read() as connection:
                return costs(connection, kind=KINDS[by], limit=limit)

        return json_response(await asyncio.to_thread(look))

    @routes.get(
        "/cost/{session}", response_model=None, tags=["cost"], summary="One session or trace, in full"
    )
    async def one(session: str) -> Response:
        def look() -> dict[str, Any]:
            with front.app.database.read() as connection:
                report = report_of(connection, f"session:{session}")
            if not report["by_tool"]:
                raise NotFoundError(
                    kind="session with calls", name=session[:80], cure="GET /api/cost lists them."
                )
            return report

        return json_response(await asyncio.to_thread(look))


def _backups(routes: APIRouter, front: Front) -> None:
    @routes.get("/backups", response_model=None, tags=["backups"], summary="Backups, the newest first")
    async def list_backups(
        workspace: Annotated[str | None, Query(description="Only of this one; all by default.")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
    ) -> Response:
        def look() -> dict[str, Any]:
            shelf = Backups(front.app.settings.paths.backups_dir)
            found = shelf.listing(None if workspace is None else front.place(workspace))
            return {"items": [_backup(one) for one in found[:limit]], "truncated": len(found) > limit}

        return json_response(await asyncio.to_thread(look))


def _backup(one: Backup) -> dict[str, Any]:
    names = ("id", "name", "timestamp", "created_at", "kind", "reason", "entries", "size", "stored_bytes",
             "complete", "pinned", "undoable")  # fmt: skip
    return {
        **{name: getattr(one, name) for name in names},
        "backup_path": str(one.path),
        "workspace": str(one.workspace),
        "problems": len(one.problems),
    }


def _grants(routes: APIRouter, front: Front) -> None:
    @routes.get("/grants", response_model=None, tags=["approvals"], summary="Classes of acts that may pass")
    async def show() -> Response:
        def look() -> list[dict[str, Any]]:
            with front.app.database.read() as connection:
                found = list_grants(connection, datetime.now(UTC))
            return [{**asdict(one), "line": one.sentence()} for one in found]

        return json_response(await asyncio.to_thread(look))

    @routes.post("/grants/{grant_id}/revoke", response_model=None, tags=["approvals"], summary="Take it back")
    async def revoke(request: Request, grant_id: str) -> Response:
        who = front.human(request.scope)
        change = partial(revoke_grant, grant_id=grant_id, by=who, now=datetime.now(UTC))
        found = await front.app.writer.transact_async(change)
        return json_response({"revoked": grant_id, "line": found.sentence()})
