"""How the scripted model server speaks Ollama's own /api/chat: one JSON object, or one per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from proctor.testing.model_dialect import Dialect, pieces, spent, whole_arguments
from proctor.testing.model_script import ASSISTANT, RESULT, USER, Item, Turn, text_of, turn_of

__all__ = ["OLLAMA", "tags"]

CREATED = "2026-01-01T00:00:00Z"


def _turn(body: Mapping[str, Any]) -> Turn:
    items: list[Item] = []
    for message in body.get("messages", []):
        role = message.get("role")
        if role == "tool":
            items.append((RESULT, ""))
        elif role in {USER, ASSISTANT}:
            items.append((role, text_of(message.get("content") or "")))
    tools = frozenset(str(tool.get("function", {}).get("name")) for tool in body.get("tools") or [])
    return turn_of(items, tools)  # Ollama knows no tool choice


def _calls(turn: Turn) -> list[dict[str, Any]]:
    return [
        {"function": {"name": str(call["name"]), "arguments": whole_arguments(call)}} for call in turn.calls
    ]


def _line(model: str, message: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": model, "created_at": CREATED, "message": message, "done": False, **more}


def _counts(turn: Turn) -> dict[str, Any]:
    given, answered, cached = spent(turn)
    times = {"total_duration": 5_000_000, "load_duration": 1_000_000, "eval_duration": 2_000_000}
    return {
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": given + cached,
        "eval_count": answered,
        **times,
    }


def _whole(turn: Turn, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.calls:
        message["tool_calls"] = _calls(turn)
    return _line(model, message, **_counts(turn))


def _stream(turn: Turn, model: str) -> list[bytes]:
    said = [_line(model, {"role": "assistant", "content": piece}) for piece in pieces(turn.text) if piece]
    called = [_line(model, {"role": "assistant", "content": "", "tool_calls": [one]}) for one in _calls(turn)]
    ending = _line(model, {"role": "assistant", "content": ""}, **_counts(turn))
    return [json.dumps(line).encode() + b"\n" for line in (*said, *called, ending)]


def _error(_status: int, message: str) -> dict[str, Any]:
    return {"error": message}


def tags(names: tuple[str, ...]) -> dict[str, Any]:
    """What /api/tags says."""
    return {"models": [{"name": name, "model": name, "size": 0, "digest": "simulated"} for name in names]}


OLLAMA = Dialect("ollama", _turn, _whole, _stream, _error, kind="application/x-ndjson")
