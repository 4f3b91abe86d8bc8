"""The words between a model's run and whoever watches it: what happens, how it ends, and the tools it may use.

The whole interface is: a history and tools in, events and one end out. No SDK is known here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proctor.agents.driver import Failure
from proctor.protocol.tools import CallResult

__all__ = [
    "AskFn",
    "ListenFn",
    "TurnEnd",
    "TurnEvent",
    "TurnOutcome",
    "Used",
    "nobody_answers",
    "nobody_listens",
]


class TurnOutcome(StrEnum):
    """How a turn ended; every one of them comes with a text."""

    ANSWERED = "answered"
    LIMIT = "limit"
    """The requests were used up; the text says so, or is what the model said last."""
    PARKED = "parked"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens and money of one or more model requests."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    micro_usd: int | None = 0
    """None: at least one of them had no known price."""

    def __add__(self, other: Used) -> Used:
        known = self.micro_usd is not None and other.micro_usd is not None
        return Used(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            (self.micro_usd or 0) + (other.micro_usd or 0) if known else None,
        )


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """One thing that happens in a turn, for whoever watches.

    `text` (a piece of the answer), `retry` (what was shown of this answer is void), `message` (one whole answer),
    `tool_start`, `tool_end`, `approval` (a person is asked), `usage`.
    """

    kind: str
    text: str = ""
    tool: str | None = None
    call_key: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """What came of a turn; the text is always something a person can read."""

    outcome: TurnOutcome
    text: str
    failure: Failure = Failure.NONE
    waiting_for: tuple[str, ...] = ()
    used: Used = field(default_factory=Used)
    requests: int = 0

    @property
    def ok(self) -> bool:
        """Whether the model gave its answer."""
        return self.outcome is TurnOutcome.ANSWERED


ListenFn = Callable[[TurnEvent], Awaitable[None]]
AskFn = Callable[[CallResult, TurnEvent], Awaitable[float]]
"""Somebody must answer first: how many seconds to wait for it now; 0 parks the turn."""


async def nobody_listens(_event: TurnEvent) -> None:
    """Nobody watches."""


async def nobody_answers(_result: CallResult, _event: TurnEvent) -> float:
    """Nobody is there to answer."""
    return 0.0
