"""The real Claude Code, offline against the scripted model server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proctor.agents.claude import ClaudeDriver
from proctor.agents.driver import AttemptRequest, Failure, Limits, Outcome
from proctor.agents.health import health
from proctor.agents.roster import Agent
from proctor.testing.model_server import ModelServer
from proctor.workspace.worktree import Worktree
from tests.agents.real import becomes_a_commit, fake, prepare, resumes_after_kill
from tests.agents.runs import attempt

# The first test may have to fetch the program.
pytestmark = [pytest.mark.agents, pytest.mark.timeout(660), pytest.mark.usefixtures("home")]


@pytest.fixture
def driver(claude_program: Path) -> ClaudeDriver:
    """The driver of the fetched program."""
    return ClaudeDriver([str(claude_program)])


@pytest.fixture
def prepared(tmp_path: Path, models: ModelServer) -> tuple[Worktree, AttemptRequest]:
    """A worktree and a request with a false key."""
    env = {
        "ANTHROPIC_BASE_URL": models.url,
        "ANTHROPIC_API_KEY": "sk-ant-simulated",
        "CLAUDE_CODE_MAX_RETRIES": "1",
    }
    return prepare(tmp_path, "claude-sonnet-4-5", env)


async def test_task_becomes_a_commit(driver: ClaudeDriver, prepared: tuple[Worktree, AttemptRequest]) -> None:
    """Edit, command and answer are told; cost and version are known; the work is on a branch."""
    events, end = await becomes_a_commit(driver, *prepared)
    assert [e.tool_name for e in events if e.event == "tool_use"] == ["Write", "Bash"]
    assert events[0].details["version"] == "2.1.325"
    assert end.usage.cost_usd
    assert end.usage.tokens > 3000


async def test_resumes_after_sigkill(driver: ClaudeDriver, prepared: tuple[Worktree, AttemptRequest]) -> None:
    """The preset id survives the kill of everything."""
    end = await resumes_after_kill(driver, *prepared)
    assert end.final_text == "Went on."


@pytest.mark.parametrize(
    ("status", "failure"), [(401, Failure.AUTH), (429, Failure.RATE_LIMIT), (529, Failure.OVERLOADED)]
)
async def test_refusals_are_classified(
    driver: ClaudeDriver, prepared: tuple[Worktree, AttemptRequest], status: int, failure: Failure
) -> None:
    """What the API refuses ends as a failure of its class."""
    _, end, _ = await attempt(driver, replace(prepared[1], prompt=fake({"http": status})))
    assert (end.outcome, end.failure) == (Outcome.FAILED, failure), end


async def test_dropped_stream_recovers(
    driver: ClaudeDriver, prepared: tuple[Worktree, AttemptRequest]
) -> None:
    """One broken answer does not end the task."""
    _, end, _ = await attempt(
        driver, replace(prepared[1], prompt=fake({"text": "back", "drop": True, "times": 1}))
    )
    assert end.outcome is Outcome.SUCCEEDED, end


async def test_hanging_model_is_given_up(
    driver: ClaudeDriver, prepared: tuple[Worktree, AttemptRequest]
) -> None:
    """The watchdog on useful events ends a run whose model never answers."""
    limits = Limits(timeout_s=60, silence_s=5, grace_s=1)
    _, end, _ = await attempt(driver, replace(prepared[1], prompt=fake({"hang": True}), limits=limits))
    assert (end.outcome, end.failure) == (Outcome.TIMED_OUT, Failure.SILENT), end


def test_health_knows_the_version(claude_program: Path) -> None:
    """The real program answers the health check."""
    found = health(Agent("claude", "claude", command=(str(claude_program),)), {"PATH": "/usr/bin:/bin"})
    assert found.online
    assert "2.1.325" in found.version
