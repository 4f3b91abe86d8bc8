"""Ollama's own /api/chat as a model of pydantic-ai, because only there the context size can be set (`num_ctx`).

Ollama knows no tool choice: where no tool may be called, none is offered.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import ollama
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelNotFoundError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    SystemPromptPart,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.usage import RequestUsage

__all__ = ["NativeOllamaModel"]

CONNECT_S: Final = 10.0


class NativeOllamaModel(Model):
    """One model of an Ollama server."""

    def __init__(self, name: str, *, host: str, api_key: str = "", num_ctx: int) -> None:
        super().__init__()
        self._name = name
        self._host = host
        self._num_ctx = num_ctx
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # Without the environment's proxy, which does not know our localhost; pydantic-ai holds the whole deadline.
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        self._client = ollama.AsyncClient(host=host, headers=headers, timeout=timeout, trust_env=False)

    @property
    def model_name(self) -> str:
        """Its name at Ollama."""
        return self._name

    @property
    def system(self) -> str:
        """Who serves it."""
        return "ollama"

    @property
    def base_url(self) -> str:
        """Where it is."""
        return self._host

    async def __aexit__(self, *_: object) -> None:
        """Let the connections go."""
        await self._client.close()  # type: ignore[no-untyped-call]  # the SDK has no annotation here

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask and wait for the whole answer."""
        async with self.request_stream(messages, model_settings, model_request_parameters) as stream:
            async for _ in stream:
                pass
            return stream.get()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Ask and give the answer as it comes."""
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        chosen = settings or {}
        tools = [] if chosen.get("tool_choice") == "none" else parameters.function_tools
        options: dict[str, Any] = {"num_ctx": self._num_ctx}
        if "max_tokens" in chosen:
            options["num_predict"] = chosen["max_tokens"]
        if "temperature" in chosen:
            options["temperature"] = chosen["temperature"]
        try:
            lines = await self._client.chat(
                self._name,
                _messages(messages, _instructions(messages)),
                tools=[_tool(one) for one in tools] or None,
                options=options,
                stream=True,
            )
        except (httpx.HTTPError, ConnectionError) as error:
            raise ModelConnectionError(self._name, str(error), phase="connect") from error
        yield _Answer(parameters, _name=self._name, _host=self._host, _lines=lines)


@dataclass
class _Answer(StreamedResponse):
    """An answer as it comes, line by line."""

    _name: str
    _host: str
    _lines: AsyncIterator[ollama.ChatResponse]
    _began: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        calls = 0
        try:
            async for line in self._lines:
                if line.message.thinking:
                    for event in self._parts_manager.handle_thinking_delta(
                        vendor_part_id="thinking", content=line.message.thinking
                    ):
                        yield event
                if line.message.content:
                    for event in self._parts_manager.handle_text_delta(
                        vendor_part_id="content", content=line.message.content
                    ):
                        yield event
                for call in line.message.tool_calls or []:
                    calls += 1
                    yield self._parts_manager.handle_tool_call_part(
                        vendor_part_id=f"call-{calls}",
                        tool_name=call.function.name,
                        args=dict(call.function.arguments),
                    )
                if line.done:
                    self._ended(line)
        except ollama.ResponseError as error:
            raise _refusal(error, self._name) from error
        except httpx.ConnectError as error:
            raise ModelConnectionError(self._name, str(error), phase="connect") from error
        except (httpx.HTTPError, ConnectionError) as error:
            raise ModelConnectionError(self._name, str(error), phase="read", in_stream=True) from error
        except ValueError as error:
            raise UnexpectedModelBehavior("a line of the answer is no JSON of Ollama's") from error
        if self.finish_reason is None:
            raise ModelConnectionError(self._name, "the answer has no end", phase="read", in_stream=True)

    def _ended(self, line: ollama.ChatResponse) -> None:
        self.finish_reason = "length" if line.done_reason == "length" else "stop"
        self._usage = RequestUsage(
            input_tokens=line.prompt_eval_count or 0, output_tokens=line.eval_count or 0
        )

    async def close_stream(self) -> None:
        close = getattr(self._lines, "aclose", None)
        if close is not None:
            await close()

    @property
    def model_name(self) -> str:
        return self._name

    @property
    def provider_name(self) -> str:
        return "ollama"

    @property
    def provider_url(self) -> str:
        return self._host

    @property
    def timestamp(self) -> datetime:
        return self._began


def _refusal(error: ollama.ResponseError, name: str) -> ModelAPIError:
    kinds: Mapping[int, type[ModelAPIError]] = {
        401: ModelAuthenticationError,
        403: ModelAuthenticationError,
        404: ModelNotFoundError,
        429: ModelRateLimitError,
    }
    status = error.status_code
    kind = kinds.get(status, ModelServerError if status >= 500 or status < 0 else ModelRequestRejectedError)
    return kind(name, str(error.error)[:500])


def _instructions(messages: Sequence[ModelMessage]) -> str:
    told = [one.instructions for one in messages if isinstance(one, ModelRequest) and one.instructions]
    return told[-1] if told else ""


def _messages(messages: Sequence[ModelMessage], instructions: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    for message in messages:
        told += _asked(message) if isinstance(message, ModelRequest) else [_answered(message)]
    return told


def _asked(message: ModelRequest) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            told.append({"role": "tool", "tool_name": part.tool_name, "content": part.model_response_str()})
        elif isinstance(part, UserPromptPart):
            told.append({"role": "user", "content": str(part.content)})
        elif isinstance(part, SystemPromptPart):
            told.append({"role": "system", "content": part.content})
    return told


def _answered(message: ModelResponse) -> dict[str, Any]:
    calls = [
        {"function": {"name": call.tool_name, "arguments": call.args_as_dict()}}
        for call in message.tool_calls
    ]
    text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def _tool(one: ToolDefinition) -> dict[str, Any]:
    function = {"name": one.name, "description": one.description or ""}
    return {"type": "function", "function": {**function, "parameters": _plain(one.parameters_json_schema)}}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Say of an optional parameter what it is: Ollama's templates know no `anyOf`."""
    properties = {name: _optional(one) for name, one in schema.get("properties", {}).items()}
    return {**schema, "properties": properties}


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    real = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    return {**{k: v for k, v in schema.items() if k != "anyOf"}, **real[0]} if len(real) == 1 else schema
