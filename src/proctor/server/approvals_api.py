"""Questions to a person: look at them, and answer. An answer needs the human's token, whatever `--auth` says.

A GET only shows; only a POST answers. The seeds' three addresses for the same answer all lead here.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.gate import approvals as questions
from proctor.gate.approvals import Answered
from proctor.gate.grants import Scope
from proctor.gate.humans import Human
from proctor.protocol.errors import NotFoundError, UsageError
from proctor.server.answers import REFUSALS, json_response
from proctor.server.front import Front
from proctor.store.tables import approvals

__all__ = ["router"]

MOST: Final = 500
_HIDDEN: Final = frozenset({"bound_to", "content_hash"})


class AnswerIn(BaseModel):
    """Yes or no, and why."""

    model_config = ConfigDict(extra="ignore")

    approved: bool
    reason: str = Field(default="", max_length=4000, validation_alias=AliasChoices("reason", "feedback"))
    grant: Scope | None = Field(
        default=None, description="Let the whole class of acts pass: task, time or always."
    )


class NamedAnswerIn(AnswerIn):
    """Which question, yes or no, and why."""

    approval_id: str = Field(
        min_length=1, max_length=64, validation_alias=AliasChoices("approval_id", "request_id")
    )


class ReasonIn(BaseModel):
    """Why."""

    reason: str = Field(default="", max_length=4000, validation_alias=AliasChoices("reason", "feedback"))


def router(front: Front) -> APIRouter:
    """Our own routes and the seeds'."""
    routes = APIRouter(prefix="/api", responses=REFUSALS)
    _ours(routes, front)
    _seeds(routes, front)
    return routes


def _ours(routes: APIRouter, front: Front) -> None:
    @routes.get("/approvals", response_model=None, tags=["approvals"], summary="Open questions")
    async def pending(limit: Annotated[int, Query(ge=1, le=MOST)] = 100) -> Response:
        def look() -> list[dict[str, Any]]:
            with front.app.database.read() as connection:
                found = questions.pending(connection, datetime.now(UTC), limit=limit)
                return [_shown(dict(row)) for row in found]

        return json_response(await asyncio.to_thread(look))

    @routes.get("/approvals/{approval_id}", response_model=None, tags=["approvals"], summary="One question")
    async def show(approval_id: str) -> Response:
        return json_response(await asyncio.to_thread(_row, front, approval_id))

    @routes.post("/approvals/{approval_id}", response_model=None, tags=["approvals"], summary="Answer it")
    async def answer(request: Request, approval_id: str, said: Annotated[AnswerIn, Body()]) -> Response:
        done = await _answer(front, request, approval_id, said)
        return json_response({"approval_id": done.approval_id, "approved": done.approved,
                              "equal": done.equal, "grants": done.grants})  # fmt: skip


def _seeds(routes: APIRouter, front: Front) -> None:
    async def by_name(request: Request, said: Annotated[NamedAnswerIn, Body()]) -> Response:
        return _seed_body(await _answer(front, request, said.approval_id, said))

    for path, name in (("/agents/approve", "approve_call"), ("/approve", "approve_call_alias")):
        routes.add_api_route(
            path,
            by_name,
            methods=["POST"],
            response_model=None,
            tags=["compat"],
            summary="Answer a question",
            operation_id=name,
        )

    @routes.post("/approval/{approval_id}/approve", response_model=None, tags=["compat"], summary="Say yes")
    async def approve(
        request: Request, approval_id: str, said: Annotated[ReasonIn | None, Body()] = None
    ) -> Response:
        yes = AnswerIn(approved=True, reason=said.reason if said else "")
        return _seed_body(await _answer(front, request, approval_id, yes))

    @routes.post("/approval/{approval_id}/reject", response_model=None, tags=["compat"], summary="Say no")
    async def reject(
        request: Request, approval_id: str, said: Annotated[ReasonIn | None, Body()] = None
    ) -> Response:
        no = AnswerIn(approved=False, reason=said.reason if said else "")
        return _seed_body(await _answer(front, request, approval_id, no))


def _seed_body(done: Answered) -> Response:
    return json_response(
        {"status": "approved" if done.approved else "denied", "approval_id": done.approval_id}
    )


async def _answer(front: Front, request: Request, approval_id: str, said: AnswerIn) -> Answered:
    human: Human = front.human(request.scope)
    if "\0" in said.reason:
        raise UsageError(message="The reason holds a character that cannot be kept.")
    change = partial(
        questions.answer,
        approval_id=approval_id,
        approved=said.approved,
        by=human,
        reason=said.reason,
        grant=said.grant,
        now=datetime.now(UTC),
    )
    done = await front.app.writer.transact_async(change)
    await front.nudge()
    return done


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _HIDDEN}


def _row(front: Front, approval_id: str) -> dict[str, Any]:
    with front.app.database.read() as connection:
        query = approvals.select().where(approvals.c.approval_id == approval_id)
        row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFoundError(kind="approval", name=approval_id[:80], cure="GET /api/approvals lists them.")
    return _shown(dict(row))
