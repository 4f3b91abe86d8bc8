"""The one registry: a tool is declared once and found by its name or any alias; schemas come from its models.

Invariant: no two tools share a name or an alias, and nothing is taken that the gate could not judge.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from proctor.gate.context import Context
from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.tools import (
    MOCK,
    PARAMETER_ALIASES,
    REAL,
    Handler,
    SideEffect,
    Tool,
    Touch,
    Usage,
)

__all__ = ["InvalidInputError", "Registry", "ToolDeclarationError", "declare"]

I = TypeVar("I", bound=BaseModel)  # noqa: E741 - input and output
O = TypeVar("O", bound=BaseModel)  # noqa: E741
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_DOMAIN = re.compile(r"[a-z][a-z0-9_-]{0,49}")
# Domains whose tools reach files or programs: they must say which, or the policy could not judge them.
_TOUCHING = frozenset({"filesystem", "command"})
_MOST_ERRORS = 5


class ToolDeclarationError(UsageError):
    """The tool {name!r} cannot be declared: {problem}."""

    code = "tool_declaration"


class InvalidInputError(UsageError):
    """The inputs of {tool} are not right: {problems}. `proctor tools show {tool}` lists what it takes."""

    code = "invalid_input"


def declare(
    *,
    name: str,
    summary: str,
    input: type[I],  # noqa: A002 - the word of the design
    output: type[O],
    domain: str,
    side_effect: SideEffect,
    handler: Callable[[Context, I], Awaitable[O]],
    mock: Callable[[Context, I], Awaitable[O]] | None = None,
    adapters: Mapping[str, Callable[[Context, I], Awaitable[O]]] | None = None,
    aliases: Sequence[str] = (),
    parameter_aliases: Mapping[str, str] | None = None,
    reversible: bool = True,
    touches: Callable[[I], Sequence[Touch]] | None = None,
    explains: Callable[[I], Sequence[str]] | None = None,
    estimate: Callable[[I], Usage] | None = None,
    seconds: float = 300.0,
    single_use: bool = True,
    snapshot: bool | None = None,
) -> Tool:
    """Declare a tool; mypy holds handler, models and functions against each other."""
    handlers = {REAL: handler, **({MOCK: mock} if mock is not None else {}), **(adapters or {})}
    return Tool(
        name=name,
        summary=summary,
        input=input,
        output=output,
        domain=domain,
        side_effect=side_effect,
        handlers=MappingProxyType(cast("dict[str, Handler]", handlers)),
        aliases=tuple(aliases),
        parameter_aliases=MappingProxyType({**PARAMETER_ALIASES, **(parameter_aliases or {})}),
        reversible=reversible,
        touches=touches,
        explains=explains,
        estimate=estimate,
        seconds=seconds,
        single_use=single_use,
        snapshot=snapshot,
    )


class Registry:
    """All tools of this process."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._names: dict[str, str] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> Tool:
        """Take a tool; refuses one whose name is taken or whose acts could not be judged."""
        _check(tool)
        for name in (tool.name, *tool.aliases):
            if name in self._names:
                raise ToolDeclarationError(
                    name=tool.name, problem=f"{name!r} is taken by {self._names[name]!r}"
                )
        self._tools[tool.name] = tool
        self._names.update(dict.fromkeys((tool.name, *tool.aliases), tool.name))
        return tool

    def find(self, name: str) -> Tool:
        """Find a tool by name or alias."""
        if name not in self._names:
            from difflib import get_close_matches

            near = get_close_matches(name, self._names, n=3)
            cure = f"Did you mean {' or '.join(near)}?" if near else "See `proctor tools list`."
            raise NotFoundError(kind="tool", name=name[:80], cure=cure)
        return self._tools[self._names[name]]

    def parse(self, tool: Tool, inputs: Mapping[str, Any]) -> BaseModel:
        """Make the tool's input of what a caller sent, whatever names the seeds gave its parameters."""
        try:
            return tool.input.model_validate(_renamed(tool, inputs))
        except ValidationError as error:
            raise InvalidInputError(tool=tool.name, problems=_problems(error)) from None

    def schema(self, name: str) -> dict[str, Any]:
        """Describe a tool as JSON: for models, MCP, REST and the generated page."""
        tool = self.find(name)
        return {
            "name": tool.name,
            "aliases": list(tool.aliases),
            "description": tool.summary,
            "domain": tool.domain,
            "side_effect": tool.side_effect.value,
            "reversible": tool.reversible,
            "adapters": list(tool.adapters),
            "input_schema": tool.input.model_json_schema(),
            "output_schema": tool.output.model_json_schema(mode="serialization"),
        }

    def schemas(self) -> list[dict[str, Any]]:
        """Describe all tools, by name."""
        return [self.schema(name) for name in sorted(self._tools)]

    def tools(self) -> list[Tool]:
        """All tools, by name."""
        return [self._tools[name] for name in sorted(self._tools)]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._tools)


def _check(tool: Tool) -> None:
    problem = ""
    if not all(_NAME.fullmatch(name) for name in (tool.name, *tool.aliases)):
        problem = "names are small letters, digits and underscores, at most 64"
    elif REAL not in tool.handlers and MOCK not in tool.handlers:
        problem = "it has no handler"
    elif tool.domain in _TOUCHING and tool.touches is None:
        problem = f"a tool of the domain {tool.domain!r} must say what a call would touch"
    elif not _DOMAIN.fullmatch(tool.domain) or not tool.summary.strip():
        problem = "it needs a summary, and a domain of small letters, digits, - and _, at most 50"
    elif tool.seconds <= 0:
        problem = "it needs a time limit above 0"
    if problem:
        raise ToolDeclarationError(name=tool.name, problem=problem)


def _renamed(tool: Tool, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Give parameters their own names; the same thing said twice must be the same."""
    fields = set(tool.input.model_fields)
    named: dict[str, Any] = {}
    for name, value in inputs.items():
        own = tool.parameter_aliases.get(name, name) if name not in fields else name
        own = own if own in fields else name
        if own in named and named[own] != value:
            raise InvalidInputError(tool=tool.name, problems=f"{own!r} is given twice, and differently")
        named[own] = value
    return named


def _problems(error: ValidationError) -> str:
    """Which parameters are wrong and why, without repeating values: they may be secrets."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    texts = [
        f"{'.'.join(str(step) for step in one['loc']) or 'all'}: {one['msg']}" for one in found[:_MOST_ERRORS]
    ]
    more = f" (and {len(found) - _MOST_ERRORS} more)" if len(found) > _MOST_ERRORS else ""
    return "; ".join(texts) + more
