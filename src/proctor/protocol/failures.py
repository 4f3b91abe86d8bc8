"""Failures as words: modes with category, retryable, terminal and severity (seed 002), and how often to try again.

A mode is read from a call's own code, never guessed from its text. No I/O, no clock: chance comes from the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from proctor.protocol.errors import UsageError

__all__ = [
    "RETRIES",
    "ErrorPropagation",
    "FailureCategory",
    "FailureMode",
    "FailureSeverity",
    "RetryPolicy",
    "common_mode",
    "find_retry",
    "mode_of",
]


class FailureCategory(StrEnum):
    """Where a failure comes from."""

    AGENT = "AGENT"
    SYSTEM = "SYSTEM"
    RESOURCE = "RESOURCE"
    POLICY = "POLICY"
    USER = "USER"


class FailureSeverity(StrEnum):
    """How much it threatens."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class ErrorPropagation(StrEnum):
    """What a failed step means for the steps behind it."""

    FAIL_FAST = "fail_fast"
    CONTINUE = "continue"
    RETRY = "retry"
    FALLBACK = "fallback"


class FailureMode(StrEnum):
    """What kind of failure it was."""

    AGENT_VALIDATION = "agent_validation"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_LOGIC = "agent_logic"
    AGENT_CONTRACT = "agent_contract"
    AGENT_STATE = "agent_state"
    SYSTEM_NETWORK = "system_network"
    SYSTEM_TIMEOUT = "system_timeout"
    SYSTEM_CRASH = "system_crash"
    SYSTEM_OOM = "system_oom"
    SYSTEM_DISK = "system_disk"
    RESOURCE_TOOL = "resource_tool"
    RESOURCE_API = "resource_api"
    RESOURCE_MEMORY = "resource_memory"
    RESOURCE_QUOTA = "resource_quota"
    RESOURCE_CIRCUIT = "resource_circuit"
    POLICY_SECURITY = "policy_security"
    POLICY_BUDGET = "policy_budget"
    POLICY_ALLOWLIST = "policy_allowlist"
    POLICY_RATE_LIMIT = "policy_rate_limit"
    USER_INVALID_INPUT = "user_invalid_input"
    USER_CANCELLED = "user_cancelled"
    USER_PERMISSION = "user_permission"
    PARTIAL_TOOL_FAILURES = "partial_tool_failures"
    PARTIAL_STEP_FAILURES = "partial_step_failures"
    PARTIAL_TIMEOUT = "partial_timeout"

    @property
    def category(self) -> FailureCategory:
        """Where it comes from; what is partial is the agent's to mend."""
        family = self.value.partition("_")[0].upper()
        return FailureCategory.AGENT if family == "PARTIAL" else FailureCategory(family)

    @property
    def retryable(self) -> bool:
        """Whether trying again makes sense."""
        return self in _RETRYABLE

    @property
    def terminal(self) -> bool:
        """Whether no further try can help."""
        return self in _TERMINAL

    @property
    def severity(self) -> FailureSeverity:
        """How much it threatens."""
        if self.terminal:
            return FailureSeverity.CRITICAL
        if self.category is FailureCategory.SYSTEM:
            return FailureSeverity.HIGH
        if self.category in {FailureCategory.RESOURCE, FailureCategory.POLICY}:
            return FailureSeverity.MEDIUM
        return FailureSeverity.LOW


_RETRYABLE: Final = frozenset(
    {
        FailureMode.SYSTEM_NETWORK,
        FailureMode.SYSTEM_TIMEOUT,
        FailureMode.RESOURCE_TOOL,
        FailureMode.RESOURCE_API,
        FailureMode.RESOURCE_CIRCUIT,
        FailureMode.POLICY_RATE_LIMIT,
        FailureMode.AGENT_TIMEOUT,
        FailureMode.PARTIAL_TOOL_FAILURES,
        FailureMode.PARTIAL_STEP_FAILURES,
        FailureMode.PARTIAL_TIMEOUT,
    }
)
_TERMINAL: Final = frozenset(
    {
        FailureMode.POLICY_SECURITY,
        FailureMode.POLICY_BUDGET,
        FailureMode.POLICY_ALLOWLIST,
        FailureMode.SYSTEM_CRASH,
        FailureMode.SYSTEM_OOM,
        FailureMode.USER_CANCELLED,
        FailureMode.AGENT_CONTRACT,
    }
)

_BY_CODE: Final[Mapping[str, FailureMode]] = MappingProxyType(
    {
        "budget_exceeded": FailureMode.POLICY_BUDGET,
        "adapter_unavailable": FailureMode.POLICY_ALLOWLIST,
        "approval_pending": FailureMode.USER_PERMISSION,
        "approval_rejected": FailureMode.USER_PERMISSION,
        "approval_void": FailureMode.USER_PERMISSION,
        "unattended_denied": FailureMode.USER_PERMISSION,
        "cancelled": FailureMode.USER_CANCELLED,
        "interrupted": FailureMode.AGENT_STATE,
        "call_interrupted": FailureMode.AGENT_STATE,
        "call_in_progress": FailureMode.AGENT_STATE,
        "idempotency_conflict": FailureMode.AGENT_CONTRACT,
        "timed_out": FailureMode.SYSTEM_TIMEOUT,
        "defect": FailureMode.RESOURCE_TOOL,
        "failed": FailureMode.RESOURCE_TOOL,
        "snapshot_failed": FailureMode.SYSTEM_DISK,
        "store_unavailable": FailureMode.SYSTEM_DISK,
        "rate_limited": FailureMode.POLICY_RATE_LIMIT,
        "no_workspace": FailureMode.USER_INVALID_INPUT,
        "sandbox_level": FailureMode.RESOURCE_TOOL,
        "inconclusive": FailureMode.POLICY_SECURITY,
    }
)
# By the exit code of the error's family, where its own code says nothing more.
_BY_EXIT: Final[Mapping[int, FailureMode]] = MappingProxyType(
    {
        2: FailureMode.USER_INVALID_INPUT,
        4: FailureMode.USER_INVALID_INPUT,
        5: FailureMode.POLICY_SECURITY,
        6: FailureMode.RESOURCE_API,
        7: FailureMode.SYSTEM_DISK,
        130: FailureMode.USER_CANCELLED,
    }
)


def mode_of(code: str, exit_code: int = 1) -> FailureMode:
    """The mode of a failed call, by its code, else by its family."""
    return _BY_CODE.get(code) or _BY_EXIT.get(exit_code, FailureMode.RESOURCE_TOOL)


def common_mode(modes: list[FailureMode], *, completed: int) -> FailureMode:
    """One mode for several failures: the one they share; else that some steps failed while others did not."""
    if len(set(modes)) == 1:
        return modes[0]
    return FailureMode.PARTIAL_STEP_FAILURES if completed else FailureMode.PARTIAL_TOOL_FAILURES


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a failed step is tried again."""

    name: str
    attempts: int = 1
    """Tries in all, the first one included."""
    base_s: float = 0.0
    factor: float = 1.0
    max_s: float = 60.0
    jitter: float = 0.0

    def delay(self, tried: int, chance: float = 0.5) -> float:
        """Seconds to wait after so many tries; `chance` (0 to 1) spreads callers who failed together."""
        delay = min(self.base_s * self.factor ** max(0, tried - 1), self.max_s)
        return max(0.0, delay * (1 + self.jitter * (2 * chance - 1)))


RETRIES: Final[Mapping[str, RetryPolicy]] = MappingProxyType(
    {
        "exponential": RetryPolicy("exponential", attempts=3, base_s=1.0, factor=2.0, jitter=0.1),
        "linear": RetryPolicy("linear", attempts=3, base_s=2.0),
        "none": RetryPolicy("none"),
    }
)


def find_retry(name: str) -> RetryPolicy:
    """The policy of this name; never another in its place."""
    if name not in RETRIES:
        raise UsageError(message=f"There is no retry policy {name!r}; take one of {', '.join(RETRIES)}.")
    return RETRIES[name]
