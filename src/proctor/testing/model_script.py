"""The script a prompt carries for the scripted model server, and which of its steps a request is at.

`FAKE:{"steps":[{"tool":"write","path":"/abs/a.txt","content":"hi"},{"tool":"shell","command":"ls"},{"text":
"done"}]}` The last user message with `FAKE:{` counts (within it the first one); the tool results after it
count the steps done. Faults of a step: `http` (status), `times` (only the first n times), `headers`,
`delay`, `hang`, `drop`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["SIDE_ANSWER", "Turn", "anthropic_turn", "responses_turn"]

MARK = "FAKE:"
SIDE_ANSWER = "simulated side answer"


@dataclass(frozen=True, slots=True)
class Turn:
    """What to answer: the step, which one it is, of which script, and the tools the client offers."""

    step: Mapping[str, Any]
    number: int
    script: str
    tools: frozenset[str]
    code_mode: bool = False


Item = tuple[str, str]  # ("user", text) or ("result", "")


def anthropic_turn(body: Mapping[str, Any]) -> Turn:
    """Read a Messages request."""
    items: list[Item] = []
    for message in body.get("messages", []):
        content = message.get("content", "")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = [block for block in blocks if block.get("type") == "tool_result"]
        text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        items += [("result", "")] * len(results)
        if text and message.get("role") == "user":
            items.append(("user", text))
    tools = frozenset(str(tool.get("name")) for tool in body.get("tools", []))
    return _turn(items, tools)


def responses_turn(body: Mapping[str, Any]) -> Turn:
    """Read a Responses request; newer Codex models bring their tools inside the input."""
    items: list[Item] = []
    tools = {str(tool.get("name") or tool.get("type")) for tool in body.get("tools", [])}
    code_mode = False
    for item in body.get("input", []):
        kind = item.get("type")
        if kind == "additional_tools":
            code_mode = True
            tools.add("exec")
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            items.append(("result", ""))
        elif item.get("role") == "user":
            items.append(("user", _text(item.get("content", ""))))
    return _turn(items, frozenset(tools), code_mode)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)


def _turn(items: Sequence[Item], tools: frozenset[str], code_mode: bool = False) -> Turn:
    steps: list[Mapping[str, Any]] | None = None
    done, script = 0, ""
    for kind, text in items:
        found = _script(text) if kind == "user" else None
        if found is not None:
            steps, done, script = found, 0, text
        elif kind == "result":
            done += 1
    if steps is None or not tools:
        return Turn({"text": SIDE_ANSWER}, 0, "", tools, code_mode)
    step = steps[done] if done < len(steps) else {"text": "the script has ended (simulated)"}
    return Turn(step, done, script, tools, code_mode)


def _script(text: str) -> list[Mapping[str, Any]] | None:
    place = text.find(f"{MARK}{{")
    if place < 0:
        return None
    try:
        script, _ = json.JSONDecoder().raw_decode(text[place + len(MARK) :])
        return list(script["steps"])
    except (ValueError, KeyError, TypeError):
        return [{"text": f"the script cannot be read (simulated): {text[place : place + 80]}"}]
