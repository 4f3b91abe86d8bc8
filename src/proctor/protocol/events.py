"""Events: the entries of the trace. Three closed sets of names, one stored form.

canonical   the ten of seed 002: what the gate does with a plan's or an agent's calls
worker      what an agent did or said (seed 003), and our driver's native remainder kept raw
system      what Proctor itself did: tasks, attempts, supervisor, recovery, retention
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from proctor.protocol.errors import NonCanonicalEventError

__all__ = [
    "CANONICAL",
    "EVENTS",
    "SYSTEM",
    "WORKER",
    "ActorKind",
    "Draft",
    "Event",
    "EventKind",
    "EventStatus",
    "register",
]


class EventKind(StrEnum):
    """Which closed set a name belongs to."""

    CANONICAL = "canonical"
    WORKER = "worker"
    SYSTEM = "system"


class EventStatus(StrEnum):
    """How the thing stands that the event tells of."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    WARNING = "warning"
    ERROR = "error"


class ActorKind(StrEnum):
    """Who acted; the gate treats the three differently (law 8)."""

    HUMAN = "human"
    AGENT = "agent"
    PROCTOR = "proctor"


CANONICAL = frozenset(
    {
        "plan_created",
        "route_decision",
        "tool_call_start",
        "tool_call_complete",
        "tool_call_error",
        "budget_warning",
        "budget_exceeded",
        "approval_requested",
        "approval_received",
        "approval_timeout",
    }
)
WORKER = frozenset(
    {
        "status",
        "progress",
        "finding",
        "task",
        "blocker",
        "milestone",
        "review",
        "request_review",
        "error",
        "recovery",
        "permission_blocker",
        "message",
        "tool_use",
        "tool_result",
        "usage",
        "native",
    }
)
SYSTEM = frozenset(
    {
        "task_added",
        "task_assigned",
        "task_started",
        "task_parked",
        "task_resumed",
        "task_retried",
        "task_completed",
        "task_failed",
        "task_cancelled",
        "attempt_started",
        "attempt_interrupted",
        "attempt_ended",
        "takeover",
        "plan_started",
        "plan_parked",
        "plan_resumed",
        "plan_completed",
        "plan_failed",
        "plan_cancelled",
        "chat_opened",
        "chat_asked",
        "chat_answered",
        "chat_parked",
        "chat_resumed",
        "chat_interrupted",
        "chat_cancelled",
        "chat_failed",
        "supervisor_started",
        "supervisor_stopped",
        "paused",
        "resumed",
        "trace_pruned",
        "proof_judged",
        "command_started",
        "command_progress",
        "command_ended",
        "network_refused",
        "note",
    }
)

_sets: dict[EventKind, frozenset[str]] = {
    EventKind.CANONICAL: CANONICAL,
    EventKind.WORKER: WORKER,
    EventKind.SYSTEM: SYSTEM,
}
EVENTS: Mapping[EventKind, frozenset[str]] = MappingProxyType(_sets)


def register(kind: EventKind, *names: str) -> None:
    """Add names of a plugin to the worker or system set; the canonical ten are closed for ever."""
    if kind is EventKind.CANONICAL:
        raise NonCanonicalEventError(event=names[0], kind=kind.value, allowed=_allowed(kind))
    _sets[kind] = _sets[kind] | set(names)


def _allowed(kind: EventKind) -> str:
    return ", ".join(sorted(_sets[kind]))


@dataclass(frozen=True, slots=True)
class Draft:
    """An event about to be written: everything but its place in the log."""

    trace_id: str
    event: str
    kind: EventKind = EventKind.SYSTEM
    status: EventStatus = EventStatus.SUCCESS
    actor: ActorKind = ActorKind.PROCTOR
    actor_name: str = ""
    session_id: str | None = None
    task_id: str | None = None
    attempt: int | None = None
    tool_name: str | None = None
    duration_ms: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    ts: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        if self.event not in _sets[self.kind]:
            raise NonCanonicalEventError(event=self.event, kind=self.kind.value, allowed=_allowed(self.kind))


class Event(BaseModel):
    """A stored event, as every reader sees it: replay, live, export, REST and WebSocket."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int = Field(description="Place in the whole log; cursors hold it.")
    trace_id: str = Field(description="The root request this belongs to.")
    trace_seq: int = Field(description="Place in its trace, from 1 without gaps.")
    ts: datetime = Field(description="When it happened (UTC).")
    kind: EventKind
    event: str
    status: EventStatus
    actor: ActorKind
    actor_name: str = ""
    session_id: str | None = None
    task_id: str | None = None
    attempt: int | None = None
    tool_name: str | None = None
    duration_ms: float | None = None
    details: dict[str, Any] = Field(default_factory=dict, description="Redacted before it was written.")
    hash: str = Field(description="SHA-256 over the previous event's hash and this event, in hex.")
