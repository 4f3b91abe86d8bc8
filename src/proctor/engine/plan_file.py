"""Plan files, JSON or TOML: read whole or refused with the place; nothing is guessed.

The budget has the seeds' keys (total_calls, calls_per_domain, calls_per_tool, warning_threshold) and ours beside them
(tokens, usd, seconds).
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.failures import RETRIES, ErrorPropagation
from proctor.protocol.ids import new_id
from proctor.protocol.limits import Limits
from proctor.protocol.plans import DEFAULT_PROFILE, MAX_STEPS, Plan, PlanStep
from proctor.protocol.tools import SideEffect

__all__ = ["BudgetEntry", "PlanFile", "StepEntry", "read_plan", "read_plan_file"]

MAX_BYTES: Final = 4_000_000
_MOST_ERRORS: Final = 5


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class StepEntry(_Strict):
    """One step."""

    tool: str
    input: dict[str, Any] = Field(default_factory=dict)
    name: str = ""
    reason: str = ""
    estimated_cost: float = Field(default=0.0, ge=0)
    estimated_tokens: int = Field(default=0, ge=0)
    worker: str = Field(default="", max_length=100)
    domain: str | None = None
    side_effect_class: SideEffect | None = None
    adapter: str | None = None
    fallback: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    def step(self) -> PlanStep:
        """As the engine takes it; what stands beside `metadata` belongs into it."""
        names = ("domain", "side_effect_class", "adapter", "fallback")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return PlanStep(
            tool=self.tool,
            input=self.input,
            name=self.name,
            reason=self.reason,
            estimated_cost=self.estimated_cost,
            estimated_tokens=self.estimated_tokens,
            worker=self.worker,
            metadata={**self.metadata, **given},
        )


class BudgetEntry(_Strict):
    """The plan's own budget."""

    total_calls: int | None = Field(default=None, ge=0)
    calls_per_domain: dict[str, int] = Field(default_factory=dict)
    calls_per_tool: dict[str, int] = Field(default_factory=dict)
    warning_threshold: float = Field(default=0.8, gt=0, lt=1)
    tokens: int | None = Field(default=None, ge=0)
    usd: float | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, ge=0)

    def limits(self) -> Limits:
        """In whole numbers."""
        return Limits(
            calls=self.total_calls,
            tokens=self.tokens,
            micro_usd=None if self.usd is None else round(self.usd * 1_000_000),
            millis=None if self.seconds is None else round(self.seconds * 1000),
            domains=self.calls_per_domain,
            tools=self.calls_per_tool,
            warn_at=round(self.warning_threshold * 100),
        )


class PlanFile(_Strict):
    """A whole plan."""

    goal: str = Field(min_length=1)
    steps: list[StepEntry] = Field(default_factory=list, max_length=MAX_STEPS)
    plan_id: str | None = None
    trace_id: str | None = None
    profile: str = DEFAULT_PROFILE
    budget: BudgetEntry | None = None
    on_error: ErrorPropagation = ErrorPropagation.CONTINUE
    retry: str = "exponential"
    metadata: dict[str, Any] = Field(default_factory=dict)

    def plan(self, *, profile: str | None = None) -> Plan:
        """As the engine takes it."""
        if self.retry not in RETRIES:
            raise UsageError(message=f"retry must be one of {', '.join(RETRIES)}, not {self.retry!r}.")
        return Plan(
            goal=self.goal,
            steps=tuple(entry.step() for entry in self.steps),
            plan_id=self.plan_id or new_id("plan"),
            trace_id=self.trace_id,
            profile=profile or self.profile,
            budget=None if self.budget is None else self.budget.limits(),
            on_error=self.on_error,
            retry=self.retry,
            metadata=self.metadata,
        )


def read_plan(path: Path, *, profile: str | None = None) -> Plan:
    """Read a plan file; `.toml` is TOML, everything else JSON."""
    return read_plan_file(path).plan(profile=profile)


def read_plan_file(path: Path) -> PlanFile:
    """Read a plan file as it stands."""
    text = _text(path)
    try:
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UsageError(message=f"{path} cannot be read: {error}.") from None
    try:
        return PlanFile.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        lines = [
            f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in found[:_MOST_ERRORS]
        ]
        raise UsageError(message=f"{path} is no plan: {'; '.join(lines)}.") from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        cure = f"{error.strerror}."
        raise NotFoundError(kind="plan file", name=str(path), cure=cure) from None
    if len(raw) > MAX_BYTES:
        raise UsageError(message=f"{path} has more than {MAX_BYTES} bytes; a plan has at most that.")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise UsageError(message=f"{path} is not UTF-8 text.") from None
