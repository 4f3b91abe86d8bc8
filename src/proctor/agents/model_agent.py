"""A model with tools, from a history to an answer: ask, carry out what it calls, ask again, at most so many times.

Invariants: tools are used through `Hands` only, so through the gate; an answer of the model is kept before the first of
its calls begins; the last request may call no tool, and whatever the model does the turn ends with a text.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from proctor.agents import model_history as past
from proctor.agents.driver import Failure
from proctor.agents.model_errors import ModelTroubleError, trouble_of
from proctor.agents.model_gate import GovernedRequests, Open
from proctor.agents.model_hands import Done, Hands
from proctor.agents.model_prices import TOKEN_CHARACTERS, cost_of
from proctor.agents.model_providers import make_model
from proctor.agents.model_spec import ModelSpec
from proctor.agents.model_turn import ListenFn, TurnEnd, TurnEvent, TurnOutcome, Used, nobody_listens
from proctor.gate.outcome import CallRefusedError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

__all__ = ["Keep", "ModelAgent", "Patience"]

LIMIT_TEXT: Final = "Maximum iterations reached ({requests} model requests). Please try a simpler request."
EMPTY_TEXT: Final = (
    "The model gave an empty answer ({reason}). Say it again in other words, or choose another agent."
)
CUT_TEXT: Final = "\n\n(The answer is cut: the model reached its output limit.)"
ANSWER_CAP: Final = 200_000


@dataclass(frozen=True, slots=True)
class Keep:
    """One step that must be on disk before the next one begins."""

    history: list[ModelMessage]
    response: ModelResponse | None = None
    used: Used = field(default_factory=Used)
    done: tuple[Done, ...] = ()


KeepFn = Callable[[Keep], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long a request that failed is tried again; tests wait without waiting."""

    tries: int = 3
    base: float = 1.0
    most: float = 30.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def pause(self, attempt: int, wished: float | None) -> float:
        """Seconds before the next try: what the provider wishes if that is bearable, else doubling with chance."""
        if wished is not None and wished <= self.most:
            return max(0.0, wished)
        return float(min(self.most, self.base * 2 ** (attempt - 1) * (0.5 + self.chance())))


class ModelAgent:
    """One model of one agent, for any number of turns."""

    def __init__(
        self,
        spec: ModelSpec,
        requests: GovernedRequests,
        *,
        instructions: str,
        most_requests: int,
        patience: Patience | None = None,
        listen: ListenFn = nobody_listens,
    ) -> None:
        self.spec = spec
        self._requests = requests
        self._instructions = instructions
        self._most = most_requests
        self._patience = patience or Patience()
        self._listen = listen
        self._model: Model | None = None
        self.used = Used()

    async def run(self, history: list[ModelMessage], hands: Hands, keep: KeepFn) -> TurnEnd:
        """Go on from where the history stands, to an answer or to where a person must answer first."""
        asked = past.turn_requests(history)
        if (before := past.last_answer(history)) is not None:
            return self._answer(before)  # it had ended, and only its end was not written
        try:
            while True:
                waiting = await self._carry_out(history, hands, keep)
                if waiting:
                    return self._end(TurnOutcome.PARKED, _parked(waiting), waiting_for=waiting)
                if asked >= self._most:
                    return self._end(TurnOutcome.LIMIT, LIMIT_TEXT.format(requests=self._most))
                asked += 1
                response = await self._ask(history, hands, asked, keep)
                if not response.tool_calls:
                    return self._answer(response)
                if asked >= self._most:
                    return await self._stubborn(history, response, keep)
        except ModelTroubleError as error:
            return self._end(TurnOutcome.FAILED, str(error), failure=error.failure)
        except CallRefusedError as error:
            return self._end(TurnOutcome.FAILED, str(error), failure=Failure.LIMIT)

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, outcome: TurnOutcome, text: str, **more: Any) -> TurnEnd:
        return TurnEnd(outcome, text[:ANSWER_CAP], used=self.used, **more)

    def _answer(self, response: ModelResponse) -> TurnEnd:
        text = response.text or ""
        if not text.strip():
            reason = response.finish_reason or "no reason given"
            return self._end(TurnOutcome.FAILED, EMPTY_TEXT.format(reason=reason), failure=Failure.NO_RESULT)
        if response.finish_reason == "length":
            text += CUT_TEXT
        return self._end(TurnOutcome.ANSWERED, text)

    async def _stubborn(self, history: list[ModelMessage], response: ModelResponse, keep: KeepFn) -> TurnEnd:
        """The model called tools although it was told that it may not: none is run, and there is an answer."""
        past.close_open(history, "not carried out: no more requests are left for this message")
        await keep(Keep(history))
        said = (response.text or "").strip()
        limit = LIMIT_TEXT.format(requests=self._most)
        return self._end(TurnOutcome.LIMIT, f"{said}\n\n{limit}" if said else limit)

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _carry_out(self, history: list[ModelMessage], hands: Hands, keep: KeepFn) -> tuple[str, ...]:
        """Use what the last answer calls, all at once; the questions that are open, if any."""
        wanted = past.open_calls(history)
        if not wanted:
            return ()
        why = getattr(history[-1], "text", None) or ""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(hands.use(one, place, why=why)) for place, one in enumerate(wanted)]
        done = tuple(task.result() for task in tasks)
        waiting = tuple(one.approval_id for one in done if one.approval_id is not None)
        if waiting:
            return waiting
        history.append(past.results(done))
        await keep(Keep(history, done=done))
        return ()

    # ── one request ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(
        self, history: list[ModelMessage], hands: Hands, number: int, keep: KeepFn
    ) -> ModelResponse:
        past.fit(history)
        response, used = await self._patiently(history, hands.functions(), number)
        response = past.tidy(past.apart(response, history))
        self.used = self.used + used
        history.append(response)
        await keep(Keep(history, response=response, used=used))
        await self._listen(TurnEvent("message", response.text or ""))
        await self._listen(TurnEvent("usage", details=_usage(used)))
        return response

    async def _patiently(
        self, history: list[ModelMessage], functions: list[dict[str, Any]], number: int
    ) -> tuple[ModelResponse, Used]:
        """Ask; what may pass by itself is tried again, with growing pauses."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._once(history, functions, number)
            except ModelTroubleError as error:
                bearable = error.retry_after is None or error.retry_after <= self._patience.most
                if not error.retryable or attempt >= self._patience.tries or not bearable:
                    raise
                pause = self._patience.pause(attempt, error.retry_after)
                details = {"seconds": pause, "try": attempt + 1, "failure": error.failure.value}
                await self._listen(TurnEvent("retry", str(error), details=details))
                await self._patience.sleep(pause)

    async def _once(
        self, history: list[ModelMessage], functions: list[dict[str, Any]], number: int
    ) -> tuple[ModelResponse, Used]:
        told = past.instructed(history, self._instructions)
        size = len(to_json([told, functions], serialize_unknown=True)) // TOKEN_CHARACTERS
        async with self._requests.open(
            request=number, messages=len(history), tools=len(functions), input_tokens=size
        ) as opened:
            try:
                response = await self._stream(told, functions, number, opened)
            except Exception as error:
                trouble = trouble_of(error, self.spec)
                opened.used = Used() if trouble.unused else None
                raise trouble from error
            opened.used = used = self._used(response)
            opened.finish_reason = response.finish_reason or ""
            opened.tool_calls = tuple(call.tool_name for call in response.tool_calls)
            return response, used

    async def _stream(
        self, told: list[ModelMessage], functions: list[dict[str, Any]], number: int, opened: Open
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

        model = await self._made()
        seconds = min(opened.seconds, float(self.spec.api.seconds))
        async with asyncio.timeout(seconds + 1.0):
            async with model_request_stream(
                model,
                told,
                model_settings=self._settings(number, seconds),
                model_request_parameters=_parameters(functions),
            ) as stream:
                async for event in stream:
                    piece = ""
                    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                        piece = event.part.content
                    elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                        piece = event.delta.content_delta
                    if piece:
                        await self._listen(TurnEvent("text", piece))
                return stream.get()

    async def _made(self) -> Model:
        if self._model is None:
            self._model = await (await asyncio.to_thread(make_model, self.spec)).__aenter__()
        return self._model

    def _settings(self, number: int, seconds: float) -> ModelSettings:
        from pydantic_ai.settings import ModelSettings

        settings = ModelSettings(max_tokens=self.spec.api.max_tokens, max_retries=0, request_timeout=seconds)
        if number >= self._most:
            settings["tool_choice"] = "none"
        return settings

    def _used(self, response: ModelResponse) -> Used:
        usage = response.usage
        given, answered, cached = usage.input_tokens, usage.output_tokens, usage.cache_read_tokens
        cost = cost_of(self.spec, input_tokens=given, output_tokens=answered, cached_tokens=cached)
        return Used(given, answered, cached, cost)

    async def close(self) -> None:
        """Let the connections go."""
        if self._model is not None:
            with suppress(RuntimeError, OSError):
                await self._model.__aexit__(None, None, None)


def _parameters(functions: list[dict[str, Any]]) -> ModelRequestParameters:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=one["name"], description=one["description"], parameters_json_schema=one["parameters"]
            )
            for one in functions
        ],
        allow_text_output=True,
    )


def _usage(used: Used) -> dict[str, Any]:
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cached_input_tokens": used.cached_tokens,
        "cost_usd": None if used.micro_usd is None else used.micro_usd / 1_000_000,
    }


def _parked(waiting: tuple[str, ...]) -> str:
    ids = ", ".join(waiting)
    return f"A person has to answer first ({ids}): see `proctor inbox`. Afterwards this goes on by itself."
