"""Who is there and how they are doing: the roster and its health together with what the queue and the history prove."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from proctor.agents.health import Health
from proctor.agents.roster import Agent
from proctor.engine.evidence import executors_seen
from proctor.store.glance import Glance, as_moment

__all__ = ["AgentFact", "agent_facts"]

MAX_AGENTS = 1000
_PAST = (
    "SELECT agent_name, count(*) AS attempts, sum(CASE WHEN success THEN 1 ELSE 0 END) AS completed,"
    " avg(duration_ms) AS mean_ms, max(created_at) AS last_at, sum(coalesce(cost_tokens, 0)) AS tokens"
    f" FROM task_history GROUP BY agent_name LIMIT {MAX_AGENTS}"
)
_NOW = (
    "SELECT agent_name, task_id, owner FROM attempts WHERE ended_at IS NULL"
    f" ORDER BY started_at DESC, task_id LIMIT {MAX_AGENTS}"
)


@dataclass(frozen=True, slots=True)
class AgentFact:
    """One agent: what it is, whether it can work, what it does and what it has done."""

    name: str
    status: str
    """idle, busy or offline, from facts."""
    online: bool
    """Whether it could begin something now."""
    reason: str
    cure: str
    driver: str
    model: str
    version: str
    capabilities: tuple[str, ...]
    max_parallel: int
    simulated: bool
    seed: bool
    configured: bool
    present: bool
    paused: bool
    current_task_ids: tuple[str, ...]
    total_attempts: int
    total_tasks_completed: int
    success_rate: float | None
    avg_completion_time_ms: int | None
    total_tokens: int
    last_active_at: datetime | None

    @property
    def shown(self) -> bool:
        """Whether it is listed without being asked for: a seed agent only with its key or server, or in the settings."""
        return not self.seed or self.present or self.configured


def agent_facts(
    look: Glance | None, agents: Iterable[Agent], health: Mapping[str, Health]
) -> list[AgentFact]:
    """The agents in the roster's order; without a database nobody has done anything yet."""
    past = {row["agent_name"]: row for row in look.rows(_PAST)} if look is not None else {}
    busy = _busy(look) if look is not None else {}
    paused = _paused(look) if look is not None else set()
    return [
        _fact(
            agent,
            health[agent.name],
            past.get(agent.name, {}),
            busy.get(agent.name, ()),
            agent.name in paused,
        )
        for agent in agents
    ]


def _busy(look: Glance) -> dict[str, tuple[str, ...]]:
    """Tasks per agent that somebody alive works on; what a dead supervisor left behind is not work."""
    seen = executors_seen(look, datetime.now(UTC))
    living = {one.executor_id for one in seen if one.alive is not False}
    found: dict[str, tuple[str, ...]] = {}
    for row in look.rows(_NOW):
        if row["owner"] in living:
            found[row["agent_name"]] = (*found.get(row["agent_name"], ()), row["task_id"])
    return found


def _paused(look: Glance) -> set[str]:
    rows = look.rows(f"SELECT scope FROM controls WHERE paused LIMIT {MAX_AGENTS}")
    return {row["scope"].removeprefix("agent:") for row in rows if row["scope"].startswith("agent:")}


def _fact(
    agent: Agent, health: Health, past: Mapping[str, Any], tasks: tuple[str, ...], paused: bool
) -> AgentFact:
    attempts, completed = int(past.get("attempts") or 0), int(past.get("completed") or 0)
    return AgentFact(
        name=agent.name,
        status="busy" if tasks else "idle" if health.online else "offline",
        online=health.online,
        reason=health.reason,
        cure=health.cure,
        driver=agent.driver,
        model=agent.model,
        version=health.version,
        capabilities=agent.capabilities,
        max_parallel=agent.max_parallel,
        simulated=agent.simulated or health.simulated,
        seed=agent.seed,
        configured=agent.configured,
        present=health.present,
        paused=paused,
        current_task_ids=tasks,
        total_attempts=attempts,
        total_tasks_completed=completed,
        success_rate=completed / attempts if attempts else None,
        avg_completion_time_ms=round(past["mean_ms"]) if attempts else None,
        total_tokens=int(past.get("tokens") or 0),
        last_active_at=as_moment(past.get("last_at")),
    )
