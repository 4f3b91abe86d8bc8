"""A conversation as pydantic-ai's messages: kept as JSON without secrets, fitted into a cap, and what is open in it.

Invariant: every call of the model has exactly one result behind it before the model is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from proctor.agents.model_hands import Done, Wanted
from proctor.protocol.ids import new_id
from proctor.trace.rows import Redacts

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

__all__ = [
    "HISTORY_CAP",
    "apart",
    "close_open",
    "dump",
    "fit",
    "instructed",
    "last_answer",
    "load",
    "open_calls",
    "prompt",
    "results",
    "tidy",
    "turn_requests",
    "warm",
]

HISTORY_CAP: Final = 512 * 1024
LEFT_OUT: Final = "(left out to save room; call the tool again if you need it)"
_KEEP_LAST: Final = 6
Json = list[dict[str, Any]]


def warm() -> None:
    """Import what messages need; it takes seconds."""
    import pydantic_ai.direct
    import pydantic_ai.messages  # noqa: F401


def prompt(text: str) -> ModelMessage:
    """What a person says."""
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    return ModelRequest(parts=[UserPromptPart(text)])


def results(done: Iterable[Done]) -> ModelMessage:
    """What the tools gave."""
    from pydantic_ai.messages import ModelRequest, ToolReturnPart

    return ModelRequest(
        parts=[
            ToolReturnPart(
                one.wanted.name,
                one.text,
                tool_call_id=one.wanted.call_id,
                outcome="success" if one.ok else "failed",
            )
            for one in done
        ]
    )


def open_calls(history: Sequence[ModelMessage]) -> list[Wanted]:
    """Calls of the last answer that have no result yet."""
    from pydantic_ai.messages import ModelResponse

    if not history or not isinstance(history[-1], ModelResponse):
        return []
    return [Wanted(call.tool_call_id, call.tool_name, call.args or {}) for call in history[-1].tool_calls]


def last_answer(history: Sequence[ModelMessage]) -> ModelResponse | None:
    """The answer the conversation ends with; None when somebody or something else spoke last, or calls are open."""
    from pydantic_ai.messages import ModelResponse

    last = history[-1] if history else None
    return last if isinstance(last, ModelResponse) and not last.tool_calls else None


def close_open(history: list[ModelMessage], why: str) -> None:
    """Say of every open call that it has no result, so that the conversation can go on without it."""
    left = open_calls(history)
    if left:
        history.append(results(Done(one, f'{{"error": "{why}"}}') for one in left))


def turn_requests(history: Sequence[ModelMessage]) -> int:
    """How often the model was asked since a person spoke last."""
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    count = 0
    for message in reversed(history):
        if isinstance(message, ModelRequest):
            if any(isinstance(part, UserPromptPart) for part in message.parts):
                break
        else:
            count += 1
    return count


def apart(response: ModelResponse, history: Sequence[ModelMessage]) -> ModelResponse:
    """Give a call another id when one before it has the same: some servers number the calls of each answer anew."""
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    taken = {
        part.tool_call_id
        for message in history
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }
    parts = list(response.parts)
    for place, part in enumerate(parts):
        if isinstance(part, ToolCallPart):
            own = new_id("call") if part.tool_call_id in taken else part.tool_call_id
            parts[place] = replace(part, tool_call_id=own)
            taken.add(own)
    return replace(response, parts=parts)


def tidy(response: ModelResponse) -> ModelResponse:
    """Make arguments a table: as a text they would hide names of secrets, and broken ones no provider takes back."""
    from pydantic_ai.messages import ToolCallPart

    parts = [
        ToolCallPart(
            part.tool_name,
            part.args_as_dict(),
            part.tool_call_id,
            id=part.id,
            provider_name=part.provider_name,
            provider_details=part.provider_details,
        )
        if isinstance(part, ToolCallPart)
        else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


def instructed(history: Sequence[ModelMessage], instructions: str) -> list[ModelMessage]:
    """The history with the system prompt of this moment, which is never kept."""
    from pydantic_ai.messages import ModelRequest

    last = history[-1]
    assert isinstance(last, ModelRequest), "a model is asked after somebody or something else spoke"
    return [*history[:-1], replace(last, instructions=instructions)]


def dump(history: Sequence[ModelMessage], redactor: Redacts) -> tuple[Json, list[str]]:
    """The history as it is kept, and the open calls whose arguments are not whole in it."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

    tidied = [tidy(one) if isinstance(one, ModelResponse) else one for one in history]
    whole: Json = ModelMessagesTypeAdapter.dump_python(tidied, mode="json")
    kept: Json = [_redacted(message, redactor) for message in whole]
    still_open = {one.call_id for one in open_calls(history)}
    withheld = [
        before["tool_call_id"]
        for old, new in zip(whole[-1:], kept[-1:], strict=True)
        for before, after in zip(old["parts"], new["parts"], strict=True)
        if before.get("tool_call_id") in still_open and before.get("args") != after.get("args")
    ]
    return kept, withheld


def _redacted(message: dict[str, Any], redactor: Redacts) -> dict[str, Any]:
    """Only what was said and given may hold secrets; ids must stay as they are, and the system prompt is never kept."""
    told = {"instructions": None} if "instructions" in message else {}
    return {**message, **told, "parts": [_part(part, redactor) for part in message["parts"]]}


def _part(part: dict[str, Any], redactor: Redacts) -> dict[str, Any]:
    said: dict[str, Any] = {name: redactor.value(part[name]) for name in ("content", "args") if name in part}
    if part.get("part_kind") == "thinking" and said.get("content") != part.get("content"):
        said = {
            "content": "",
            "signature": None,
        }  # signed as a whole: a provider takes it unchanged or not at all
    return {**part, **said}


def load(kept: Json) -> list[ModelMessage]:
    """The history of a conversation again."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return ModelMessagesTypeAdapter.validate_python(kept)


def fit(history: list[ModelMessage], cap: int = HISTORY_CAP) -> None:
    """Make room: first old results of tools go, then whole old turns; what a person said last always stays."""
    size = _size(history)
    for place in range(len(history) - _KEEP_LAST):
        if size <= cap:
            return
        history[place] = _without_results(history[place])
        size = _size(history)
    while size > cap and (later := _second_turn(history)):
        del history[:later]
        size = _size(history)


def _size(history: Sequence[ModelMessage]) -> int:
    return len(to_json(history, serialize_unknown=True))


def _without_results(message: ModelMessage) -> ModelMessage:
    from pydantic_ai.messages import ModelRequest, ToolReturnPart

    if not isinstance(message, ModelRequest):
        return message
    parts = [
        ToolReturnPart(part.tool_name, LEFT_OUT, part.tool_call_id)
        if isinstance(part, ToolReturnPart)
        else part
        for part in message.parts
    ]
    return replace(message, parts=parts)


def _second_turn(history: Sequence[ModelMessage]) -> int:
    """Where the second thing a person said stands; 0 when there is none."""
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    places = [
        place
        for place, message in enumerate(history)
        if isinstance(message, ModelRequest)
        and any(isinstance(part, UserPromptPart) for part in message.parts)
    ]
    return places[1] if len(places) > 1 else 0
