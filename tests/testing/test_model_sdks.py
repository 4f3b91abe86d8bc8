"""The scripted model server with the providers' own SDKs as clients: every protocol, whole and streamed, and every fault."""

from __future__ import annotations

import asyncio
import importlib
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from proctor.testing.model_server import ModelServer

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
SECONDS = 0.7
pytestmark = pytest.mark.slow  # the SDKs take seconds to import


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    """A running server."""
    with ModelServer() as running:
        yield running


def script(*steps: dict[str, Any]) -> str:
    """A prompt that carries a script."""
    return f"Please. FAKE:{json.dumps({'steps': steps})}"


@dataclass
class Heard:
    """What a client heard."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    tokens: tuple[int, int] = (0, 0)
    pieces: int = 0


class Client(Protocol):
    """One SDK behind one function."""

    def ask(self, url: str, prompt: str, *, stream: bool) -> Heard:
        """Ask once, without the SDK's own retries."""
        ...


def sdk(name: str) -> Any:
    """An SDK; what it warns of while it is compiled is its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


class Chat:
    """OpenAI's SDK, Chat Completions."""

    def ask(self, url: str, prompt: str, *, stream: bool) -> Heard:
        """Ask once."""
        client = sdk("openai").OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=SECONDS)
        tool = {"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}
        asked: dict[str, Any] = {
            "model": "gpt",
            "messages": [{"role": "user", "content": prompt}],
            "tools": [tool],
        }
        with client:
            if not stream:
                return self._whole(client.chat.completions.create(**asked))
            return self._pieces(
                client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
            )

    def _whole(self, done: Any) -> Heard:
        message = done.choices[0].message
        calls = [(one.function.name, _read(one.function.arguments)) for one in message.tool_calls or []]
        return Heard(message.content or "", calls, (done.usage.prompt_tokens, done.usage.completion_tokens))

    def _pieces(self, chunks: Any) -> Heard:
        heard, names, told = Heard(), dict[int, str](), dict[int, str]()
        for chunk in chunks:
            heard.pieces += 1
            if chunk.usage is not None:
                heard.tokens = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
            for choice in chunk.choices:
                heard.text += choice.delta.content or ""
                for one in choice.delta.tool_calls or []:
                    names.setdefault(one.index, one.function.name or "")
                    told[one.index] = told.get(one.index, "") + (one.function.arguments or "")
        heard.calls = [(names[index], _read(told[index])) for index in sorted(names)]
        return heard


class Responses:
    """OpenAI's SDK, Responses."""

    def ask(self, url: str, prompt: str, *, stream: bool) -> Heard:
        """Ask once."""
        client = sdk("openai").OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=SECONDS)
        tool = {"type": "function", "name": "read_file", "parameters": SCHEMA, "strict": False}
        with client:
            if not stream:
                return self._whole(client.responses.create(model="gpt", input=prompt, tools=[tool]))
            heard = Heard()
            for event in client.responses.create(model="gpt", input=prompt, tools=[tool], stream=True):
                heard.pieces += 1
                if event.type == "response.completed":
                    heard = Heard(**{**vars(self._whole(event.response)), "pieces": heard.pieces})
            assert heard.tokens != (0, 0), "the stream has no end"
            return heard

    def _whole(self, done: Any) -> Heard:
        calls = [(one.name, _read(one.arguments)) for one in done.output if one.type == "function_call"]
        return Heard(done.output_text, calls, (done.usage.input_tokens, done.usage.output_tokens))


class Anthropic:
    """Anthropic's SDK, Messages."""

    def ask(self, url: str, prompt: str, *, stream: bool) -> Heard:
        """Ask once."""
        client = sdk("anthropic").Anthropic(base_url=url, api_key="k", max_retries=0, timeout=SECONDS)
        asked: dict[str, Any] = {
            "model": "claude",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": prompt}],
            "tools": [{"name": "read_file", "input_schema": SCHEMA}],
        }
        with client:
            if not stream:
                return self._whole(client.messages.create(**asked))
            with client.messages.stream(**asked) as events:
                count = sum(1 for _ in events)
                return Heard(**{**vars(self._whole(events.get_final_message())), "pieces": count})

    def _whole(self, done: Any) -> Heard:
        text = "".join(block.text for block in done.content if block.type == "text")
        calls = [(block.name, block.input) for block in done.content if block.type == "tool_use"]
        read = done.usage.input_tokens + done.usage.cache_read_input_tokens
        return Heard(text, calls, (read, done.usage.output_tokens))


class Google:
    """Google's SDK, generateContent."""

    def ask(self, url: str, prompt: str, *, stream: bool) -> Heard:
        """Ask once."""
        genai = sdk("google.genai")
        types = sdk("google.genai.types")
        options = types.HttpOptions(base_url=url, timeout=int(SECONDS * 1000))
        client = genai.Client(api_key="k", http_options=options)
        declared = types.FunctionDeclaration(name="read_file", parameters_json_schema=SCHEMA)
        off = types.AutomaticFunctionCallingConfig(disable=True)
        config = types.GenerateContentConfig(
            tools=[types.Tool(function_declarations=[declared])], automatic_function_calling=off
        )
        heard = Heard()
        asked = {"model": "gemini", "contents": prompt, "config": config}
        parts = (
            client.models.generate_content_stream(**asked)
            if stream
            else [client.models.generate_content(**asked)]
        )
        for part in parts:
            heard.pieces += 1
            for one in part.candidates[0].content.parts or []:
                heard.text += one.text or ""
                if one.function_call is not None:
                    heard.calls.append((one.function_call.name, dict(one.function_call.args)))
            usage = part.usage_metadata
            heard.tokens = (usage.prompt_token_count, usage.candidates_token_count)
        return heard


class Ollama:
    """Ollama's SDK, /api/chat."""

    def ask(self, url: str, prompt: str, *, stream: bool) -> Heard:
        """Ask once."""
        client = sdk("ollama").Client(host=url, timeout=SECONDS)
        tool = {"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}
        messages = [{"role": "user", "content": prompt}]
        answer = client.chat("qwen3", messages, tools=[tool], stream=stream)
        heard, done = Heard(), False
        for part in answer if stream else [answer]:
            heard.pieces += 1
            heard.text += part.message.content or ""
            heard.calls += [
                (one.function.name, dict(one.function.arguments)) for one in part.message.tool_calls or []
            ]
            if part.done:
                done, heard.tokens = True, (part.prompt_eval_count, part.eval_count)
        assert done, "the stream has no end"
        return heard


def _read(text: str) -> Any:
    """Arguments as a table; broken ones as they came."""
    try:
        return json.loads(text)
    except ValueError:
        return text


CLIENTS: dict[str, Client] = {
    "openai-chat": Chat(),
    "openai-responses": Responses(),
    "anthropic": Anthropic(),
    "google": Google(),
    "ollama": Ollama(),
}
every = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
protocols = pytest.mark.parametrize("name", CLIENTS)


@every
@protocols
def test_text_and_parallel_calls_arrive_through_the_official_client(
    server: ModelServer, name: str, stream: bool
) -> None:
    """The same script gives the same words, calls and tokens in every protocol."""
    client = CLIENTS[name]
    said = client.ask(server.url, script({"text": "a simulated answer of some length"}), stream=stream)
    assert (said.text, said.tokens) == ("a simulated answer of some length", (1400, 34))
    assert not stream or said.pieces > 2
    calls = [{"name": "read_file", "args": {"path": path}} for path in ("a", "b")]
    used = client.ask(server.url, script({"text": "look", "calls": calls}), stream=stream)
    assert used.calls == [("read_file", {"path": "a"}), ("read_file", {"path": "b"})]
    assert used.text == "look"


@every
@protocols
@pytest.mark.parametrize(
    "fault",
    [
        {"http": 429, "headers": {"retry-after": "7"}},
        {"http": 500},
        {"drop": True, "text": "x" * 200},
        {"hang": True},
        {"stall": True, "text": "x" * 200},
        {"bad_json": True},
    ],
    ids=["429", "500", "drop", "hang", "stall", "bad_json"],
)
def test_every_fault_reaches_the_official_client(
    server: ModelServer, name: str, stream: bool, fault: dict[str, Any]
) -> None:
    """The client fails within its time-out, and with the status where there is one."""
    # Anthropic's client passes a line over that it cannot read: its streamed answer then has no beginning.
    began = time.monotonic()
    with pytest.raises(Exception) as failed:  # noqa: PT011 - each SDK has its own tree of errors
        CLIENTS[name].ask(server.url, script(fault), stream=stream)
    status = getattr(failed.value, "status_code", getattr(failed.value, "code", None))
    assert "http" not in fault or status == fault["http"]
    assert time.monotonic() - began < 60


@every
@pytest.mark.parametrize("name", ["openai-chat", "openai-responses"])
def test_broken_arguments_arrive_broken(server: ModelServer, name: str, stream: bool) -> None:
    """Where arguments travel as text, the client gets exactly the broken text."""
    step = {"call": {"name": "read_file", "raw": '{"path": '}}
    assert CLIENTS[name].ask(server.url, script(step), stream=stream).calls == [("read_file", '{"path": ')]


def test_ollama_speaks_openai_too(server: ModelServer) -> None:
    """Its /v1 is served, and /api/tags lists the models that were said to be there."""
    heard = Chat().ask(server.url, script({"text": "both"}), stream=True)
    assert heard.text == "both"
    listed = sdk("ollama").Client(host=server.url).list()
    assert [one.model for one in listed.models] == ["qwen3:14b"]


async def test_hundred_clients_at_once_are_each_answered(server: ModelServer) -> None:
    """Threads do not mix up their answers."""
    ollama = sdk("ollama")

    async def one(number: int) -> str:
        client = ollama.AsyncClient(host=server.url)
        tool = {"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}
        asked = [{"role": "user", "content": script({"text": f"answer {number}"})}]
        return str((await client.chat("qwen3", asked, tools=[tool])).message.content)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number)) for number in range(100)]
    assert [task.result() for task in tasks] == [f"answer {number}" for number in range(100)]
