"""The real Codex, offline against the scripted model server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proctor.agents.codex import SANDBOX, CodexDriver
from proctor.agents.driver import AttemptRequest, Failure, Limits, Outcome
from proctor.protocol.errors import ConfigError
from proctor.testing.model_server import ModelServer
from proctor.workspace.worktree import Worktree
from tests.agents.real import becomes_a_commit, fake, prepare, resumes_after_kill
from tests.agents.runs import attempt

# The first test may have to fetch the program.
pytestmark = [pytest.mark.agents, pytest.mark.timeout(660), pytest.mark.usefixtures("home")]
CONFIG = """
model_provider = "simulated"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.simulated]
name = "Simulated"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SIMULATED_KEY"
request_max_retries = 1
stream_max_retries = 1
"""


@pytest.fixture
def driver(codex_program: Path) -> CodexDriver:
    """The driver of the fetched program."""
    return CodexDriver([str(codex_program)])


@pytest.fixture
def prepared(tmp_path: Path, models: ModelServer) -> tuple[Worktree, AttemptRequest]:
    """A worktree and a request with a false key; no sandbox of Codex's own inside that of the tests."""
    env = {"SIMULATED_KEY": "sk-simulated", SANDBOX: "danger-full-access"}
    tree, request = prepare(tmp_path, "gpt-5.5", env)
    config = tmp_path / "agent-home" / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text(CONFIG.format(url=models.url))
    return tree, request


async def test_task_becomes_a_commit(driver: CodexDriver, prepared: tuple[Worktree, AttemptRequest]) -> None:
    """Edit, command and answer are told; tokens are known, money is not; the work is on a branch."""
    events, end = await becomes_a_commit(driver, *prepared)
    assert [e.tool_name for e in events if e.event == "tool_use"] == ["edit", "shell"]
    assert end.usage.tokens > 3000
    assert end.usage.cost_usd is None


async def test_resumes_after_sigkill(driver: CodexDriver, prepared: tuple[Worktree, AttemptRequest]) -> None:
    """The thread id from the first event is enough to go on."""
    end = await resumes_after_kill(driver, *prepared)
    assert end.final_text == "Went on."


@pytest.mark.parametrize(("status", "failure"), [(401, Failure.AUTH), (429, Failure.RATE_LIMIT)])
async def test_refusals_are_classified(
    driver: CodexDriver, prepared: tuple[Worktree, AttemptRequest], status: int, failure: Failure
) -> None:
    """What the API refuses ends as a failure of its class."""
    _, end, _ = await attempt(driver, replace(prepared[1], prompt=fake({"http": status})))
    assert (end.outcome, end.failure) == (Outcome.FAILED, failure), end


async def test_missing_key_is_told(driver: CodexDriver, prepared: tuple[Worktree, AttemptRequest]) -> None:
    """Without its key Codex ends at once, and the class says what to mend."""
    env = {name: value for name, value in prepared[1].env.items() if name != "SIMULATED_KEY"}
    _, end, _ = await attempt(driver, replace(prepared[1], prompt=fake({"text": "x"}), env=env))
    assert (end.outcome, end.failure) == (Outcome.FAILED, Failure.AUTH), end


async def test_hanging_model_is_given_up(
    driver: CodexDriver, prepared: tuple[Worktree, AttemptRequest]
) -> None:
    """The watchdog on useful events ends a run whose model never answers."""
    limits = Limits(timeout_s=60, silence_s=5, grace_s=1)
    _, end, _ = await attempt(driver, replace(prepared[1], prompt=fake({"hang": True}), limits=limits))
    assert (end.outcome, end.failure) == (Outcome.TIMED_OUT, Failure.SILENT), end


async def test_unknown_sandbox_is_refused(
    driver: CodexDriver, prepared: tuple[Worktree, AttemptRequest]
) -> None:
    """A typing error in the sandbox never means less of it."""
    env = {**prepared[1].env, SANDBOX: "none"}
    with pytest.raises(ConfigError, match="workspace-write"):
        await attempt(driver, replace(prepared[1], prompt="x", env=env))
