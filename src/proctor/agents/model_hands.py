"""A model's hands: the whole registry as functions, every use of one a call through the gate (law 1), and no other way.

Invariant: the key of a call is made of the conversation, its turn and the model's own id, so going on after a pause or a
crash finds what was done before and repeats nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_core import from_json, to_json

from proctor.agents.model_turn import AskFn, ListenFn, TurnEvent, nobody_answers, nobody_listens
from proctor.gate.gate import Gate
from proctor.protocol.errors import ProctorError
from proctor.protocol.ids import CallId, new_id
from proctor.protocol.tools import Call, CallResult
from proctor.tools.registry import Registry

__all__ = ["OUTPUT_CAP", "Done", "Hands", "Wanted"]

OUTPUT_CAP: Final = 24_000
REASON_CAP: Final = 2000
MOST_AT_ONCE: Final = 16
BROKEN: Final = "INVALID_JSON"
"""Under this name pydantic-ai keeps arguments that are no JSON, in a form that every provider takes back."""
_WITHHELD: Final = (
    "Not carried out: its arguments hold a secret, so they were not kept while this conversation was paused. "
    "Make the call again."
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call as the model made it; arguments that are no JSON object are a text."""

    call_id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class Done:
    """What the model is told of a call, or who must answer first."""

    wanted: Wanted
    text: str = ""
    ok: bool = False
    code: str = ""
    approval_id: str | None = None
    key: str = ""


class Hands:
    """The tools of one turn."""

    def __init__(
        self,
        gate: Gate,
        registry: Registry,
        template: Call,
        prefix: str,
        *,
        listen: ListenFn = nobody_listens,
        ask: AskFn = nobody_answers,
        withheld: frozenset[str] = frozenset(),
    ) -> None:
        self._gate = gate
        self._registry = registry
        self._template = template
        self._prefix = prefix
        self._listen = listen
        self._ask = ask
        self._withheld = withheld

    def functions(self) -> list[dict[str, Any]]:
        """The registry as a model sees it: name, description, parameters."""
        return [
            {
                "name": tool.name,
                "description": tool.summary,
                "parameters": tool.input.model_json_schema(),
            }
            for tool in self._registry.tools()
        ]

    def key_of(self, call_id: str) -> str:
        """What makes it the same call again."""
        return f"{self._prefix}:{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:32]}"

    async def use(self, wanted: Wanted, place: int, *, why: str = "") -> Done:
        """Carry out one call; whatever is wrong with it becomes what the model is told."""
        key = self.key_of(wanted.call_id)
        if place >= MOST_AT_ONCE:
            return _told(wanted, key, "too_many", f"Not carried out: at most {MOST_AT_ONCE} calls at once.")
        if wanted.call_id in self._withheld:
            return _told(wanted, key, "withheld", _WITHHELD)
        arguments = _arguments(wanted)
        if isinstance(arguments, str):
            return _told(wanted, key, "invalid_input", arguments)
        shown = TurnEvent("tool_start", f"Executing {wanted.name}...", wanted.name, key, {"input": arguments})
        await self._listen(shown)
        done = await self._pass(wanted, arguments, key, why)
        details = {"ok": done.ok, "code": done.code, "approval_id": done.approval_id}
        await self._listen(TurnEvent("tool_end", done.text, wanted.name, key, details))
        return done

    async def _pass(self, wanted: Wanted, arguments: Mapping[str, Any], key: str, why: str) -> Done:
        call = replace(
            self._template,
            tool=wanted.name,
            inputs=arguments,
            idempotency_key=key,
            reasoning=why[:REASON_CAP],
            call_id=CallId(new_id("call")),
        )
        try:
            result = await self._gate.run(call)
            if result.waiting:
                event = TurnEvent("approval", _question(result), wanted.name, key, _facts(result, arguments))
                await self._listen(event)
                held = await self._ask(result, event)
                result = await self._gate.run(call, hold_s=held) if held > 0 else result
        except ProctorError as error:  # it makes no sense to the tool: the model may mend it
            return _told(wanted, key, error.code, str(error))
        return _of(wanted, key, result)


def _arguments(wanted: Wanted) -> Mapping[str, Any] | str:
    """The arguments as a table, or the sentence that says what is wrong with them."""
    found: object = wanted.arguments
    if isinstance(found, Mapping) and set(found) == {BROKEN}:
        found = str(found[BROKEN])
    if isinstance(found, str):
        try:
            found = from_json(found) if found.strip() else {}
        except ValueError as error:
            return f"The arguments of {wanted.name[:80]} are not valid JSON ({str(error)[:120]}). Send them again."
    if not isinstance(found, Mapping):
        return f"The arguments of {wanted.name[:80]} must be a JSON object. Send them again."
    return {str(name): value for name, value in found.items()}


def _question(result: CallResult) -> str:
    return result.error.message if result.error is not None else "A person has to answer first."


def _facts(result: CallResult, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"approval_id": result.approval_id, "input": dict(arguments), "call_id": result.call_id}


def _told(wanted: Wanted, key: str, code: str, message: str) -> Done:
    return Done(wanted, _text({"error": message, "code": code}), code=code, key=key)


def _of(wanted: Wanted, key: str, result: CallResult) -> Done:
    if result.waiting:
        return Done(
            wanted, _question(result), code="approval_pending", approval_id=result.approval_id, key=key
        )
    if result.error is not None:
        return _told(wanted, key, result.error.code, result.error.message)
    extra: dict[str, Any] = {"simulated": True} if result.simulated else {}
    if result.notes:
        extra["notes"] = list(result.notes)
    return Done(wanted, _text({**(result.output or {}), **extra}), ok=True, key=key)


def _text(value: Mapping[str, Any]) -> str:
    """What the model reads: bounded, and it says when something is missing."""
    text = to_json(value, inf_nan_mode="null", serialize_unknown=True).decode()
    if len(text) <= OUTPUT_CAP:
        return text
    return f"{text[:OUTPUT_CAP]}… (truncated: {len(text)} characters in all; ask for a part of it)"
