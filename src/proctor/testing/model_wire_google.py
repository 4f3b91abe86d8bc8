"""How the scripted model server speaks Google's generateContent and streamGenerateContent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.testing.model_dialect import Dialect, number, pieces, spent, sse, whole_arguments
from proctor.testing.model_script import ASSISTANT, RESULT, USER, Item, Turn, turn_of

__all__ = ["GOOGLE"]

STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def _turn(body: Mapping[str, Any]) -> Turn:
    items: list[Item] = []
    for content in body.get("contents", []):
        parts = content.get("parts", [])
        if content.get("role") == "model":
            items.append((ASSISTANT, ""))
            continue
        for part in parts:
            if "functionResponse" in part or "function_response" in part:
                items.append((RESULT, ""))
            elif part.get("text"):
                items.append((USER, str(part["text"])))
    declared = [
        one
        for tool in body.get("tools", [])
        for one in _either(tool, "functionDeclarations", "function_declarations", [])
    ]
    tools = frozenset(str(one.get("name")) for one in declared)
    config = _either(
        _either(body, "toolConfig", "tool_config", {}), "functionCallingConfig", "function_calling_config", {}
    )
    return turn_of(items, tools, tools_off=str(config.get("mode", "")).upper() == "NONE")


def _either(body: Mapping[str, Any], one: str, other: str, default: Any) -> Any:
    return body.get(one) or body.get(other) or default


def _answer(parts: list[dict[str, Any]], model: str, mark: str, *, end: bool, turn: Turn) -> dict[str, Any]:
    given, answered, cached = spent(turn)
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if end:
        candidate["finishReason"] = "STOP"
    usage = {
        "promptTokenCount": given + cached,
        "candidatesTokenCount": answered,
        "totalTokenCount": given + cached + answered,
        "cachedContentTokenCount": cached,
    }
    # One id in all pieces: a client takes another one for another answer.
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": mark}


def _calls(turn: Turn) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": f"fc_{number()}", "name": str(call["name"]), "args": whole_arguments(call)}}
        for call in turn.calls
    ]


def _whole(turn: Turn, model: str) -> dict[str, Any]:
    said = [{"text": turn.text}] if turn.text else []
    return _answer([*said, *_calls(turn)], model, f"resp_simulated_{number()}", end=True, turn=turn)


def _stream(turn: Turn, model: str) -> list[bytes]:
    mark = f"resp_simulated_{number()}"
    parts = [[{"text": piece}] for piece in pieces(turn.text) if piece] + [[call] for call in _calls(turn)]
    last = len(parts) - 1
    return [sse(_answer(part, model, mark, end=place == last, turn=turn)) for place, part in enumerate(parts)]


def _error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": STATUS.get(status, "UNKNOWN")}}


GOOGLE = Dialect("google", _turn, _whole, _stream, _error)
