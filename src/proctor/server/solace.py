"""The seeds' REST, `/api/v1/solace-orch/…`: fourteen functions at their exact paths, as a table over the registry.

A row says which tool, which fields a caller sends and which fields of the tool's answer are the body. Anything out of the
ordinary (simulated, truncated) is said beside them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body
from fastapi import Path as PathParameter
from starlette.responses import Response

from proctor.protocol.tools import CallResult
from proctor.server.answers import REFUSALS, call_answer, error_body, json_response, status_of
from proctor.server.front import Front, How, Place

__all__ = ["PREFIX", "ROUTES", "Row", "router"]

PREFIX: Final = "/api/v1/solace-orch"
_FLAGS: Final = ("simulated", "truncated", "timed_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One route."""

    method: str
    path: str
    tool: str
    gives: tuple[str, ...]
    """Fields of the body, in order; empty: all of the answer."""
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    id_as: str | None = None
    """The tool's parameter that the number or word in the path is."""
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    status: int = 200
    seed: bool = True
    """One of the fourteen; the others are beside them in the origin."""


ROUTES: Final = (
    Row(
        method="POST",
        path="/file/read",
        tool="read_file",
        needs=("file_path",),
        gives=("file_path", "content", "content_hash", "size_bytes", "last_modified"),
    ),
    Row(
        method="POST",
        path="/file/list",
        tool="list_directory",
        needs=("dir_path",),
        fixed=MappingProxyType({"recursive": False}),
        gives=("dir_path", "files", "count"),
    ),
    Row(method="GET", path="/architecture/rules", tool="get_architecture_rules", gives=("rules", "count")),
    Row(
        method="POST",
        path="/architecture/search",
        tool="search_architecture_rules",
        needs=("keyword",),
        gives=("rules", "count", "keyword"),
    ),
    Row(
        method="POST",
        path="/orchestrate/request",
        tool="create_user_request",
        needs=("request_text",),
        takes=("request_type",),
        gives=(),
        status=201,
    ),
    Row(
        method="POST",
        path="/orchestrate/analyze/{id}",
        tool="analyze_request",
        id_as="request_id",
        gives=("message", "request_id", "status"),
    ),
    Row(
        method="POST",
        path="/orchestrate/generate/{id}",
        tool="generate_instructions",
        id_as="request_id",
        gives=("message", "request_id", "instructions", "count", "status"),
    ),
    Row(
        method="GET",
        path="/orchestrate/next",
        tool="get_next_instruction",
        gives=("has_next", "message", "instruction"),
    ),
    Row(method="POST", path="/orchestrate/scan", tool="scan_repository", gives=("message", "status")),
    Row(
        method="POST",
        path="/file/write",
        tool="write_file",
        needs=("file_path", "content"),
        gives=("message", "file_path", "size"),
    ),
    Row(
        method="POST",
        path="/backup/create",
        tool="create_backup",
        takes=("reason",),
        gives=("message", "timestamp", "path", "reason"),
    ),
    Row(
        method="POST",
        path="/command/execute",
        tool="execute_command",
        needs=("command",),
        takes=("working_directory",),
        gives=("command", "output", "exit_code", "success"),
    ),
    Row(
        method="POST",
        path="/backup/restore",
        tool="restore_from_backup",
        needs=("backup_timestamp",),
        gives=("message", "timestamp"),
    ),
    Row(
        method="GET",
        path="/system/verify",
        tool="verify_system_running",
        gives=("status", "message", "timestamp"),
    ),
    Row(
        method="GET",
        path="/architecture/rules/{id}",
        tool="get_architecture_rules",
        id_as="feature_type",
        gives=("rules", "count"),
        seed=False,
    ),
    Row(
        method="GET",
        path="/orchestrate/request/{id}",
        tool="get_user_request",
        id_as="request_id",
        gives=(),
        seed=False,
    ),
    Row(
        method="GET",
        path="/orchestrate/request/{id}/instructions",
        tool="list_instructions",
        id_as="request_id",
        gives=("parent_task_id", "instructions", "count"),
        seed=False,
    ),
    Row(
        method="PUT",
        path="/orchestrate/instruction/{id}",
        tool="update_instruction",
        id_as="instruction_id",
        needs=("status",),
        takes=("github_response", "verification_notes"),
        gives=("message", "instruction"),
        seed=False,
    ),
)


def router(front: Front) -> APIRouter:
    """All routes of the table."""
    routes = APIRouter(prefix=PREFIX, tags=["compat"], responses=REFUSALS)
    for row in ROUTES:
        tool = front.app.registry.find(row.tool)
        routes.add_api_route(
            row.path,
            _asking(front, row) if row.id_as is None else _asking_with_id(front, row),
            methods=[row.method],
            status_code=row.status,
            response_model=None,
            summary=tool.summary,
            operation_id=f"solace_{row.method.lower()}_{row.path.strip('/').replace('/', '_')}",
            openapi_extra=_body(row) if row.method != "GET" else None,
        )
    return routes


def _asking(front: Front, row: Row) -> Callable[..., Awaitable[Response]]:
    if row.method == "GET":

        async def reading(workspace: Place = None) -> Response:
            return await _answer(front, row, {}, workspace)

        return reading

    async def doing(
        inputs: Annotated[dict[str, Any] | None, Body()] = None, workspace: Place = None
    ) -> Response:
        return await _answer(front, row, inputs or {}, workspace)

    return doing


def _asking_with_id(front: Front, row: Row) -> Callable[..., Awaitable[Response]]:
    name = row.id_as or ""
    if row.method == "GET":

        async def reading(
            one: Annotated[str, PathParameter(alias="id", max_length=100)], workspace: Place = None
        ) -> Response:
            return await _answer(front, row, {name: one}, workspace)

        return reading

    async def doing(
        one: Annotated[str, PathParameter(alias="id", max_length=100)],
        inputs: Annotated[dict[str, Any] | None, Body()] = None,
        workspace: Place = None,
    ) -> Response:
        return await _answer(front, row, {**(inputs or {}), name: one}, workspace)

    return doing


async def _answer(front: Front, row: Row, inputs: Mapping[str, Any], workspace: str | None) -> Response:
    said = {name: value for name, value in inputs.items() if value is not None}
    missing = [name for name in row.needs if name not in said and _other(front, row, name) not in said]
    if missing:
        body = {"error": f"{missing[0]} is required", "hint": "See /openapi.json.", "code": "invalid_input"}
        return json_response(body, 400)
    result = await front.call(row.tool, {**said, **row.fixed}, How(workspace=workspace))
    if result.waiting:
        return call_answer(result)
    if result.error is not None:
        return json_response(error_body(result.error), status_of(result.error))
    return json_response(_picked(row, result), row.status)


def _other(front: Front, row: Row, name: str) -> str:
    return front.app.registry.find(row.tool).parameter_aliases.get(name, name)


def _picked(row: Row, result: CallResult) -> dict[str, Any]:
    output = dict(result.output or {})
    body = {name: output[name] for name in row.gives} if row.gives else dict(output)
    if row.tool == "list_directory":
        names = ("name", "is_dir", "size_bytes", "last_modified")
        body["files"] = [{name: one[name] for name in names} for one in output["files"]]
    if row.tool == "get_next_instruction":
        body.pop("message" if output["has_next"] else "instruction")
    said = {name: True for name in _FLAGS if output.get(name) is True}
    body.pop("simulated", None)
    return {**body, **said}


def _body(row: Row) -> dict[str, Any]:
    fields = {name: {"type": "string"} for name in (*row.needs, *row.takes)}
    schema = {"type": "object", "properties": fields, "required": list(row.needs)}
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": bool(row.needs), "content": content}}
