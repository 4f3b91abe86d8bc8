"""Seed 002's words for plans: `Plan`, `PlanStep`, `PlanningStage`, `ToolBudget` (ceilings) and `ExecutionContext`.

`PlanStep` takes `tool` and has no domain field: the domain stands in its metadata. `tool_name` is not taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from proctor.protocol import plans
from proctor.protocol.limits import Limits
from proctor.protocol.states import PLAN, PlanState

__all__ = ["ExecutionContext", "Plan", "PlanStep", "PlanningStage", "ToolBudget"]

PlanningStage = PlanState
DEFAULT = "default"


def _now() -> str:
    return datetime.now(UTC).isoformat()


@dataclass(frozen=True)
class ToolBudget:
    """Ceilings of cost, calls and tokens; `warn` tells, `block` ends."""

    cost_ceiling: float = 100.0
    cost_spent: float = 0.0
    call_ceiling: int = 50
    call_spent: int = 0
    token_ceiling: int = 100_000
    token_spent: int = 0
    policy: str = "warn"

    def __post_init__(self) -> None:
        if self.policy not in {"warn", "block"}:
            raise ValueError("policy must be 'warn' or 'block'")

    def within_limits(self) -> bool:
        """Whether nothing is over its ceiling."""
        return min(self.remaining_cost(), self.remaining_calls(), self.remaining_tokens()) >= 0

    def with_cost(self, cost: float) -> ToolBudget:
        """A copy with more spent."""
        return replace(self, cost_spent=self.cost_spent + cost)

    def with_call(self) -> ToolBudget:
        """A copy with one more call."""
        return replace(self, call_spent=self.call_spent + 1)

    def with_tokens(self, tokens: int) -> ToolBudget:
        """A copy with more tokens spent."""
        return replace(self, token_spent=self.token_spent + tokens)

    def remaining_cost(self) -> float:
        """Dollars left."""
        return self.cost_ceiling - self.cost_spent

    def remaining_calls(self) -> int:
        """Calls left."""
        return self.call_ceiling - self.call_spent

    def remaining_tokens(self) -> int:
        """Tokens left."""
        return self.token_ceiling - self.token_spent

    def limits(self) -> Limits | None:
        """What blocks; None where it only warns."""
        if self.policy != "block":
            return None
        return Limits(
            calls=max(0, self.remaining_calls()),
            tokens=max(0, self.remaining_tokens()),
            micro_usd=max(0, round(self.remaining_cost() * 1_000_000)),
        )


@dataclass
class PlanStep:
    """One call of a plan."""

    tool: str
    input: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    reason: str = ""
    estimated_cost: float = 0.0
    estimated_tokens: int = 0
    worker: str = ""
    index: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)

    def ours(self) -> plans.PlanStep:
        """As the engine takes it."""
        return plans.PlanStep(
            tool=self.tool,
            input=dict(self.input),
            name=self.name,
            reason=self.reason,
            estimated_cost=self.estimated_cost,
            estimated_tokens=self.estimated_tokens,
            worker=self.worker,
            metadata=dict(self.metadata),
        )


@dataclass
class Plan:
    """An ordered list of calls with its stage and ceilings."""

    plan_id: str
    goal: str
    steps: list[PlanStep]
    stage: PlanState = PlanState.CREATED
    budget: ToolBudget = field(default_factory=ToolBudget)
    trace_id: str | None = None
    profile: str = DEFAULT
    created_at: str = field(default_factory=_now)
    routed_at: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def transition_to(self, new_stage: PlanState, **changes: Any) -> Plan:
        """A copy in the next stage; a step the machine does not know is a ValueError."""
        stage = PLAN.step(PlanState(self.stage), PlanState(new_stage))
        stamps = {PlanState.ROUTED: "routed_at", PlanState.EXECUTING: "started_at"}
        stamp = stamps.get(stage, "completed_at")
        return replace(self, **{"stage": stage, stamp: _now(), **changes})

    def with_budget(self, budget: ToolBudget) -> Plan:
        """A copy with other ceilings."""
        return replace(self, budget=budget)

    def with_routed_steps(self, steps: list[PlanStep]) -> Plan:
        """A copy with workers assigned."""
        return replace(self, steps=steps)

    def estimated_total_cost(self) -> float:
        """Dollars, as the steps estimate."""
        return sum(step.estimated_cost for step in self.steps)

    def estimated_total_tokens(self) -> int:
        """Tokens, as the steps estimate."""
        return sum(step.estimated_tokens for step in self.steps)

    def budget_sufficient(self) -> bool:
        """Whether the ceilings would hold the whole plan."""
        return (
            self.estimated_total_cost() <= self.budget.remaining_cost()
            and len(self.steps) <= self.budget.remaining_calls()
            and self.estimated_total_tokens() <= self.budget.remaining_tokens()
        )


@dataclass(frozen=True)
class ExecutionContext:
    """What a plan runs in; copies keep the trace."""

    trace_id: str
    request_id: str = ""
    profile: str = DEFAULT
    user_intent: str = ""
    user_id: str | None = None
    memory_scope: str | None = None
    conversation_id: str | None = None
    session_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    parent_context: ExecutionContext | None = None
    created_at: str = field(default_factory=_now)

    def __post_init__(self) -> None:
        if not self.trace_id:
            raise ValueError("trace_id is required")

    def with_user_intent(self, user_intent: str) -> ExecutionContext:
        """A copy for another intent."""
        return replace(self, user_intent=user_intent)

    def with_request_id(self, request_id: str) -> ExecutionContext:
        """A copy for another request."""
        return replace(self, request_id=request_id)

    def with_profile(self, profile: str) -> ExecutionContext:
        """A copy under another profile."""
        return replace(self, profile=profile)

    def with_metadata(self, **metadata: Any) -> ExecutionContext:
        """A copy with more facts."""
        return replace(self, metadata={**self.metadata, **metadata})

    def ours(self) -> plans.ExecutionContext:
        """As the engine takes it; the profile is the coordinator's to say."""
        return plans.ExecutionContext(
            trace_id=self.trace_id,
            request_id=self.request_id or None,
            user_intent=self.user_intent or None,
            user_id=self.user_id,
            memory_scope=self.memory_scope,
            conversation_id=self.conversation_id,
            session_id=self.session_id,
            metadata=dict(self.metadata),
        )
