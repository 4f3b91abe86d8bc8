"""The parts of a model's turn: history, prices, settings, system prompt, and who may know an SDK."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from proctor.agents import model_history as past
from proctor.agents.model_agent import Patience
from proctor.agents.model_prices import cost_of
from proctor.agents.model_prompt import SEED, system_prompt
from proctor.agents.model_spec import ModelNotReadyError, ModelSpec, spec_of
from proctor.agents.roster import Agent
from proctor.config import ApiSettings, load_settings
from proctor.protocol.errors import ConfigError
from proctor.store.database import Database
from proctor.store.schema import open_database
from tests.layers.tree import PACKAGE, modules, parse
from tests.trace.support import REDACTOR

SDKS = {"anthropic", "genai_prices", "google", "ollama", "openai", "pydantic_ai"}


# ── history ───────────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def histories(draw: st.DrawFn) -> list[ModelMessage]:
    """Conversations of whole turns: a person, then calls with their results, then an answer."""
    found: list[ModelMessage] = []
    for turn in range(draw(st.integers(1, 4))):
        found.append(ModelRequest(parts=[UserPromptPart(draw(st.text(max_size=200)))]))
        for step in range(draw(st.integers(0, 3))):
            ids = [f"{turn}-{step}-{place}" for place in range(draw(st.integers(1, 3)))]
            size = draw(st.integers(0, 3000))
            found.append(ModelResponse(parts=[ToolCallPart("read_file", {"path": "a"}, one) for one in ids]))
            found.append(ModelRequest(parts=[ToolReturnPart("read_file", "x" * size, one) for one in ids]))
        found.append(ModelResponse(parts=[TextPart(draw(st.text(max_size=200)))]))
    found.append(ModelRequest(parts=[UserPromptPart("last words")]))
    return found


def paired(history: list[ModelMessage]) -> bool:
    """Whether the results of every answer's calls are the very next message."""
    for place, message in enumerate(history):
        called = (
            [one.tool_call_id for one in message.tool_calls] if isinstance(message, ModelResponse) else []
        )
        if called:
            following = history[place + 1]
            if [getattr(part, "tool_call_id", None) for part in following.parts] != called:
                return False
    return True


@settings(max_examples=100, deadline=None)
@given(history=histories(), cap=st.integers(2000, 20_000))
def test_fitting_keeps_pairs_whole_and_the_last_words(history: list[ModelMessage], cap: int) -> None:
    """Whatever is left out, every call keeps its result, a person speaks first, and what was said last stays."""
    before = past._size(history)
    past.fit(history, cap)
    assert past._size(history) <= max(cap, before)
    assert paired(history)
    assert isinstance(history[0], ModelRequest)
    last = history[-1].parts[-1]
    assert isinstance(last, UserPromptPart)
    assert last.content == "last words"
    turns = sum(isinstance(part, UserPromptPart) for message in history for part in message.parts)
    assert past._size(history) <= cap or turns == 1


@settings(max_examples=50, deadline=None)
@given(history=histories())
def test_what_is_kept_comes_back(history: list[ModelMessage]) -> None:
    """A history without secrets is the same after a pause; nothing in it is withheld."""
    kept, withheld = past.dump(history, REDACTOR)
    assert withheld == []
    assert past.dump(past.load(kept), REDACTOR)[0] == kept


def test_open_calls_are_found_closed_and_marked_when_not_kept_whole() -> None:
    """A secret in an open call's arguments is named; broken arguments stay a value every provider takes."""
    secret = "sk-proj-" + "a1B2" * 12
    history: list[ModelMessage] = [
        past.prompt("go"),
        ModelResponse(parts=[ToolCallPart("x", {"note": secret}, "1"), ToolCallPart("y", "{oops", "2")]),
    ]
    kept, withheld = past.dump(history, REDACTOR)
    assert withheld == ["1"]
    assert secret not in str(kept)
    assert [one.arguments for one in past.open_calls(past.load(kept))][1] == {"INVALID_JSON": "{oops"}
    past.close_open(history, "stopped")
    assert past.open_calls(history) == []
    assert paired(history)
    assert past.turn_requests(history) == 1


def test_a_thought_with_a_secret_is_left_out_whole() -> None:
    """It is signed by its provider: half of it would be refused there."""
    secret = "sk-proj-" + "a1B2" * 12
    thoughts = [ThinkingPart("plain", signature="s1"), ThinkingPart(f"the key is {secret}", signature="s2")]
    kept, _ = past.dump([ModelResponse(parts=[*thoughts, TextPart("ok")])], REDACTOR)
    assert [(part["content"], part.get("signature")) for part in kept[0]["parts"]] == [
        ("plain", "s1"),
        ("", None),
        ("ok", None),
    ]


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def spec(provider: str, model: str, base: str | None = None, **api: float) -> ModelSpec:
    """A model."""
    return ModelSpec("A", provider, model, base, "k", ApiSettings(**api))  # type: ignore[arg-type]


def test_prices_come_from_the_settings_then_the_list_and_unknown_is_not_zero() -> None:
    """A local model is free of money, a remote one without a price is unknown, whatever its protocol."""
    million = {"input_tokens": 1_000_000, "output_tokens": 1_000_000}
    assert cost_of(spec("openai", "gpt-6.1-sol"), **million) == cost_of(
        spec("openai-chat", "gpt-6.1-sol"), **million
    )
    assert (cost_of(spec("anthropic", "claude-sonnet-5-5"), **million) or 0) > 1_000_000
    assert cost_of(spec("openai", "no-such-model"), **million) is None
    assert cost_of(spec("openai", "no-such-model", input_usd=1.5, output_usd=2.0), **million) == 3_500_000
    assert cost_of(spec("ollama", "qwen3:14b", "http://localhost:11434"), **million) == 0
    assert cost_of(spec("ollama", "qwen3:14b", "http://models.example.org"), **million) is None
    assert cost_of(spec("ollama", "qwen3:14b", "http://127.evil.example"), **million) is None


def test_a_repository_does_not_decide_where_the_key_is_sent(tmp_path: Path) -> None:
    """An address elsewhere counts only from the file that is not versioned."""
    text = '[agents.SOLACE.api]\nbase_url = "{url}"\n'
    shared, local = tmp_path / "proctor.toml", tmp_path / "proctor.local.toml"
    environ = {"HOME": str(tmp_path)}
    for url in ("https://evil.example/v1", "http://127.evil.example/v1", "http://localhost.evil.example"):
        shared.write_text(text.format(url=url))
        with pytest.raises(ConfigError, match=r"proctor\.local\.toml"):
            load_settings(tmp_path, environ)
    for url in ("http://localhost:1/v1", "http://127.0.0.1:1/v1", "http://[::1]:1/v1"):
        shared.write_text(text.format(url=url))
        assert load_settings(tmp_path, environ).agents["SOLACE"].api.base_url == url
    local.write_text(text.format(url="https://gateway.example/v1"))
    assert load_settings(tmp_path, environ).agents["SOLACE"].api.base_url == "https://gateway.example/v1"


def test_a_missing_key_names_the_variable_and_both_names_of_the_seeds_count() -> None:
    """Bug 14: CLAUDE_API_KEY and ANTHROPIC_API_KEY are the same key, and a missing one ends nothing else."""
    forge = Agent("FORGE", "model", "anthropic:claude")
    with pytest.raises(ModelNotReadyError, match="Set ANTHROPIC_API_KEY in the environment"):
        spec_of(forge, {})
    assert spec_of(forge, {"CLAUDE_API_KEY": "one"}).api_key == "one"
    assert spec_of(forge, {"ANTHROPIC_API_KEY": "two", "CLAUDE_API_KEY": "one"}).api_key == "two"
    assert "two" not in repr(spec_of(forge, {"ANTHROPIC_API_KEY": "two-secret"}))
    with pytest.raises(ModelNotReadyError, match="<provider>:<model>"):
        spec_of(Agent("X", "model", "gpt-4"), {})


def test_pauses_grow_have_an_end_and_heed_the_provider() -> None:
    """Doubling with chance, at most half a minute; what the provider wishes is done where it is bearable."""
    patience = Patience(chance=lambda: 1.0)
    assert [patience.pause(n, None) for n in (1, 2, 3, 9)] == [1.5, 3.0, 6.0, 30.0]
    assert patience.pause(1, 12.0) == 12.0
    assert patience.pause(1, 900.0) == 1.5


# ── the system prompt ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """An empty database; the seeds' rules are in it."""
    return open_database(f"sqlite:///{tmp_path}/p.db")


def test_the_system_prompt_is_the_seeds_with_the_rules(tmp_path: Path, database: Database) -> None:
    """With the seed's names it is the seed's sentence, word by word; the architecture rules stand in it."""
    (tmp_path / "proctor.toml").write_text('shell = "pwsh"\n[project]\nname = "the ARES system"\n')
    told = system_prompt(
        "SOLACE",
        load_settings(tmp_path, {"HOME": str(tmp_path)}),
        database,
        person="David",
        workspace=tmp_path,
    )
    assert told.startswith(
        "You are SOLACE, an AI assistant with direct file system access. You help David build the ARES system. "
        "You can read/write files, list directories, query architecture rules, create/restore backups, "
        "and execute PowerShell commands."
    )
    for rule in ("agent_api_endpoint", "trading_api_endpoint", "health_monitoring"):
        assert rule in told
    database.close()


def test_settings_replace_the_system_prompt(tmp_path: Path, database: Database) -> None:
    """Only our own names in braces are filled in, whatever else stands there."""
    (tmp_path / "proctor.toml").write_text(
        '[agents.SOLACE.api]\nprompt = """You are {agent}.\nAnswer as {"json": 1} for {person}."""\n'
    )
    found = load_settings(tmp_path, {"HOME": str(tmp_path)})
    told = system_prompt("SOLACE", found, database, person="Ann", workspace=tmp_path)
    assert told.startswith('You are SOLACE.\nAnswer as {"json": 1} for Ann.')
    assert SEED[:20] not in told
    database.close()


# ── layers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_the_models_rooms_know_an_sdk() -> None:
    """Imports of model SDKs stand in agents/model*.py alone, and nowhere at a module's top but in Ollama's own."""
    outside, eager = [], []
    for path in modules(PACKAGE):
        tree = parse(path)
        for node in ast.walk(tree):
            names = _imported(node)
            if names & SDKS:
                place = str(path.relative_to(PACKAGE))
                outside += [] if place.startswith("agents/model") else [place]
                eager += [place] if node in tree.body else []
    assert outside == []
    assert set(eager) <= {"agents/model_ollama.py"}


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {name.name.partition(".")[0] for name in node.names}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return {node.module.partition(".")[0]}
    return set()
