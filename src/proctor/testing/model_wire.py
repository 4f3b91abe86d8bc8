"""How the scripted model server answers: Anthropic Messages (stream or not) and OpenAI Responses (stream)."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Mapping
from typing import Any

from proctor.testing.model_script import Turn

__all__ = ["anthropic_error", "anthropic_events", "anthropic_message", "responses_error", "responses_events"]

_ids = itertools.count(1)
USAGE = (1200, 34, 200)
STOP = {True: "tool_use", False: "end_turn"}
Frame = tuple[str, dict[str, Any]]


def _usage(turn: Turn) -> tuple[int, int, int]:
    given, answered, cached = turn.step.get("usage", USAGE)
    return int(given), int(answered), int(cached)


def anthropic_message(turn: Turn, model: str) -> dict[str, Any]:
    """The whole answer as one object."""
    given, answered, cached = _usage(turn)
    block = _anthropic_block(turn)
    return {
        "id": f"msg_simulated_{next(_ids)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": STOP[block["type"] == "tool_use"],
        "stop_sequence": None,
        "usage": {
            "input_tokens": given,
            "output_tokens": answered,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
        },
    }


def anthropic_events(turn: Turn, model: str) -> list[Frame]:
    """The answer as server-sent events."""
    message = anthropic_message(turn, model)
    block, usage = message["content"][0], message["usage"]
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    if block["type"] == "tool_use":
        empty: dict[str, Any] = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    frames: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": usage["output_tokens"]}},
        {"type": "message_stop"},
    ]
    return [(frame["type"], frame) for frame in frames]


def _anthropic_block(turn: Turn) -> dict[str, Any]:
    name, args = _anthropic_call(turn.step)
    if name is None:
        return {"type": "text", "text": str(turn.step.get("text", "done (simulated)"))}
    return {"type": "tool_use", "id": f"toolu_simulated_{next(_ids)}", "name": name, "input": args}


def _anthropic_call(step: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    if "call" in step:
        return str(step["call"]["name"]), dict(step["call"]["args"])
    if step.get("tool") == "write":
        return "Write", {"file_path": step["path"], "content": step["content"]}
    if step.get("tool") == "read":
        return "Read", {"file_path": step["path"]}
    if step.get("tool") == "shell":
        return "Bash", {"command": step["command"], "description": "simulated step"}
    return None, {}


def responses_events(turn: Turn, model: str) -> list[Frame]:
    """The answer as server-sent events."""
    given, answered, cached = _usage(turn)
    response = {"id": f"resp_simulated_{next(_ids)}", "object": "response", "model": model}
    usage = {
        "input_tokens": given + cached,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": answered,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + cached + answered,
    }
    item = _responses_item(turn)
    frames: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item], "usage": usage},
        },
    ]
    return [(frame["type"], frame) for frame in frames]


def _responses_item(turn: Turn) -> dict[str, Any]:
    step, number = turn.step, next(_ids)
    if "call" not in step and "tool" not in step:
        text = {"type": "output_text", "text": str(step.get("text", "done (simulated)")), "annotations": []}
        return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [text]}
    call = {"id": f"item_{number}", "call_id": f"call_{number}", "status": "completed"}
    if "call" in step:
        return {
            "type": "function_call",
            **call,
            "name": step["call"]["name"],
            "arguments": json.dumps(step["call"]["args"]),
        }
    if turn.code_mode:
        return {"type": "custom_tool_call", **call, "name": "exec", "input": _javascript(step)}
    if step["tool"] == "write" and "apply_patch" in turn.tools:
        return {"type": "custom_tool_call", **call, "name": "apply_patch", "input": _patch(step)}
    return {
        "type": "function_call",
        **call,
        "name": "exec_command",
        "arguments": json.dumps({"cmd": _shell(step)}),
    }


def _javascript(step: Mapping[str, Any]) -> str:
    if step["tool"] == "write":
        return f"text(await tools.apply_patch({json.dumps(_patch(step))}))"
    return f"text(await tools.exec_command({json.dumps({'cmd': _shell(step)})}))"


def _patch(step: Mapping[str, Any]) -> str:
    added = "\n".join(f"+{line}" for line in str(step["content"]).splitlines())
    return f"*** Begin Patch\n*** Add File: {step['path']}\n{added}\n*** End Patch\n"


def _shell(step: Mapping[str, Any]) -> str:
    if step["tool"] == "read":
        return f"cat {shlex.quote(step['path'])}"
    if step["tool"] == "write":
        return f"printf %s {shlex.quote(step['content'])} > {shlex.quote(step['path'])}"
    return str(step["command"])


_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def anthropic_error(status: int, message: str) -> dict[str, Any]:
    """A refusal as Anthropic words it."""
    return {"type": "error", "error": {"type": _KINDS.get(status, "api_error"), "message": message}}


def responses_error(status: int, message: str) -> dict[str, Any]:
    """A refusal as OpenAI words it."""
    return {
        "error": {"message": message, "type": _KINDS.get(status, "server_error"), "code": None, "param": None}
    }
