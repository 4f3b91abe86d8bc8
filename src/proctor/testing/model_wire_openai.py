"""How the scripted model server speaks OpenAI: Responses (also as Codex uses it) and Chat Completions, stream or not."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from proctor.testing.model_dialect import KINDS, Dialect, arguments, number, pieces, spent, sse
from proctor.testing.model_script import ASSISTANT, RESULT, USER, Item, Turn, text_of, turn_of

__all__ = ["CHAT", "RESPONSES"]

CREATED = 1_700_000_000
DONE = b"data: [DONE]\n\n"
Json = dict[str, Any]


def _error(status: int, message: str) -> Json:
    kind = KINDS.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "code": None, "param": None}}


# ── Responses ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _responses_turn(body: Mapping[str, Any]) -> Turn:
    """Newer Codex models bring their tools inside the input."""
    items: list[Item] = []
    tools = {str(tool.get("name") or tool.get("type")) for tool in body.get("tools", [])}
    code_mode = False
    given = body.get("input", [])
    for item in [{"role": USER, "content": given}] if isinstance(given, str) else given:
        kind = item.get("type")
        if kind == "additional_tools":
            code_mode = True
            tools.add("exec")
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            items.append((RESULT, ""))
        elif kind in {"function_call", "custom_tool_call"} or item.get("role") == ASSISTANT:
            items.append((ASSISTANT, ""))
        elif item.get("role") == USER:
            items.append((USER, text_of(item.get("content", ""))))
    off = body.get("tool_choice") == "none"
    return turn_of(items, frozenset(tools), tools_off=off, code_mode=code_mode)


def _response(model: str, status: str, **more: Any) -> Json:
    return {
        "id": f"resp_simulated_{number()}",
        "object": "response",
        "created_at": CREATED,
        "model": model,
        "status": status,
        "output": [],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        **more,
    }


def _responses_whole(turn: Turn, model: str) -> Json:
    given, answered, cached = spent(turn)
    usage = {
        "input_tokens": given + cached,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": answered,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + cached + answered,
    }
    return _response(model, "completed", output=_items(turn), usage=usage)


def _responses_stream(turn: Turn, model: str) -> list[bytes]:
    whole = _responses_whole(turn, model)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    frames: list[Json] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(whole["output"]):
        frames += _item_frames(index, item)
    frames.append({"type": "response.completed", "response": whole})
    return [sse({**frame, "sequence_number": place}, frame["type"]) for place, frame in enumerate(frames)]


def _item_frames(index: int, item: Json) -> list[Json]:
    place = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "message":
        text = item["content"][0]["text"]
        empty = {**item, "content": [], "status": "in_progress"}
        part = {"content_index": 0, **place}
        said: list[Json] = [
            {"type": "response.content_part.added", **part, "part": {**item["content"][0], "text": ""}},
            *(
                {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []}
                for piece in pieces(text)
            ),
            {"type": "response.output_text.done", **part, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **part, "part": item["content"][0]},
        ]
    elif item["type"] == "function_call":
        empty, told = {**item, "arguments": "", "status": "in_progress"}, item["arguments"]
        said = [
            {"type": "response.function_call_arguments.delta", **place, "delta": told},
            {
                "type": "response.function_call_arguments.done",
                **place,
                "arguments": told,
                "name": item["name"],
            },
        ]
    else:
        empty, said = {**item, "input": "", "status": "in_progress"}, []
    return [
        {"type": "response.output_item.added", "output_index": index, "item": empty},
        *said,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _items(turn: Turn) -> list[Json]:
    said = [_message(turn.text)] if turn.text else []
    called = [_in_namespace(_function(str(call["name"]), arguments(call))) for call in turn.calls]
    return [*said, *called, *([_codex(turn)] if "tool" in turn.step else [])]


def _in_namespace(call: Json) -> Json:
    """Codex knows the tools of an MCP server as a namespace: `mcp__server__tool` is `tool` in `mcp__server`."""
    kind, *rest = str(call["name"]).split("__", 2)
    return (
        {**call, "namespace": f"mcp__{rest[0]}", "name": rest[1]}
        if kind == "mcp" and len(rest) == 2
        else call
    )


def _message(text: str) -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    own = {"type": "message", "id": f"msg_{number()}", "role": "assistant", "status": "completed"}
    return {**own, "content": [part]}


def _function(name: str, told: str) -> Json:
    return {"type": "function_call", **_mark(), "name": name, "arguments": told}


def _mark() -> Json:
    one = number()
    return {"id": f"item_{one}", "call_id": f"call_{one}", "status": "completed"}


def _codex(turn: Turn) -> Json:
    """Codex's own tools, where the script names only the act."""
    step = turn.step
    if turn.code_mode:
        return {"type": "custom_tool_call", **_mark(), "name": "exec", "input": _javascript(step)}
    if step["tool"] == "write" and "apply_patch" in turn.tools:
        return {"type": "custom_tool_call", **_mark(), "name": "apply_patch", "input": _patch(step)}
    return _function("exec_command", json.dumps({"cmd": _shell(step)}))


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


# ── Chat Completions ──────────────────────────────────────────────────────────────────────────────────────────────


def _chat_turn(body: Mapping[str, Any]) -> Turn:
    items: list[Item] = []
    for message in body.get("messages", []):
        role = message.get("role")
        if role == "tool":
            items.append((RESULT, ""))
        elif role in {USER, ASSISTANT}:
            items.append((role, text_of(message.get("content") or "")))
    tools = frozenset(str(tool.get("function", {}).get("name")) for tool in body.get("tools", []))
    return turn_of(items, tools, tools_off=body.get("tool_choice") == "none")


def _chat_calls(turn: Turn) -> list[Json]:
    return [
        {
            "id": str(call.get("id", f"call_{number()}")),  # some servers number each answer's calls anew
            "type": "function",
            "function": {"name": str(call["name"]), "arguments": arguments(call)},
        }
        for call in turn.calls
    ]


def _chat_usage(turn: Turn) -> Json:
    given, answered, cached = spent(turn)
    return {
        "prompt_tokens": given + cached,
        "completion_tokens": answered,
        "total_tokens": given + cached + answered,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _completion(model: str, kind: str, choices: list[Json], **more: Any) -> Json:
    head = {"id": f"chatcmpl-simulated-{number()}", "object": kind, "created": CREATED, "model": model}
    return {**head, "choices": choices, **more}


def _chat_whole(turn: Turn, model: str) -> Json:
    calls = _chat_calls(turn)
    message: Json = {"role": "assistant", "content": turn.text or None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": _finish(calls), "logprobs": None}
    return _completion(model, "chat.completion", [choice], usage=_chat_usage(turn))


def _finish(calls: list[Json]) -> str:
    return "tool_calls" if calls else "stop"


def _chat_stream(turn: Turn, model: str) -> list[bytes]:
    calls = _chat_calls(turn)
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces(turn.text) if piece]
    for index, call in enumerate(calls):
        begun = {**call["function"], "arguments": ""}
        deltas.append({"tool_calls": [{**call, "index": index, "function": begun}]})
        told = {"arguments": call["function"]["arguments"]}
        deltas.append({"tool_calls": [{"index": index, "function": told}]})
    first = _completion(model, "chat.completion.chunk", [])
    frames = [{**first, "choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
    frames.append({**first, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(calls)}]})
    frames.append({**first, "choices": [], "usage": _chat_usage(turn)})
    return [*(sse(frame) for frame in frames), DONE]


RESPONSES = Dialect("openai-responses", _responses_turn, _responses_whole, _responses_stream, _error)
CHAT = Dialect("openai-chat", _chat_turn, _chat_whole, _chat_stream, _error)
