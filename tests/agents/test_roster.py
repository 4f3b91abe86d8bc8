"""Roster, registry and health: from facts, with a cure, and nobody invented."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from proctor.agents import registry
from proctor.agents.health import Health, health, health_of_all
from proctor.agents.roster import Agent, Roster, environment, rehearsal
from proctor.agents.scripted import ScriptedDriver
from proctor.config import AgentSettings, ApiSettings, LimitSettings
from proctor.protocol.errors import NotFoundError


def program(place: Path, name: str, body: str) -> None:
    """Put an executable script on a PATH of its own."""
    place.mkdir(exist_ok=True)
    file = place / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


def test_built_in_agents_are_the_seven() -> None:
    """Nobody is there unasked: three CLIs and the seeds' four."""
    names = [agent.name for agent in Roster({}).agents()]
    assert names == ["claude", "codex", "gemini", "SOLACE", "FORGE", "ARCHITECT", "SENTINEL"]


def test_settings_change_only_what_they_name() -> None:
    """A built-in agent keeps its driver, model and talents unless told otherwise."""
    limits = LimitSettings(seconds=60, memory_mb=512, cpu_percent=50)
    roster = Roster({"forge": AgentSettings(driver="forge", env={"A": "1"}, max_parallel=4, limits=limits)})
    agent = roster.get("Forge")
    assert (agent.name, agent.driver, agent.provider, agent.max_parallel) == (
        "FORGE",
        "model",
        "anthropic",
        4,
    )
    assert (agent.limits.timeout_s, agent.limits.memory_mb, agent.limits.cpu_percent) == (60, 512, 50)
    assert agent.configured
    assert "coding" in agent.capabilities


def test_any_number_of_agents_more() -> None:
    """New names come from the settings; scripted ones are simulated and can be driven."""
    roster = Roster(rehearsal(3) | {"mine": AgentSettings(driver="scripted", command=("x",))})
    assert [a.name for a in roster.agents() if a.simulated] == [
        "scripted-1",
        "scripted-2",
        "scripted-3",
        "mine",
    ]
    assert isinstance(roster.driver("scripted-1"), ScriptedDriver)
    assert roster.driver("scripted-1").capabilities.simulated


def test_unknown_agent_names_the_known_ones() -> None:
    """A typing error is cured by the list."""
    with pytest.raises(NotFoundError, match="Known agents: claude, codex"):
        Roster({}).get("cluade")


def test_environment_keeps_proctors_secrets_back() -> None:
    """An agent gets the user's environment and its own variables, not our database's password."""
    agent = Agent("a", "claude", env={"X": "2"})
    base = {"HOME": "/h", "X": "1", "PROCTOR_DATABASE_URL": "secret", "DB_PASSWORD": "secret"}
    assert environment(agent, base) == {"HOME": "/h", "X": "2"}


def test_missing_program_is_offline_with_a_cure(tmp_path: Path) -> None:
    """What is not installed says how to install it."""
    found = health(Roster({}).get("claude"), {"PATH": str(tmp_path)})
    assert (found.online, found.present) == (False, False)
    assert "npm install" in found.cure


def test_program_is_asked_for_its_version(tmp_path: Path) -> None:
    """Online means that the program answered; gemini is told honestly as not supported."""
    for name in ("claude", "codex", "gemini"):
        program(tmp_path / "bin", name, f"echo {name} 1.2.3")
    found = health_of_all(Roster({}).agents()[:3], {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    assert found["claude"] == Health(True, "ready", version="claude 1.2.3", present=True)
    assert not found["gemini"].online
    assert found["gemini"].reason == "gemini is not supported by this version yet"


def test_broken_program_is_offline(tmp_path: Path) -> None:
    """A program that fails is not ready, whatever it prints."""
    program(tmp_path / "bin", "codex", "echo broken pipe dream >&2; exit 3")
    found = health(Roster({}).get("codex"), {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    assert (found.online, found.present) == (False, True)
    assert "broken pipe dream" in found.reason


def test_hanging_program_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that never answers costs its time-out and no more, even if its child holds the output."""
    monkeypatch.setattr("proctor.agents.health.VERSION_S", 0.3)
    program(tmp_path / "bin", "codex", "sleep 60 & sleep 60")
    found = health(Roster({}).get("codex"), {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    assert "did not answer" in found.reason


def test_api_agents_need_their_key() -> None:
    """Without a key the variable is named; with one the agent is there, also under the seed's name of the variable."""
    roster = Roster({})
    asked = health(roster.get("SOLACE"), {})
    assert (asked.online, asked.reason) == (False, "OPENAI_API_KEY is not set")
    assert asked.cure == "Set OPENAI_API_KEY in the environment or in .env."
    assert health(roster.get("SOLACE"), {"OPENAI_API_KEY": "sk-test"}).online
    assert "ANTHROPIC_API_KEY" in health(roster.get("FORGE"), {}).cure
    assert health(roster.get("FORGE"), {"CLAUDE_API_KEY": "sk-test"}).online
    own = Roster({"FORGE": AgentSettings(api=ApiSettings(key="TEAM_KEY"))}).get("FORGE")
    assert health(own, {"ANTHROPIC_API_KEY": "x"}).reason == "TEAM_KEY is not set"


@pytest.fixture
def ollama() -> Iterator[str]:
    """A server that answers /api/tags like Ollama with one model."""

    class Tags(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"models": [{"name": "qwen3:14b"}]}).encode()
            self.send_response(200 if self.path == "/api/tags" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = HTTPServer(("127.0.0.1", 0), Tags)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_ollama_is_asked(ollama: str) -> None:
    """Server away, model away and model there are three different answers."""
    roster = Roster({"small": AgentSettings(driver="model", model="ollama:tiny")})
    away = health(roster.get("ARCHITECT"), {"OLLAMA_HOST": "http://127.0.0.1:9"})
    assert (away.present, away.cure) == (False, "Start it with `ollama serve`.")
    assert health(roster.get("small"), {"OLLAMA_HOST": ollama}).cure == "Fetch it with `ollama pull tiny`."
    assert health(roster.get("SENTINEL"), {"OLLAMA_HOST": ollama}).online


def test_unknown_driver_and_provider_are_named() -> None:
    """A wrong setting says what would be right."""
    roster = Roster({"a": AgentSettings(driver="warp"), "b": AgentSettings(driver="model", model="acme:1")})
    assert "claude, codex, " in health(roster.get("a"), {}).cure
    assert "anthropic, google, ollama, openai" in health(roster.get("b"), {}).cure
    with pytest.raises(NotFoundError, match="Known drivers"):
        roster.driver("a")


def test_plugin_driver_comes_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that declares a driver is found; it cannot take a built-in name."""
    info = tmp_path / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[proctor.drivers]\nplug = plug_driver:Plug\nclaude = plug_driver:Plug\n"
    )
    (tmp_path / "plug_driver.py").write_text(
        "from proctor.agents.scripted import ScriptedDriver\nclass Plug(ScriptedDriver):\n    name = 'plug'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert "plug" in registry.names()
        assert registry.make_driver("plug").name == "plug"
        assert registry.BUILT_IN["claude"].startswith("proctor.")
        assert registry.make_driver("scripted").name == "scripted"
        assert health(Agent("p", "plug"), {}).online
    finally:
        sys.modules.pop("plug_driver", None)
