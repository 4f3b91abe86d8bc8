"""The HTTP application: every surface over one `Front`, behind the guard, described by one OpenAPI document.

The seeds' surfaces carry the tag "compat", ours their own. FastAPI's own telemetry is off: the trace is the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.routing import Route, WebSocketRoute

from proctor import __version__
from proctor.app import App
from proctor.config import Paths
from proctor.protocol.errors import ProctorError
from proctor.server import (
    agents_api,
    answers,
    approvals_api,
    browser_api,
    chat_api,
    governed,
    health,
    plans_api,
    records_api,
    solace,
    tools_api,
    traces,
    work_api,
)
from proctor.server.auth import Access
from proctor.server.browsers import Browsers
from proctor.server.front import Front
from proctor.server.holding import Doorkeeper
from proctor.server.mcp_http import McpDoor
from proctor.server.socket import NoDoor, WebSocketDoor
from proctor.server.traces import TraceDoor

__all__ = ["create_app", "make_front"]

TAGS: Final = [
    {"name": "work", "description": "What needs you, tasks, agents, and pausing."},
    {"name": "tools", "description": "Every tool of the registry, called through the gate."},
    {"name": "calls", "description": "Calls that were made, and how they stand."},
    {"name": "approvals", "description": "Questions to a person, and the answers."},
    {"name": "plans", "description": "Ordered lists of governed calls."},
    {"name": "chats", "description": "Conversations with API models, through the gate."},
    {"name": "traces", "description": "What happened, as it happens."},
    {"name": "cost", "description": "What was used: calls, tokens, money, time."},
    {"name": "backups", "description": "What can be brought back."},
    {"name": "browser", "description": "Signing browsers in and out."},
    {"name": "health", "description": "Whether the server lives, and what it counts."},
    {"name": "compat", "description": "The seeds' own paths and bodies."},
]


def make_front(app: App, access: Access | None = None, wake: Callable[[], object] | None = None) -> Front:
    """What the surfaces share; without a `wake` of its own a server starts the background supervisor when needed."""
    _ = app.metrics  # before the first write, or it would not be counted
    if wake is not None:
        app.wake = wake
    return Front(app, access or _access(app.settings.paths), wake=app.wake)


def _access(paths: Paths) -> Access:
    return Access(paths.token_file, browsers=Browsers(paths.browsers_file, paths.token_file))


def create_app(app: App, front: Front | None = None) -> FastAPI:
    """Make the application; with a `front` of its caller's, that one decides who may come in."""
    front = front or make_front(app)
    door = McpDoor(front)
    front.closers.append(door.close)
    web = FastAPI(
        title="Proctor",
        version=__version__,
        description="Runs AI coding agents on a repository and is answerable for what they did.",
        openapi_tags=TAGS,
        lifespan=_living(front, door),
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        exception_handlers=_HANDLERS,
        docs_url=None,  # FastAPI's own loads its script from elsewhere
        redoc_url=None,
    )
    web.state.front = front
    agents = agents_api.Agents(front)
    metrics = app.metrics.registry
    metrics.register(health.ServerGauges(front))
    for routes in (
        health.router(front, metrics),
        browser_api.router(front),
        tools_api.router(front),
        solace.router(front),
        agents_api.router(front, agents),
        approvals_api.router(front),
        governed.router(front),
        plans_api.router(front),
        chat_api.router(front),
        traces.router(front),
        work_api.router(front, agents),
        records_api.router(front),
    ):
        web.include_router(routes)
    web.router.routes.append(WebSocketRoute("/ws", WebSocketDoor(front)))
    web.router.routes.append(WebSocketRoute("/ws/traces/{trace_id}", TraceDoor(front)))
    web.router.routes.append(WebSocketRoute("/{path:path}", NoDoor()))
    web.router.routes.append(Route("/mcp", door, include_in_schema=False))
    web.add_middleware(Doorkeeper, access=front.access, holders=front.holder_of, traffic=front.traffic)
    web.openapi = lambda: _described(web, front)  # type: ignore[method-assign]  # as FastAPI's docs do it
    return web


_HANDLERS: Final[dict[int | type[Exception], Any]] = {
    ProctorError: answers.on_proctor_error,
    RequestValidationError: answers.on_invalid,
    HTTPException: answers.on_http_error,
    **dict.fromkeys((sa.exc.DataError, UnicodeEncodeError, OverflowError), answers.on_unkeepable),
    Exception: answers.on_defect,
}


def _living(front: Front, door: McpDoor) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def life(_web: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(front.warm)
        async with asyncio.TaskGroup() as group:
            group.create_task(front.hub.run())
            try:
                async with door.running():
                    yield
            finally:
                front.close_streams()

    return life


def _described(web: FastAPI, front: Front) -> dict[str, Any]:
    """The OpenAPI document, made once; the tools' own inputs are in it."""
    if web.openapi_schema is None:
        whole = get_openapi(
            title=web.title,
            version=web.version,
            description=web.description,
            routes=web.routes,
            tags=web.openapi_tags,
        )
        parts = whole.setdefault("components", {})
        parts.setdefault("schemas", {}).update(tools_api.schemas(front.app.registry.tools()))
        parts["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"},
            "solace": {"type": "apiKey", "in": "header", "name": "X-SOLACE-API-KEY"},
        }
        whole["security"] = [{"token": []}, {"solace": []}]
        web.openapi_schema = whole
    return web.openapi_schema
