"""The state machines of task, session and plan, and how each seed's words map onto them.

A state is a fact computed from events; these tables only say which steps are lawful.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from proctor.protocol.errors import InvalidTransitionError

__all__ = [
    "DIALECTS",
    "PLAN",
    "SESSION",
    "TASK",
    "Machine",
    "PlanState",
    "SessionState",
    "TaskState",
    "translate",
]


class TaskState(StrEnum):
    """Where a task stands."""

    PENDING = "pending"
    ASSIGNED = "assigned"
    IN_PROGRESS = "in_progress"
    AWAITING_APPROVAL = "awaiting_approval"
    BLOCKED = "blocked"
    RECOVERING = "recovering"
    VERIFYING = "verifying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class SessionState(StrEnum):
    """Where a session stands."""

    PLANNING = "planning"
    RUNNING = "running"
    PAUSED = "paused"
    NEEDS_YOU = "needs_you"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class PlanState(StrEnum):
    """Where a plan stands (seed 002's PlanningStage)."""

    CREATED = "created"
    ROUTED = "routed"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


S = TypeVar("S", bound=StrEnum)


class Machine(Generic[S]):
    """A closed set of states with lawful steps; terminal states have none."""

    def __init__(
        self, name: str, initial: S, steps: Mapping[S, frozenset[S]], reopens: Mapping[S, S] | None = None
    ) -> None:
        self.name = name
        self.initial = initial
        self.reopens: Mapping[S, S] = MappingProxyType(dict(reopens or {}))
        self.steps: Mapping[S, frozenset[S]] = MappingProxyType(dict(steps))

    @property
    def terminal(self) -> frozenset[S]:
        """The states nothing leaves."""
        return frozenset(state for state, targets in self.steps.items() if not targets)

    def allows(self, current: S, target: S) -> bool:
        """Say whether one step is lawful."""
        return target in self.steps[current]

    def step(self, current: S, target: S) -> S:
        """Return the target, or refuse with what would have been allowed."""
        if not self.allows(current, target):
            allowed = ", ".join(sorted(self.steps[current])) or "nothing, it has ended"
            raise InvalidTransitionError(
                machine=self.name, current=current.value, target=target.value, allowed=allowed
            )
        return target

    def reopen(self, current: S) -> S:
        """Leave an end again: only a person's explicit retry may, and only from where it makes sense."""
        if current not in self.reopens:
            allowed = ", ".join(sorted(self.reopens)) or "nothing"
            raise InvalidTransitionError(
                machine=self.name, current=current.value, target="retry", allowed=f"retry from {allowed}"
            )
        return self.reopens[current]

    def sources(self, target: S) -> frozenset[S]:
        """The states from which a target may be reached in one step: the WHERE of a guarded update."""
        return frozenset(state for state, targets in self.steps.items() if target in targets)


def _task_steps() -> dict[TaskState, frozenset[TaskState]]:
    t = TaskState
    ended = {t.COMPLETED, t.FAILED, t.CANCELLED}
    # Every open state may fail (deadline, retries used up) or be cancelled; only work that ran may complete.
    give_up = {t.FAILED, t.CANCELLED}
    held = {t.AWAITING_APPROVAL, t.BLOCKED, t.RECOVERING, t.VERIFYING}
    return {
        t.PENDING: frozenset({t.ASSIGNED, t.BLOCKED} | give_up),
        t.ASSIGNED: frozenset({t.PENDING, t.IN_PROGRESS, t.BLOCKED} | give_up),
        t.IN_PROGRESS: frozenset({t.ASSIGNED, *held} | ended),
        t.AWAITING_APPROVAL: frozenset({t.ASSIGNED, t.IN_PROGRESS, t.BLOCKED} | give_up),
        t.BLOCKED: frozenset({t.PENDING, t.ASSIGNED, t.IN_PROGRESS} | give_up),
        t.RECOVERING: frozenset({t.ASSIGNED, t.IN_PROGRESS, t.BLOCKED} | give_up),
        t.VERIFYING: frozenset({t.IN_PROGRESS, t.RECOVERING, t.BLOCKED} | ended),
        t.COMPLETED: frozenset(),
        t.FAILED: frozenset(),
        t.CANCELLED: frozenset(),
    }


def _session_steps() -> dict[SessionState, frozenset[SessionState]]:
    s = SessionState
    give_up = {s.FAILED, s.CANCELLED}
    return {
        s.PLANNING: frozenset({s.RUNNING, s.PAUSED, s.NEEDS_YOU} | give_up),
        s.RUNNING: frozenset({s.PAUSED, s.NEEDS_YOU, s.COMPLETED} | give_up),
        s.PAUSED: frozenset({s.PLANNING, s.RUNNING} | give_up),
        s.NEEDS_YOU: frozenset({s.PLANNING, s.RUNNING, s.PAUSED} | give_up),
        s.COMPLETED: frozenset(),
        s.FAILED: frozenset(),
        s.CANCELLED: frozenset(),
    }


def _plan_steps() -> dict[PlanState, frozenset[PlanState]]:
    p = PlanState
    return {
        p.CREATED: frozenset({p.ROUTED, p.CANCELLED, p.FAILED}),
        p.ROUTED: frozenset({p.EXECUTING, p.CANCELLED, p.FAILED}),
        p.EXECUTING: frozenset({p.COMPLETED, p.FAILED, p.CANCELLED}),
        p.COMPLETED: frozenset(),
        p.FAILED: frozenset(),
        p.CANCELLED: frozenset(),
    }


TASK: Machine[TaskState] = Machine(
    "task",
    TaskState.PENDING,
    _task_steps(),
    reopens={TaskState.FAILED: TaskState.PENDING, TaskState.CANCELLED: TaskState.PENDING},
)
SESSION: Machine[SessionState] = Machine("session", SessionState.PLANNING, _session_steps())
PLAN: Machine[PlanState] = Machine(
    "plan", PlanState.CREATED, _plan_steps(), reopens={PlanState.FAILED: PlanState.EXECUTING}
)

# Each seed dialect's words for our task states. Where a dialect has no word, the nearest true one is used:
# never "completed" for what has not ended. docs/reference/states.md shows this table; a test compares them.
DIALECTS: Mapping[str, Mapping[TaskState, str]] = MappingProxyType(
    {
        "queue": {  # seed 000 task_queue.status
            TaskState.PENDING: "pending",
            TaskState.ASSIGNED: "assigned",
            TaskState.IN_PROGRESS: "in_progress",
            TaskState.AWAITING_APPROVAL: "in_progress",
            TaskState.BLOCKED: "in_progress",
            TaskState.RECOVERING: "in_progress",
            TaskState.VERIFYING: "in_progress",
            TaskState.COMPLETED: "completed",
            TaskState.FAILED: "failed",
            TaskState.CANCELLED: "failed",
        },
        "worker": {  # seed 003 WorkerStatus
            TaskState.PENDING: "idle",
            TaskState.ASSIGNED: "idle",
            TaskState.IN_PROGRESS: "running",
            TaskState.AWAITING_APPROVAL: "blocked",
            TaskState.BLOCKED: "blocked",
            TaskState.RECOVERING: "recovering",
            TaskState.VERIFYING: "running",
            TaskState.COMPLETED: "completed",
            TaskState.FAILED: "failed",
            TaskState.CANCELLED: "failed",
        },
        "instruction": {  # seed 000 github_instruction_queue.status
            TaskState.PENDING: "pending",
            TaskState.ASSIGNED: "pending",
            TaskState.IN_PROGRESS: "in_progress",
            TaskState.AWAITING_APPROVAL: "in_progress",
            TaskState.BLOCKED: "in_progress",
            TaskState.RECOVERING: "in_progress",
            TaskState.VERIFYING: "completed",
            TaskState.COMPLETED: "verified",
            TaskState.FAILED: "failed",
            TaskState.CANCELLED: "failed",
        },
        "request": {  # seed 000 solace_user_requests.status
            TaskState.PENDING: "analyzing",
            TaskState.ASSIGNED: "planned",
            TaskState.IN_PROGRESS: "executing",
            TaskState.AWAITING_APPROVAL: "executing",
            TaskState.BLOCKED: "executing",
            TaskState.RECOVERING: "executing",
            TaskState.VERIFYING: "verifying",
            TaskState.COMPLETED: "complete",
            TaskState.FAILED: "failed",
            TaskState.CANCELLED: "failed",
        },
        "plan": {  # seed 002 PlanningStage
            TaskState.PENDING: "created",
            TaskState.ASSIGNED: "routed",
            TaskState.IN_PROGRESS: "executing",
            TaskState.AWAITING_APPROVAL: "executing",
            TaskState.BLOCKED: "executing",
            TaskState.RECOVERING: "executing",
            TaskState.VERIFYING: "executing",
            TaskState.COMPLETED: "completed",
            TaskState.FAILED: "failed",
            TaskState.CANCELLED: "cancelled",
        },
        "fix": {  # seed 004: the executor's claim; open work has none yet
            TaskState.PENDING: "",
            TaskState.ASSIGNED: "",
            TaskState.IN_PROGRESS: "",
            TaskState.AWAITING_APPROVAL: "",
            TaskState.BLOCKED: "PARTIALLY_FIXED",
            TaskState.RECOVERING: "",
            TaskState.VERIFYING: "",
            TaskState.COMPLETED: "FIXED",
            TaskState.FAILED: "FAILED",
            TaskState.CANCELLED: "FAILED",
        },
    }
)


def translate(state: TaskState, dialect: str) -> str:
    """Say a task state in a seed's own words."""
    return DIALECTS[dialect][state]
