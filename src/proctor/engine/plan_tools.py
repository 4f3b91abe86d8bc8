"""The stand-in for a tool that nobody has registered: it runs on the mock adapter only and says so everywhere.

What it would do is judged as if it were real: by the side-effect class and domain its step names, and by its name where
that says more (what sends or publishes cannot be taken back).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from proctor.gate.context import Context
from proctor.protocol.plans import PlanStep
from proctor.protocol.tools import MOCK, Tool, Usage

__all__ = ["StandIn", "consequences_by_name", "is_final_by_name"]

_FINAL: Final = frozenset({"send", "publish"})
_BY_WORD: Final[Sequence[tuple[frozenset[str], tuple[str, ...]]]] = (
    (_FINAL, ("a message would leave for people outside", "they would see who sent it")),
    (frozenset({"assign", "update"}), ("a shared record would change", "others would see the change")),
    (frozenset({"close", "forecast"}), ("a deal's state would change", "forecasts and figures would follow")),
)
_MICRO: Final = 1_000_000


class _Anything(BaseModel):
    """Whatever the step says."""

    model_config = ConfigDict(extra="allow")


class _Simulated(BaseModel):
    """What a stand-in gives."""

    simulated: bool
    tool: str
    message: str


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", name.lower()))


def is_final_by_name(name: str) -> bool:
    """Whether the name says that it cannot be taken back."""
    return bool(_words(name) & _FINAL)


def consequences_by_name(name: str) -> tuple[str, ...]:
    """What the name says would happen."""
    for words, lines in _BY_WORD:
        if words & _words(name):
            return lines
    return (f"{name} would be carried out",)


class StandIn:
    """The registry of one simulated step: it knows exactly that tool."""

    def __init__(self, step: PlanStep) -> None:
        self._tool = _tool_of(step)

    def find(self, name: str) -> Tool:
        """The stand-in, whatever it is called."""
        return self._tool

    def parse(self, tool: Tool, inputs: Mapping[str, Any]) -> BaseModel:
        """Take the inputs as they are."""
        return _Anything.model_validate(dict(inputs))


def _tool_of(step: PlanStep) -> Tool:
    async def simulate(_context: Context, _inputs: Any) -> BaseModel:
        text = f"SIMULATED: there is no tool {step.tool!r} here; nothing was done."
        return _Simulated(simulated=True, tool=step.tool, message=text)

    usage = Usage(step.estimated_tokens, round(step.estimated_cost * _MICRO))
    return Tool(
        name=step.tool,
        summary=step.name or step.tool,
        input=_Anything,
        output=_Simulated,
        domain=step.domain,
        side_effect=step.side_effect,
        handlers={MOCK: simulate},
        reversible=step.metadata.get("reversible", True) is True and not is_final_by_name(step.tool),
        explains=lambda _: (*consequences_by_name(step.tool), "review the effect before you say yes"),
        estimate=lambda _: usage,
        seconds=60.0,
    )
