"""Plans as words: an ordered list of governed calls, the context they run in, and what came of them. No I/O.

Fields have the seeds' names. `success` is true only when every step ran to its end; `simulated` says that at least one of
them did so on a mock adapter, which never counts as real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from proctor.protocol.errors import UsageError
from proctor.protocol.failures import ErrorPropagation, FailureMode, find_retry
from proctor.protocol.ids import new_id
from proctor.protocol.limits import Limits
from proctor.protocol.states import PlanState
from proctor.protocol.tools import SideEffect

__all__ = [
    "DEFAULT_PROFILE",
    "MAX_STEPS",
    "ExecutionContext",
    "ExecutionResult",
    "PartialResult",
    "Plan",
    "PlanStep",
    "StepReport",
]

DEFAULT_PROFILE: Final = "enterprise"
UNKNOWN_DOMAIN: Final = "unknown"
MAX_STEPS: Final = 1000
_MAX_TOOL, _MAX_DOMAIN, _MAX_ID = 90, 50, 64


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One call of a plan; domain, side-effect class, adapter and fallback stand in its metadata."""

    tool: str
    input: Mapping[str, Any] = field(default_factory=_nothing)
    name: str = ""
    reason: str = ""
    estimated_cost: float = 0.0
    estimated_tokens: int = 0
    worker: str = ""
    metadata: Mapping[str, Any] = field(default_factory=_nothing)

    @property
    def domain(self) -> str:
        """What it counts as, where the tool itself does not say."""
        return str(self.metadata.get("domain", UNKNOWN_DOMAIN))

    @property
    def side_effect(self) -> SideEffect:
        """What it does to the world, where the tool itself does not say."""
        return SideEffect(self.metadata.get("side_effect_class", SideEffect.READ_ONLY.value))

    @property
    def adapter(self) -> str | None:
        """The adapter it wants; None: the tool's own, or the mock where there is no such tool."""
        wanted = self.metadata.get("adapter")
        return None if wanted is None else str(wanted)

    @property
    def fallback(self) -> str | None:
        """Another tool that takes the same input, for the policy `fallback`."""
        other = self.metadata.get("fallback")
        return None if other is None else str(other)

    def check(self, number: int) -> None:
        """Refuse what could not be kept or judged."""
        effects = [effect.value for effect in SideEffect]
        problem = ""
        if not self.tool.strip() or len(self.tool) > _MAX_TOOL or not self.tool.isprintable():
            problem = f"needs a tool of 1 to {_MAX_TOOL} printable characters"
        elif not 0 < len(self.domain) <= _MAX_DOMAIN or not self.domain.isprintable():
            problem = f"has a domain that is not 1 to {_MAX_DOMAIN} printable characters"
        elif self.metadata.get("side_effect_class", effects[0]) not in effects:
            problem = f"has a side_effect_class that is none of {', '.join(effects)}"
        elif self.estimated_tokens < 0 or self.estimated_cost < 0:
            problem = "has an estimate below 0"
        if problem:
            raise UsageError(message=f"Step {number} of the plan {problem}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An ordered list of governed calls. The same id is the same plan: it goes on and is not begun again."""

    goal: str
    steps: tuple[PlanStep, ...] = ()
    plan_id: str = field(default_factory=lambda: new_id("plan"))
    trace_id: str | None = None
    profile: str = DEFAULT_PROFILE
    budget: Limits | None = None
    """Its own, beside that of the profile; the tighter one holds."""
    on_error: ErrorPropagation = ErrorPropagation.CONTINUE
    retry: str = "exponential"
    """The retry policy of `on_error` retry."""
    metadata: Mapping[str, Any] = field(default_factory=_nothing)

    def check(self) -> None:
        """Refuse what could not be kept or judged, with the place."""
        named = self.plan_id.isascii() and self.plan_id.isprintable()
        if not 0 < len(self.plan_id) <= _MAX_ID or not named:
            raise UsageError(message=f"A plan's id has 1 to {_MAX_ID} printable ASCII characters.")
        if len(self.steps) > MAX_STEPS:
            raise UsageError(message=f"A plan has at most {MAX_STEPS} steps; this one has {len(self.steps)}.")
        find_retry(self.retry)
        for number, step in enumerate(self.steps, start=1):
            step.check(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionContext:
    """What a plan runs in; copies keep the trace."""

    trace_id: str
    request_id: str | None = None
    profile: str | None = None
    user_intent: str | None = None
    user_id: str | None = None
    memory_scope: str | None = None
    conversation_id: str | None = None
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What came of one step."""

    index: int
    tool: str
    name: str
    status: str
    """`completed`, `failed`, `skipped`, `waiting` or `pending`."""
    adapter: str = ""
    simulated: bool = False
    result: Mapping[str, Any] | None = None
    code: str = ""
    message: str = ""
    reason: str = ""
    failure_mode: FailureMode | None = None
    tries: int = 0
    fallback: bool = False
    call_id: str = ""
    approval_id: str | None = None
    duration_ms: float = 0.0
    ended_at: float | None = None
    """Seconds since 1970."""

    @property
    def label(self) -> str:
        """How people know it."""
        return self.name or self.tool

    def as_result(self) -> dict[str, Any]:
        """A completed step as the seeds' readers know it."""
        return {
            "success": True,
            "index": self.index,
            "tool": self.tool,
            "name": self.name,
            "adapter": self.adapter,
            "simulated": self.simulated,
            "result": None if self.result is None else dict(self.result),
            "call_id": self.call_id,
            "duration_ms": self.duration_ms,
            "fallback": self.fallback,
        }

    def as_failure(self) -> dict[str, Any]:
        """A failed step with everything that is known of it."""
        mode = self.failure_mode or FailureMode.RESOURCE_TOOL
        return {
            "index": self.index,
            "tool": self.tool,
            "name": self.name,
            "status": "budget_exceeded" if self.code == "budget_exceeded" else "error",
            "code": self.code,
            "reason": self.reason,
            "error": self.message,
            "failure_mode": mode.value,
            "category": mode.category.value,
            "retryable": mode.retryable,
            "terminal": mode.terminal,
            "severity": mode.severity.value,
            "tries": self.tries,
            "call_id": self.call_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialResult:
    """What a plan that did not come to its end has, and what to do about the rest."""

    completed_steps: list[str]
    failed_steps: list[str]
    partial_data: dict[str, Any]
    failure_mode: FailureMode
    recovery_strategy: str
    """`retry_failed`, `skip_failed` or `manual`."""
    step_results: dict[str, Any] = field(default_factory=dict)
    step_timestamps: dict[str, float] = field(default_factory=dict)
    total_steps: int = 0
    failure_point: str | None = None
    trace_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def completion_ratio(self) -> float:
        """The share of steps that completed, 0 to 1."""
        return len(self.completed_steps) / self.total_steps if self.total_steps else 0.0

    @property
    def remaining_steps(self) -> int:
        """Steps that neither completed nor failed."""
        return max(0, self.total_steps - len(self.completed_steps) - len(self.failed_steps))

    @property
    def hint(self) -> str:
        """What a person can do, in a sentence."""
        if self.failure_mode is FailureMode.USER_PERMISSION and not self.failed_steps:
            return "Answer the open question; the plan then goes on."
        return {
            "retry_failed": "Resume the plan: what failed is tried again, what completed is not.",
            "skip_failed": "Go on with what completed; the failed steps can be left out.",
            "manual": "Mend the cause first; then resume the plan.",
        }[self.recovery_strategy]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """What came of a plan, so far."""

    success: bool
    results: Sequence[dict[str, Any]]
    trace_id: str
    partial_results: PartialResult | None = None
    failure_context: dict[str, Any] | None = None
    budget_utilization: dict[str, Any] = field(default_factory=dict)
    approvals_required: int = 0
    approvals_received: int = 0
    plan_id: str = ""
    stage: PlanState = PlanState.CREATED
    simulated: bool = False
    parked: bool = False
    """A person has to answer first; the plan goes on from there."""
    approval_id: str | None = None
    notes: tuple[str, ...] = ()
    steps: tuple[StepReport, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        if self.partial_results is not None:
            part = self.partial_results
            found["partial_results"] |= {
                "completion_ratio": part.completion_ratio,
                "remaining_steps": part.remaining_steps,
                "hint": part.hint,
            }
        return found
