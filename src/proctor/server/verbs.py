"""What people do to something that is a row: `POST /api/{things}/{id}/{verb}` changes it and wakes who executes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi import Path as PathParameter
from starlette.responses import Response

from proctor.server.answers import json_response
from proctor.server.front import Front

__all__ = ["add_verbs"]


def add_verbs(
    routes: APIRouter, front: Front, noun: str, tag: str, things: Callable[[], Any], verbs: Mapping[str, str]
) -> None:
    """One route for each verb, with its summary; `things` has a method of that name."""
    for verb, words in verbs.items():
        routes.add_api_route(
            f"/{noun}s/{{{noun}_id}}/{verb}",
            _doing(front, noun, things, verb),
            methods=["POST"],
            response_model=None,
            tags=[tag],
            summary=words,
            operation_id=f"{verb}_{noun}",
        )


def _doing(
    front: Front, noun: str, things: Callable[[], Any], verb: str
) -> Callable[..., Awaitable[Response]]:
    async def change(name: str = PathParameter(alias=f"{noun}_id")) -> Response:
        act = partial(getattr(things(), verb), name, by=front.user)
        row = await asyncio.to_thread(act)
        await front.nudge()
        return json_response(asdict(row))

    return change
