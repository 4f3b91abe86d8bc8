"""What every protocol of the scripted model server has: how a request is read, answered whole, streamed and refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.testing.model_script import Turn

__all__ = [
    "EVENT_STREAM",
    "KINDS",
    "Dialect",
    "arguments",
    "number",
    "pieces",
    "spent",
    "sse",
    "whole_arguments",
]

EVENT_STREAM = "text/event-stream"
USAGE = (1200, 34, 200)
PIECE = 12
KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One protocol."""

    name: str
    turn: Callable[[Mapping[str, Any]], Turn]
    whole: Callable[[Turn, str], dict[str, Any]]
    stream: Callable[[Turn, str], list[bytes]]
    error: Callable[[int, str], dict[str, Any]]
    kind: str = EVENT_STREAM


def number() -> int:
    """A number nobody had before."""
    return next(_ids)


def spent(turn: Turn) -> tuple[int, int, int]:
    """Tokens of the answer: read, written, read from a cache beside."""
    given, answered, cached = turn.step.get("usage", USAGE)
    return int(given), int(answered), int(cached)


def pieces(text: str) -> list[str]:
    """A text as it is streamed."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)] or [""]


def arguments(call: Mapping[str, Any]) -> str:
    """A call's arguments as text, broken where the script says so."""
    return str(call["raw"]) if "raw" in call else json.dumps(call.get("args", {}))


def whole_arguments(call: Mapping[str, Any]) -> Any:
    """A call's arguments for protocols that send them as a value; broken ones are a text."""
    return call["raw"] if "raw" in call else dict(call.get("args", {}))


def sse(frame: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(frame)}\n\n".encode()
