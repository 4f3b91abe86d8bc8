"""The script a prompt carries for the scripted model server, and which of its steps a request is at.

`FAKE:{"steps":[{"tool":"write","path":"/abs/a.txt","content":"hi"},{"call":{"name":"read_file","args":{"path":"a"}}},
{"text":"done"}]}` The last user message with `FAKE:{` counts (within it the first one); the answered calls after it
count the steps done. `calls` makes several calls at once; `raw` instead of `args` sends arguments as they are, also
broken. Faults of a step: `http` (status), `times` (only the first n times), `headers`, `delay`, `hang`, `stall` (half
an answer, then silence), `drop` (half an answer, then gone), `bad_json`; `stubborn` calls a tool although none may be.
A step with `until_told` (a text in pieces, so that the script itself does not hold it) is repeated until a request has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = [
    "ASSISTANT",
    "RESULT",
    "SIDE_ANSWER",
    "TOOLS_OFF",
    "USER",
    "Item",
    "Turn",
    "text_of",
    "turn_of",
]

MARK = "FAKE:"
SIDE_ANSWER = "simulated side answer"
TOOLS_OFF = "no tool may be called, so this is the answer (simulated)"
USER, RESULT, ASSISTANT = "user", "result", "assistant"
Item = tuple[str, str]  # who, and for a user the text
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """What to answer: the step, which one it is, of which script, and the tools the client offers."""

    step: Mapping[str, Any]
    number: int
    script: str
    tools: frozenset[str]
    code_mode: bool = False
    steps: tuple[Mapping[str, Any], ...] = ()

    def back(self, times: int) -> Turn:
        """The turn when so many of the results were of a step that was repeated."""
        number = self.number - times
        return replace(self, number=number, step=_step(self.steps, number))

    @property
    def awaited(self) -> str:
        """What the client must have told before the script goes on behind the step before; mostly nothing."""
        before = self.steps[self.number - 1] if 0 < self.number <= len(self.steps) else {}
        return "".join(before.get("until_told", ()))

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        """The tool calls of the step in our own words: `name` with `args` or `raw`."""
        if "call" in self.step:
            return [self.step["call"]]
        return list(self.step.get("calls", []))

    @property
    def text(self) -> str:
        """What is said; beside calls only what the script says."""
        told = "" if self.calls or "tool" in self.step else "done (simulated)"
        return str(self.step.get("text", told))


def text_of(content: Any) -> str:
    """The text of a content that may be a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or [] if isinstance(part, dict))


def turn_of(
    items: Sequence[Item], tools: frozenset[str], *, tools_off: bool = False, code_mode: bool = False
) -> Turn:
    """Find the step: results that nobody spoke between belong to one step."""
    steps: list[Mapping[str, Any]] | None = None
    done, script, before = 0, "", ""
    for kind, text in items:
        found = _script(text) if kind == USER else None
        if found is not None:
            steps, done, script = found, 0, text
        elif kind == RESULT and before != RESULT:
            done += 1
        before = kind
    if steps is None or not tools:
        return Turn({"text": SIDE_ANSWER}, 0, "", tools, code_mode)
    step = _step(steps, done)
    if tools_off and not step.get("stubborn") and ("call" in step or "calls" in step or "tool" in step):
        step = {"text": str(step.get("otherwise", TOOLS_OFF))}
    return Turn(step, done, script, tools, code_mode, tuple(steps))


def _step(steps: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any]:
    return steps[number] if number < len(steps) else {"text": "the script has ended (simulated)"}


def _script(text: str) -> list[Mapping[str, Any]] | None:
    place = text.find(f"{MARK}{{")
    if place < 0:
        return None
    try:
        script, _ = json.JSONDecoder().raw_decode(text[place + len(MARK) :])
        return list(script["steps"])
    except (ValueError, KeyError, TypeError):
        return [{"text": f"the script cannot be read (simulated): {text[place : place + 80]}"}]
