"""How the scripted model server speaks Anthropic Messages, stream or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.testing.model_dialect import (
    KINDS,
    Dialect,
    arguments,
    number,
    pieces,
    spent,
    sse,
    whole_arguments,
)
from proctor.testing.model_script import ASSISTANT, RESULT, USER, Item, Turn, turn_of

__all__ = ["ANTHROPIC"]

STOP = {True: "tool_use", False: "end_turn"}


def _turn(body: Mapping[str, Any]) -> Turn:
    items: list[Item] = []
    for message in body.get("messages", []):
        if message.get("role") == ASSISTANT:
            items.append((ASSISTANT, ""))
            continue
        content = message.get("content", "")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = [block for block in blocks if block.get("type") == "tool_result"]
        text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        items += [(RESULT, "")] * len(results)
        if text:
            items.append((USER, text))
    tools = frozenset(str(tool.get("name")) for tool in body.get("tools", []))
    return turn_of(items, tools, tools_off=(body.get("tool_choice") or {}).get("type") == "none")


def _whole(turn: Turn, model: str) -> dict[str, Any]:
    given, answered, cached = spent(turn)
    blocks = _blocks(turn)
    return {
        "id": f"msg_simulated_{number()}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": STOP[blocks[-1]["type"] == "tool_use"],
        "stop_sequence": None,
        "usage": {
            "input_tokens": given,
            "output_tokens": answered,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
        },
    }


def _stream(turn: Turn, model: str) -> list[bytes]:
    message = _whole(turn, model)
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    frames: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    raw = [None, *turn.calls] if message["content"][0]["type"] == "text" else list(turn.calls)
    for index, block in enumerate(message["content"]):
        frames += _block_frames(index, block, raw[index] if index < len(raw) else None)
    frames += [
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": usage["output_tokens"]}},
        {"type": "message_stop"},
    ]
    return [sse(frame, frame["type"]) for frame in frames]


def _block_frames(index: int, block: dict[str, Any], call: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if block["type"] == "tool_use":
        empty: dict[str, Any] = {**block, "input": {}}
        text = arguments(call if call is not None else {"args": block["input"]})
        deltas = [{"type": "input_json_delta", "partial_json": text}]
    else:
        empty = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    return [
        {"type": "content_block_start", "index": index, "content_block": empty},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _blocks(turn: Turn) -> list[dict[str, Any]]:
    said = [{"type": "text", "text": turn.text}] if turn.text else []
    called = [*turn.calls, *_own_tool(turn.step)]
    return [
        *said,
        *(
            {
                "type": "tool_use",
                "id": f"toolu_simulated_{number()}",
                "name": str(call["name"]),
                "input": whole_arguments(call),
            }
            for call in called
        ),
    ]


def _own_tool(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Claude Code's own tools, where the script names only the act."""
    if step.get("tool") == "write":
        return [{"name": "Write", "args": {"file_path": step["path"], "content": step["content"]}}]
    if step.get("tool") == "read":
        return [{"name": "Read", "args": {"file_path": step["path"]}}]
    if step.get("tool") == "shell":
        return [{"name": "Bash", "args": {"command": step["command"], "description": "simulated step"}}]
    return []


def _error(status: int, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": KINDS.get(status, "api_error"), "message": message}}


ANTHROPIC = Dialect("anthropic", _turn, _whole, _stream, _error)
