"""Our own REST: every tool of the registry at `/api/tools/{name}`, and the calls that were made.

Routes and schemas are made of the registry; a call is judged by the gate like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import sqlalchemy as sa
from fastapi import APIRouter, Body, Header, Query
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from proctor.protocol.errors import NotFoundError
from proctor.protocol.tools import REAL, Tool
from proctor.server.answers import REFUSALS, CallAnswer, Refused, call_answer
from proctor.server.front import HOLD_SECONDS, Front, How, Place
from proctor.store.tables import calls

__all__ = ["SHOWN", "ToolAnswer", "router", "schemas"]

_REF: Final = "#/components/schemas/{model}"
SHOWN: Final = (
    "call_id", "tool_name", "domain", "side_effect", "adapter", "simulated", "actor", "actor_name", "trace_id",
    "session_id", "task_id", "attempt", "profile", "workspace", "inputs", "state", "result", "code", "error",
    "approval_id", "snapshot_id", "requested_at", "started_at", "ended_at", "duration_ms",
)  # fmt: skip
Route = Callable[..., Awaitable[Response]]
# A call that was made tells what came of it, whatever that was; one that could not even be made is refused.
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    202: {"model": CallAnswer, "description": "A person has to answer first."},
    **{code: {**said, "model": CallAnswer | Refused} for code, said in REFUSALS.items()},
}


class ToolAnswer(BaseModel):
    """One tool as the registry describes it."""

    name: str
    aliases: list[str]
    description: str
    domain: str
    side_effect: str
    reversible: bool
    adapters: list[str]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


def router(front: Front) -> APIRouter:
    """All routes of this surface."""
    routes = APIRouter(prefix="/api", responses=REFUSALS)

    @routes.get("/tools", response_model=list[ToolAnswer], summary="All tools", tags=["tools"])
    async def list_tools() -> Any:
        return front.app.registry.schemas()

    @routes.get(
        "/tools/{name}", response_model=ToolAnswer, summary="One tool by name or alias", tags=["tools"]
    )
    async def show_tool(name: str) -> Any:
        return front.app.registry.schema(name)

    @routes.get("/calls/{call_id}", response_model=None, summary="How a call stands", tags=["calls"])
    async def show_call(call_id: str) -> dict[str, Any]:
        return await asyncio.to_thread(_row, front, call_id)

    for tool in front.app.registry.tools():
        for name in (tool.name, *tool.aliases):
            routes.add_api_route(
                f"/tools/{name}",
                _calling(front, tool),
                methods=["POST"],
                response_model=CallAnswer,
                responses=_ANSWERS,
                summary=tool.summary,
                tags=["tools"],
                operation_id=f"call_{name}",
                include_in_schema=name == tool.name,
                openapi_extra=_body(tool),
            )
    return routes


def _calling(front: Front, tool: Tool) -> Route:
    async def endpoint(
        inputs: Annotated[dict[str, Any] | None, Body()] = None,
        workspace: Place = None,
        profile: Annotated[str | None, Query(description="Rules to judge by.")] = None,
        trace_id: Annotated[str | None, Query(description="Root request this belongs to.")] = None,
        agent: Annotated[str | None, Query(description="Judge it as this agent's call.")] = None,
        adapter: Annotated[str, Query(max_length=50)] = REAL,
        hold: Annotated[float, Query(ge=0, le=HOLD_SECONDS, description="Wait so long for an answer.")] = 0.0,
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    ) -> Response:
        how = How(
            workspace=workspace,
            profile=profile,
            trace_id=trace_id,
            key=idempotency_key,
            agent=agent,
            adapter=adapter,
            hold_s=hold,
        )
        return call_answer(await front.call(tool.name, inputs or {}, how))

    return endpoint


def _body(tool: Tool) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=tool.input.__name__ + "_" + tool.name)}
    required = any(one.is_required() for one in tool.input.model_fields.values())
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def schemas(tools: list[Tool]) -> dict[str, Any]:
    """The input models as components of the OpenAPI document, each under a name of its own."""
    found: dict[str, Any] = {}
    for tool in tools:
        own = f"{tool.input.__name__}_{tool.name}"
        _, whole = models_json_schema([(tool.input, "validation")], ref_template=_ref_for(own))
        for name, schema in whole.get("$defs", {}).items():
            found[own if name == tool.input.__name__ else f"{own}_{name}"] = schema
    return found


def _ref_for(own: str) -> str:
    return f"#/components/schemas/{own}_{{model}}"


def _row(front: Front, call_id: str) -> dict[str, Any]:
    columns = [calls.c[name] for name in SHOWN]
    with front.app.database.read() as connection:
        row = connection.execute(sa.select(*columns).where(calls.c.call_id == call_id)).mappings().first()
    if row is None:
        raise NotFoundError(kind="call", name=call_id[:80], cure="The answer to a call names its id.")
    return dict(row)
