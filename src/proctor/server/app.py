"""The HTTP application: every surface over one `Front`, behind the guard, described by one OpenAPI document.

The seeds' surfaces carry the tag "compat", ours their own. FastAPI's own telemetry is off: the trace is the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.routing import WebSocketRoute

from proctor import __version__
from proctor.app import App
from proctor.engine import client
from proctor.protocol.errors import ProctorError
from proctor.server import (
    agents_api,
    answers,
    approvals_api,
    governed,
    health,
    plans_api,
    solace,
    tools_api,
    traces,
)
from proctor.server.auth import Access
from proctor.server.front import Front
from proctor.server.guard import Guard
from proctor.server.socket import WebSocketDoor
from proctor.server.traces import TraceDoor

__all__ = ["create_app", "make_front"]

TAGS: Final = [
    {"name": "tools", "description": "Every tool of the registry, called through the gate."},
    {"name": "calls", "description": "Calls that were made, and how they stand."},
    {"name": "approvals", "description": "Questions to a person, and the answers."},
    {"name": "plans", "description": "Ordered lists of governed calls."},
    {"name": "traces", "description": "What happened, as it happens."},
    {"name": "health", "description": "Whether the server lives, and what it counts."},
    {"name": "compat", "description": "The seeds' own paths and bodies."},
]


def make_front(app: App, access: Access | None = None, wake: Callable[[], object] | None = None) -> Front:
    """What the surfaces share; without a `wake` of its own a server starts the background supervisor when needed."""
    settings = app.settings
    _ = app.metrics  # before the first write, or it would not be counted
    return Front(
        app,
        access or Access(settings.paths.token_file),
        wake=wake or (lambda: client.ensure(settings)),
    )


def create_app(app: App, front: Front | None = None) -> FastAPI:
    """Make the application; with a `front` of its caller's, that one decides who may come in."""
    front = front or make_front(app)
    web = FastAPI(
        title="Proctor",
        version=__version__,
        description="Runs AI coding agents on a repository and is answerable for what they did.",
        openapi_tags=TAGS,
        lifespan=_living(front),
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        exception_handlers=_HANDLERS,
    )
    web.state.front = front
    metrics = app.metrics.registry
    metrics.register(health.ServerGauges(front))
    for routes in (
        health.router(front, metrics),
        tools_api.router(front),
        solace.router(front),
        agents_api.router(front),
        approvals_api.router(front),
        governed.router(front),
        plans_api.router(front),
        traces.router(front),
    ):
        web.include_router(routes)
    web.router.routes.append(WebSocketRoute("/ws", WebSocketDoor(front)))
    web.router.routes.append(WebSocketRoute("/ws/traces/{trace_id}", TraceDoor(front)))
    web.add_middleware(Guard, access=front.access)
    web.openapi = lambda: _described(web, front)  # type: ignore[method-assign]  # as FastAPI's docs do it
    return web


_HANDLERS: Final[dict[int | type[Exception], Any]] = {
    ProctorError: answers.on_proctor_error,
    RequestValidationError: answers.on_invalid,
    HTTPException: answers.on_http_error,
    Exception: answers.on_defect,
}


def _living(front: Front) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def life(_web: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(front.warm)
        async with asyncio.TaskGroup() as group:
            group.create_task(front.hub.run())
            try:
                yield
            finally:
                front.hub.close()

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
