"""The registry in MCP's words: tools with their schemas as they are, and a call's outcome as a result. No I/O.

A result says everything twice, as structured content and as text, both cut to the same cap; what is cut says `truncated`. A
question that waits for a person is a normal result, everything that went wrong is one with `is_error` and the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from pydantic_core import to_json

from proctor.protocol.errors import ProctorError
from proctor.protocol.tools import CallError, CallResult, SideEffect, Tool

__all__ = ["MAX_OUTPUT", "PENDING", "error_result", "result_of", "tool_of"]

MAX_OUTPUT: Final = 100_000
"""Characters of one result's JSON: about what a model's context bears."""
META: Final = "proctor/call"
PENDING: Final[Mapping[str, Any]] = {
    "title": "ApprovalPending",
    "description": "A person has to answer first. Call again with the same arguments afterwards: it then runs once.",
    "type": "object",
    "properties": {
        "status": {"const": "approval_pending"},
        "approval_id": {"type": "string"},
        "reason": {"type": "string"},
        "answer": {"type": "string"},
        "repeat": {"type": "string"},
    },
    "required": ["status", "approval_id", "reason", "answer", "repeat"],
}


def tool_of(tool: Tool) -> types.Tool:
    """One tool as it is listed."""
    changes = not tool.read_only
    return types.Tool(
        name=tool.name,
        description=_description(tool),
        input_schema=tool.input.model_json_schema(),
        output_schema=_output_schema(tool),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.read_only,
            # A proposal adds; what executes may also take away.
            destructive_hint=changes and (tool.side_effect is SideEffect.EXECUTE or not tool.reversible),
            idempotent_hint=tool.read_only,
            open_world_hint=False,
        ),
    )


def _description(tool: Tool) -> str:
    if tool.reversible:
        return tool.summary
    return f"{tool.summary} It cannot be taken back, so a person is asked first."


def _output_schema(tool: Tool) -> dict[str, Any]:
    """The tool's own schema or the one of a question; MCP wants an object at the root, and references from there."""
    own = tool.output.model_json_schema(mode="serialization")
    definitions = own.pop("$defs", None)
    whole: dict[str, Any] = {"type": "object", "anyOf": [own, dict(PENDING)]}
    return whole if definitions is None else {**whole, "$defs": definitions}


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────


def result_of(result: CallResult, lapsed: str = "") -> types.CallToolResult:
    """What came of a call."""
    if result.waiting:
        return _pending(result, lapsed)
    if result.error is not None:
        return _wrong(result.error, result)
    if result.output is None:
        text = "It was done before; its output was not kept."
        return _wrong(CallError("output_not_kept", text), result)
    output, cut = _fitting(result.output)
    notes = [*result.notes, *_about(result, cut)]
    return types.CallToolResult(
        content=_content(output, notes), structured_content=output, _meta={META: _facts(result, notes)}
    )


def _pending(result: CallResult, lapsed: str) -> types.CallToolResult:
    reason = result.error.message if result.error is not None else "A person has to answer first."
    before = f"The question {lapsed} expired without an answer; it was asked again. " if lapsed else ""
    body = {
        "status": "approval_pending",
        "approval_id": result.approval_id or "",
        "reason": before + reason,
        "answer": f"A person answers with `proctor approve {result.approval_id}` or `proctor deny {result.approval_id}`, "
        "or in the dashboard. You cannot answer it.",
        "repeat": "Nothing was done yet. Call this tool again with exactly the same arguments after the answer: "
        "it then runs once.",
    }
    return types.CallToolResult(
        content=_content(body, ()), structured_content=body, _meta={META: _facts(result, ())}
    )


def error_result(error: ProctorError) -> types.CallToolResult:
    """A request that makes no sense: unknown tool, wrong arguments."""
    return _wrong(CallError(error.code, str(error), error.exit_code), None)


def _wrong(error: CallError, result: CallResult | None) -> types.CallToolResult:
    body: dict[str, Any] = {"status": "error", "code": error.code, "error": error.message}
    if error.reason:
        body["reason"] = error.reason
    meta = None if result is None else {META: _facts(result, result.notes)}
    shown, _ = _fitting(body)
    return types.CallToolResult(
        content=_content(shown, () if result is None else result.notes),
        structured_content=shown,
        is_error=True,
        _meta=meta,
    )


def _facts(result: CallResult, notes: Any) -> dict[str, Any]:
    return {
        "call_id": result.call_id,
        "trace_id": result.trace_id,
        "approval_id": result.approval_id,
        "snapshot_id": result.snapshot_id,
        "simulated": result.simulated,
        "replayed": result.replayed,
        "notes": list(notes),
    }


def _about(result: CallResult, cut: bool) -> list[str]:
    notes = []
    if result.replayed:
        notes.append(
            f"This is the kept result of {result.call_id}, which ran once after its answer; it was not run again."
        )
    if result.simulated:
        notes.append("SIMULATED: nothing of this was done for real.")
    if cut:
        notes.append(f"truncated: the output had more than {MAX_OUTPUT} characters.")
    return notes


def _content(body: Mapping[str, Any], notes: Any) -> list[types.ContentBlock]:
    texts = [to_json(body, inf_nan_mode="null", serialize_unknown=True).decode(), *notes]
    return [types.TextContent(type="text", text=text) for text in texts]


# ── the cap ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _fitting(output: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The output as JSON within the cap, and whether something was cut; the shape stays, texts and lists get shorter."""
    whole: dict[str, Any] = dict(output)
    if _size(whole) <= MAX_OUTPUT:
        return whole, False
    texts, items = MAX_OUTPUT // 2, 2000
    while True:
        small = {name: _shorter(value, texts, items) for name, value in whole.items()}
        if _size(small) <= MAX_OUTPUT or (texts <= 1 and items <= 1):
            # Where the tool has a word for it, it says it too.
            return ({**small, "truncated": True} if "truncated" in small else small), True
        texts, items = max(1, texts // 2), max(1, items // 2)


def _size(value: Any) -> int:
    return len(to_json(value, inf_nan_mode="null", serialize_unknown=True))


def _shorter(value: Any, texts: int, items: int) -> Any:
    if isinstance(value, str) and len(value) > texts:
        return f"{value[:texts]}… truncated: {len(value) - texts} more characters"
    if isinstance(value, list | tuple):
        return [_shorter(one, texts, items) for one in value[:items]]
    if isinstance(value, Mapping):
        return {name: _shorter(one, texts, items) for name, one in list(value.items())[: max(items, 50)]}
    return value
