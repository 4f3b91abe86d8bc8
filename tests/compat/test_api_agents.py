"""The seed's four agents behind `AgentCoordinator`: API models with tools, in the seed's result shapes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.compat.agent_coordinator import AgentCoordinator
from proctor.compat.house import House
from proctor.config import environment, load_settings
from proctor.testing.model_server import ModelServer
from tests.support.supervisors import stop_supervisor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
KEYS = {"OPENAI_API_KEY": "sk-simulated-0001", "ANTHROPIC_API_KEY": "sk-simulated-0002"}


@pytest.fixture
def coordinator(project: Path) -> Iterator[AgentCoordinator]:
    """The coordinator of a project whose models are scripted; no supervisor is left at the end."""
    with ModelServer() as models:
        urls = {"SOLACE": f"{models.url}/v1", **dict.fromkeys(("FORGE", "ARCHITECT", "SENTINEL"), models.url)}
        text = "".join(f'[agents.{name}.api]\nbase_url = "{url}"\n' for name, url in urls.items())
        (project / "proctor.toml").write_text(text)
        house = House(settings=load_settings(project, {**environment(), **KEYS}))
        yield AgentCoordinator(house=house, workspace=project, task_seconds=90)
        stop_supervisor()
        house.close()


def _script(*steps: dict[str, Any]) -> str:
    return f"Please do it. FAKE:{json.dumps({'steps': steps})}"


def _write(text: str) -> dict[str, Any]:
    return {"call": {"name": "write_file", "args": {"path": "out.txt", "content": text}}}


def test_all_four_can_work_and_three_answer_in_their_shapes(
    coordinator: AgentCoordinator, project: Path
) -> None:
    """OpenAI, Anthropic and Ollama; the tool's effect is on the task's branch, the tokens are counted."""
    clients = coordinator._init_api_clients()
    assert {name: one["available"] for name, one in clients.items()} == dict.fromkeys(clients, True)
    for name, field in {"forge": "implementation", "architect": "plan", "sentinel": "analysis"}.items():
        task = {"description": _script(_write(name), {"text": f"{name} is done"})}
        found = getattr(coordinator, f"execute_with_{name}")(task)
        assert found["success"], found
        assert (found[field], found["agent"]) == (f"{name} is done", name.upper())
        assert found["tokens_used"] > 0
        words = ["git", "show", f"{found['branch']}:out.txt"]
        shown = subprocess.run(words, cwd=project, capture_output=True, text=True, check=True, timeout=60)
        assert shown.stdout == name
    assert not (project / "out.txt").exists()


def test_solace_decides_as_the_seed_says(coordinator: AgentCoordinator) -> None:
    """Its answer is the decision: handled by itself, or a task of its own for FORGE with the guidance."""
    decision = {"decision": "handle", "reasoning": "easy", "estimated_complexity": "low"}
    own = coordinator.execute_with_solace({"description": _script({"text": json.dumps(decision)})})
    assert (own["decision"], own["reasoning"], own["estimated_complexity"]) == ("handle", "easy", "low")
    onto = {"decision": "delegate", "delegate_to": "FORGE", "reasoning": "UI", "guidance": "in blue"}
    handed = coordinator.execute_with_solace(
        {"description": _script({"text": json.dumps(onto)}), "priority": 7}
    )
    assert (handed["decision"], handed["delegate_to"], handed["guidance"]) == ("delegate", "FORGE", "in blue")
    made = coordinator.house.app.tasks.get(handed["delegated_task_id"])
    assert (made.created_by, made.agent, made.priority) == ("SOLACE", "FORGE", 7)
    assert made.context["delegated_from"] == handed["task_id"]
