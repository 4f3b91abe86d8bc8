"""The roster: who is there, from the built-in list and the settings.

A setting for a built-in name changes only what it names. The seeds' four API agents stay in the background
until their key or server is there. Scripted agents exist only when configured. Health is in `health.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from proctor.agents.driver import Driver, Limits
from proctor.agents.registry import make_driver
from proctor.config import AgentSettings, ApiSettings
from proctor.protocol.errors import NotFoundError

__all__ = ["Agent", "Roster", "environment", "rehearsal"]

_OURS = ("PROCTOR_", "DB_")  # our own settings and the database's password are none of an agent's business


@dataclass(frozen=True, slots=True)
class Agent:
    """One named worker."""

    name: str
    driver: str
    model: str = ""
    command: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    max_parallel: int = 1
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    limits: Limits = field(default_factory=Limits)
    seed: bool = False
    """One of the seeds' four; listed without its key only on request."""
    configured: bool = False
    """Named in the settings."""
    api: ApiSettings = field(default_factory=ApiSettings)
    """How an API agent's model is reached."""

    @property
    def simulated(self) -> bool:
        """Whether its work is simulated."""
        return self.driver == "scripted"

    @property
    def provider(self) -> str:
        """Who serves the model of an API agent: the word before the colon."""
        return self.model.partition(":")[0] if self.driver == "model" else ""


BUILT_IN = (
    Agent("claude", "claude", capabilities=("coding", "review", "planning")),
    Agent("codex", "codex", capabilities=("coding", "testing", "review")),
    Agent("gemini", "gemini", capabilities=("coding", "research", "review")),
    Agent(
        "SOLACE",
        "model",
        "openai:gpt-6.1-sol",
        capabilities=("strategy", "coordination", "trading", "decision_making"),
        seed=True,
    ),
    Agent(
        "FORGE",
        "model",
        "anthropic:claude-sonnet-5-5",
        capabilities=("ui_building", "coding", "react", "html", "css"),
        seed=True,
    ),
    Agent(
        "ARCHITECT",
        "model",
        "ollama:qwen3:14b",
        capabilities=("planning", "design_patterns", "architecture"),
        seed=True,
    ),
    Agent(
        "SENTINEL",
        "model",
        "ollama:qwen3:14b",
        capabilities=("debugging", "testing", "error_detection", "validation"),
        seed=True,
    ),
)


class Roster:
    """All agents by name; names are found whatever their case."""

    def __init__(self, configured: Mapping[str, AgentSettings]) -> None:
        agents = {agent.name.casefold(): agent for agent in BUILT_IN}
        for name, settings in configured.items():
            known = agents.get(name.casefold()) or Agent(name, settings.driver or name)
            agents[name.casefold()] = _with(known, settings)
        self._agents: Mapping[str, Agent] = MappingProxyType(agents)

    def agents(self) -> list[Agent]:
        """Everybody, built-in first."""
        return list(self._agents.values())

    def get(self, name: str) -> Agent:
        """Find one agent."""
        agent = self._agents.get(name.casefold())
        if agent is None:
            known = ", ".join(agent.name for agent in self._agents.values())
            raise NotFoundError(kind="agent", name=name, cure=f"Known agents: {known}.")
        return agent

    def driver(self, name: str) -> Driver:
        """Make the driver of one agent."""
        agent = self.get(name)
        return make_driver(agent.driver, agent.command)


def environment(agent: Agent, base: Mapping[str, str]) -> dict[str, str]:
    """Make the whole environment of an agent: the user's own without Proctor's settings, then the agent's."""
    own = {name: value for name, value in base.items() if not name.startswith(_OURS)}
    return {**own, **agent.env}


def rehearsal(count: int = 3) -> dict[str, AgentSettings]:
    """Settings of scripted agents, for demonstrations and rehearsals; they are simulated and say so."""
    return {f"scripted-{number}": AgentSettings(driver="scripted") for number in range(1, count + 1)}


def _with(agent: Agent, settings: AgentSettings) -> Agent:
    seconds = [each for each in (settings.timeout, settings.limits.seconds) if each is not None]
    named = settings.driver.casefold() not in {"", agent.name.casefold()}  # the name is only the default
    return replace(
        agent,
        driver=settings.driver if named else agent.driver,
        model=settings.model or agent.model,
        command=settings.command or agent.command,
        capabilities=settings.capabilities or agent.capabilities,
        max_parallel=settings.max_parallel,
        env=MappingProxyType(dict(settings.env)),
        limits=replace(
            agent.limits,
            timeout_s=float(min(seconds)),
            memory_mb=settings.limits.memory_mb,
            cpu_percent=settings.limits.cpu_percent,
        ),
        configured=True,
        api=settings.api,
    )
