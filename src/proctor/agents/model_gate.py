"""A model request as a governed call: tokens and money are reserved before it and settled after it, in the same budget as
everything else the conversation does.

A failed request is charged what it may have cost; one that the provider refused outright costs nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict

from proctor.agents.model_prices import cost_of
from proctor.agents.model_spec import ModelSpec
from proctor.agents.model_turn import Used
from proctor.gate.gate import Gate, Tools
from proctor.protocol.errors import NotFoundError
from proctor.protocol.ids import CallId, new_id
from proctor.protocol.tools import Call, SideEffect, Tool, Usage
from proctor.tools.registry import declare

__all__ = ["TOOL", "GovernedRequests", "Open", "RequestIn"]

TOOL = "model_request"


class RequestIn(BaseModel):
    """One request to a model, and the most it may use."""

    model_config = ConfigDict(extra="forbid")

    agent: str
    provider: str
    model: str
    request: int
    messages: int
    tools: int
    most_tokens: int
    most_micro_usd: int | None


class RequestOut(BaseModel):
    """What came back, without the words: those are in the chat."""

    finish_reason: str = ""
    tool_calls: list[str] = []
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    micro_usd: int | None = 0


async def _never(_context: object, _inputs: RequestIn) -> NoReturn:
    raise AssertionError("a model request is made inside the gate's own block")


class _OneTool:
    """The only thing that can be called through this gate."""

    def __init__(self, seconds: float) -> None:
        self._tool = declare(
            name=TOOL,
            summary="Ask a language model.",
            input=RequestIn,
            output=RequestOut,
            domain="model",
            side_effect=SideEffect.READ_ONLY,
            handler=_never,
            estimate=lambda asked: Usage(tokens=asked.most_tokens, micro_usd=asked.most_micro_usd),
            seconds=seconds,
        )

    def find(self, name: str) -> Tool:
        """The one there is."""
        if name != TOOL:
            raise NotFoundError(kind="tool", name=name, cure="")
        return self._tool

    def parse(self, _tool: Tool, inputs: Mapping[str, Any]) -> BaseModel:
        """Its input."""
        return RequestIn.model_validate(inputs)


@dataclass(slots=True)
class Open:
    """A request under way: how long it may take, and what it says it has used."""

    seconds: float
    used: Used | None = None
    finish_reason: str = ""
    tool_calls: tuple[str, ...] = ()


class GovernedRequests:
    """Opens model requests of one agent in the budget of one conversation."""

    def __init__(self, make_gate: Callable[[Tools], Gate], spec: ModelSpec, template: Call) -> None:
        self._gate = make_gate(_OneTool(float(spec.api.seconds)))
        self._spec = spec
        self._template = template

    @asynccontextmanager
    async def open(
        self, *, request: int, messages: int, tools: int, input_tokens: int
    ) -> AsyncIterator[Open]:
        """Reserve, let the caller ask, settle. Raises `CallRefusedError` when the budget says no."""
        spec = self._spec
        most = RequestIn(
            agent=spec.agent,
            provider=spec.provider,
            model=spec.model,
            request=request,
            messages=messages,
            tools=tools,
            most_tokens=input_tokens + spec.api.max_tokens,
            most_micro_usd=cost_of(spec, input_tokens=input_tokens, output_tokens=spec.api.max_tokens),
        )
        call = replace(
            self._template, tool=TOOL, inputs=most.model_dump(), call_id=CallId(new_id("call")), reasoning=""
        )
        async with self._gate.open(call) as opened:
            under_way = Open(opened.seconds)
            try:
                yield under_way
            finally:
                used = under_way.used
                if used is not None:
                    tokens = used.input_tokens + used.output_tokens
                    opened.meter.charge(Usage(tokens=tokens, micro_usd=used.micro_usd))
                    opened.output = _out(under_way, used)


def _out(done: Open, used: Used) -> dict[str, Any]:
    return RequestOut(
        finish_reason=done.finish_reason,
        tool_calls=list(done.tool_calls),
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cached_tokens,
        micro_usd=used.micro_usd,
    ).model_dump(mode="json")
