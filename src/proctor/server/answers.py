"""Answers in JSON: what a call gave, or `{error, hint, code}` with the status that says whose turn it is. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from loguru import logger
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from proctor.gate.humans import NotHumanError
from proctor.protocol.errors import ProctorError
from proctor.protocol.tools import CallError, CallResult
from proctor.server.encoding import encode

__all__ = [
    "REFUSALS",
    "UNKEEPABLE",
    "CallAnswer",
    "Refused",
    "call_answer",
    "error_body",
    "json_response",
    "on_defect",
    "on_http_error",
    "on_invalid",
    "on_proctor_error",
    "on_unkeepable",
    "status_of",
]

# By code where the code says more than the exit code; the rest by exit code.
_BY_CODE: Final[Mapping[str, int]] = {
    "not_human": 401,
    "budget_exceeded": 429,
    "idempotency_conflict": 409,
    "call_in_progress": 409,
    "call_interrupted": 409,
    "approval_void": 409,
    "invalid_transition": 409,
    "plan_conflict": 409,
    "plan_busy": 409,
    "chat_busy": 409,
    "chat_waits": 409,
    "invalid_input": 422,
    "unknown_profile": 404,
    "approval_pending": 202,
    "timed_out": 504,
    "cancelled": 409,
    "defect": 500,
}
_BY_EXIT: Final[Mapping[int, int]] = {2: 400, 3: 202, 4: 404, 5: 403, 6: 503, 7: 500}
_MOST_PROBLEMS: Final = 5
UNKEEPABLE: Final = (
    "The request holds a value that cannot be kept: a NUL, half a character or a number too large."
)


class Refused(BaseModel):
    """Why not, and the cure."""

    error: str
    hint: str = ""
    code: str = "failed"


REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    code: {"model": Refused, "description": text}
    for code, text in {
        400: "The request is wrong.",
        401: "No token, or a wrong one.",
        403: "Refused by policy, profile, Host or Origin.",
        404: "It does not exist.",
        409: "It does not fit what is there.",
        413: "The body is too large.",
        422: "The inputs are not right.",
        429: "The budget is used up.",
        500: "A defect, or altered data.",
        503: "Something is not available.",
        504: "It took too long.",
    }.items()
}


class CallAnswer(BaseModel):
    """What came of a call."""

    model_config = ConfigDict(extra="forbid")

    call_id: str
    tool: str
    trace_id: str
    state: str
    output: dict[str, Any] | None = Field(description="The tool's answer; null when there is none.")
    error: dict[str, Any] | None = None
    simulated: bool = False
    notes: list[str] = Field(default_factory=list)
    approval_id: str | None = None
    snapshot_id: str | None = None
    duration_ms: float = 0.0
    replayed: bool = False


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer JSON."""
    return Response(encode(content), status, dict(headers or {}), media_type="application/json")


def status_of(error: CallError) -> int:
    """The HTTP status of a call that gave no output."""
    return _BY_CODE.get(error.code, _BY_EXIT.get(error.exit_code, 422))


def error_body(error: CallError) -> dict[str, Any]:
    """A call's error as it is answered."""
    return {"error": error.message, "hint": "", "code": error.code}


def call_answer(result: CallResult) -> Response:
    """A call in our own words: 200, 202 with the place to look at while a person must answer, or what is wrong."""
    body = {
        **{name: getattr(result, name) for name in CallAnswer.model_fields if name not in {"state", "error"}},
        "state": result.state.value,
        "error": None if result.error is None else asdict(result.error),
    }
    if result.waiting:
        return json_response(body, 202, {"Location": f"/api/calls/{result.call_id}", "Retry-After": "5"})
    return json_response(body, 200 if result.error is None else status_of(result.error))


# ── what is raised ────────────────────────────────────────────────────────────────────────────────────────────────


async def on_proctor_error(_request: Request, error: Exception) -> Response:
    """One of our own errors: its sentence carries the cure."""
    assert isinstance(error, ProctorError)
    hint = str(error.facts.get("cure", ""))
    if isinstance(error, NotHumanError):
        hint = f"Send Authorization: Bearer TOKEN; the token is in {error.facts['token_file']}."
    found = CallError(error.code, str(error), error.exit_code)
    return json_response({"error": str(error), "hint": hint, "code": error.code}, status_of(found))


async def on_invalid(_request: Request, error: Exception) -> Response:
    """Say which parameter is wrong and why, without repeating values: they may be secrets."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    texts = [f"{'.'.join(str(step) for step in one['loc'])}: {one['msg']}" for one in found[:_MOST_PROBLEMS]]
    more = f" (and {len(found) - _MOST_PROBLEMS} more)" if len(found) > _MOST_PROBLEMS else ""
    body = {"error": "; ".join(texts) + more, "hint": "See /openapi.json.", "code": "invalid_input"}
    return json_response(body, 422)


async def on_unkeepable(_request: Request, error: Exception) -> Response:
    """A value that no column can hold: NUL, half a character, a number beyond all; the caller's, so it is said to them."""
    logger.info("a request held what cannot be kept: {}", type(error).__name__)
    return json_response({"error": UNKEEPABLE, "hint": "See /openapi.json.", "code": "invalid_input"}, 422)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the same shape as everything else."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    sentences = {404: f"There is nothing at {path}.", 405: f"{path} does not take {request.method}."}
    words = sentences.get(error.status_code, str(error.detail))
    body = {"error": words, "hint": "See /openapi.json.", "code": f"http_{error.status_code}"}
    return json_response(body, error.status_code, error.headers)


async def on_defect(_request: Request, error: Exception) -> Response:
    """What nobody expected: named, without a traceback; the log has that."""
    body = {
        "error": f"A defect: {type(error).__name__}.",
        "hint": "The server's log says where; please report it.",
        "code": "defect",
    }
    return json_response(body, 500)
