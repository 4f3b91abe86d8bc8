"""The driver port: what every agent looks like to the engine, whatever program or API is behind it.

Use: `async with driver.launch(request) as run:` write down `run.identity` and `run.native_id`, then read
`run.events()` until they end, then ask `run.end()`. Nothing of the agent runs before the events (or the end)
are first asked for, so what the caller has written down is on disk before the first effect. Leaving the
block, also by cancellation, kills the whole process tree. The end is the agent's claim checked against its
exit code; the caller still looks at git.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from proctor.agents.identity import ProcessIdentity
from proctor.protocol.errors import ProctorError
from proctor.protocol.events import ActorKind, Draft, EventKind, EventStatus

__all__ = [
    "AgentEvent",
    "Answer",
    "AttemptEnd",
    "AttemptRequest",
    "Capabilities",
    "Delegation",
    "Driver",
    "EventFn",
    "Failure",
    "Limits",
    "NotSupportedError",
    "Outcome",
    "Run",
    "Usage",
    "run_attempt",
]

MIB = 1024 * 1024


class NotSupportedError(ProctorError):
    """The agent driver {driver!r} cannot {action}. `proctor agents show` lists what each agent can do."""

    code = "not_supported"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class Failure(StrEnum):
    """Why an attempt did not succeed, as a class the recovery can act on."""

    NONE = ""
    LAUNCH = "launch"
    AUTH = "auth"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    OVERLOADED = "overloaded"
    NETWORK = "network"
    CONTEXT = "context"
    MODEL = "model"
    DIRECTORY = "directory"
    LIMIT = "limit"
    SILENT = "silent"
    DEADLINE = "deadline"
    NO_RESULT = "no_result"
    CRASHED = "crashed"
    AGENT = "agent"

    @property
    def retryable(self) -> bool:
        """Whether the same attempt may succeed later without anybody changing anything."""
        return self in _RETRYABLE


_RETRYABLE = frozenset(
    {
        Failure.RATE_LIMIT,
        Failure.OVERLOADED,
        Failure.NETWORK,
        Failure.SILENT,
        Failure.NO_RESULT,
        Failure.CRASHED,
        Failure.AGENT,
    }
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a driver can do, as data: callers ask this and never the driver's name."""

    resumes: bool = False
    """An ended or killed attempt can go on by its native id."""
    gated: bool = False
    """Modifying calls ask before they run; `answer` is meaningful."""
    streams: bool = True
    """Events come while the agent works, not only at its end."""
    sends: bool = False
    """`send` reaches the agent while it works."""
    interrupts: bool = False
    """`interrupt` stops the turn politely; otherwise it ends the process."""
    reports_tokens: bool = False
    reports_cost: bool = False
    preset_native_id: bool = False
    """The native id is known before the launch."""
    simulated: bool = False
    """Nothing it says or does counts as real work."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one attempt may use; all are enforced by the driver itself."""

    timeout_s: float = 3600.0
    silence_s: float = 600.0
    """Longest time without a useful event; retry notices are not useful."""
    line_bytes: int = 16 * MIB
    output_bytes: int = 1024 * MIB
    grace_s: float = 5.0
    """From the polite signal to the kill."""
    memory_mb: int | None = None
    """Of the agent with its whole tree; more kills it."""
    cpu_percent: int | None = None
    """Of the whole tree, which is held back to it; 100 is one core."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money as the agent reports them; None where it does not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cost_usd: float | None = None
    cumulative: bool = False
    """The numbers count the whole native conversation, not only this attempt."""

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def since(self, earlier: Usage) -> Usage:
        """What this attempt alone used, given what the same native conversation had used before."""
        if not self.cumulative:
            return self
        cost = None if self.cost_usd is None else max(0.0, self.cost_usd - (earlier.cost_usd or 0.0))
        return Usage(
            input_tokens=max(0, self.input_tokens - earlier.input_tokens),
            output_tokens=max(0, self.output_tokens - earlier.output_tokens),
            cached_input_tokens=max(0, self.cached_input_tokens - earlier.cached_input_tokens),
            cost_usd=cost,
        )

    def as_details(self) -> dict[str, Any]:
        """For the details of an event."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_input_tokens": self.cached_input_tokens,
            "cost_usd": self.cost_usd,
            "cumulative": self.cumulative,
        }


@dataclass(frozen=True, slots=True)
class Delegation:
    """An agent's wish to hand work on; the engine decides and makes the task."""

    agent: str
    description: str
    guidance: str = ""


@dataclass(frozen=True, slots=True)
class AttemptRequest:
    """Everything one attempt needs; the same request with `resume` set goes on where the last one stopped."""

    task_id: str
    attempt: int
    prompt: str
    worktree: Path
    tmp: Path
    """A directory of this attempt alone: TMPDIR of the agent, removed by the caller afterwards."""
    state: Path
    """A directory that outlives the attempts of one task, outside the worktree."""
    model: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment of the agent; nothing is inherited."""
    resume: str | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """One thing an agent did or said, in our words; `event` is one of the worker set of protocol/events."""

    event: str
    text: str = ""
    status: EventStatus = EventStatus.SUCCESS
    tool_name: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    useful: bool = True
    """Counts as progress for the watchdog; retry notices and keep-alives do not."""

    def draft(
        self,
        trace_id: str,
        *,
        agent: str,
        task_id: str,
        attempt: int,
        session_id: str | None = None,
        simulated: bool = False,
    ) -> Draft:
        """Make the event the trace stores."""
        details = {
            **self.details,
            **({"text": self.text} if self.text else {}),
            **({"simulated": True} if simulated else {}),
        }
        return Draft(
            trace_id=trace_id,
            event=self.event,
            kind=EventKind.WORKER,
            status=self.status,
            actor=ActorKind.AGENT,
            actor_name=agent,
            session_id=session_id,
            task_id=task_id,
            attempt=attempt,
            tool_name=self.tool_name,
            details=details,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What the gate says to one permission request."""

    allow: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How the attempt ended. SUCCEEDED means: its terminal event says so and its exit code agrees."""

    outcome: Outcome
    reason: str
    failure: Failure = Failure.NONE
    native_id: str | None = None
    usage: Usage = field(default_factory=Usage)
    exit_code: int | None = None
    final_text: str = ""
    delegations: tuple[Delegation, ...] = ()
    left: int = 0
    """Processes that could not be killed; anything but 0 wants a human."""
    simulated: bool = False

    @property
    def retryable(self) -> bool:
        """Whether trying again, after a pause, makes sense without a human."""
        return self.outcome is not Outcome.CANCELLED and (
            self.outcome is Outcome.INTERRUPTED or self.failure.retryable
        )


class Run(Protocol):
    """One running attempt."""

    @property
    def identity(self) -> ProcessIdentity | None:
        """Who to look for after a crash; None for drivers without a process. Known at once."""
        ...

    @property
    def native_id(self) -> str | None:
        """The agent's own conversation id, as soon as it is known."""
        ...

    def events(self) -> AsyncIterator[AgentEvent]:
        """Release the agent and give its events, in order, until it has ended. One reader."""
        ...

    async def answer(self, request_id: str, answer: Answer) -> None:
        """Answer a permission request (`permission_blocker` with details.request_id)."""
        ...

    async def send(self, text: str) -> None:
        """Say something to the agent while it works."""
        ...

    async def interrupt(self) -> None:
        """Stop the turn, politely first; the end will say INTERRUPTED and can be resumed."""
        ...

    async def cancel(self) -> None:
        """Stop for good: polite signal, grace, kill of the tree; the end will say CANCELLED."""
        ...

    async def end(self) -> AttemptEnd:
        """Wait for the end and classify it; drops events nobody has read."""
        ...


class Driver(Protocol):
    """One kind of agent."""

    @property
    def name(self) -> str:
        """The driver's name as configured."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def launch(self, request: AttemptRequest) -> AbstractAsyncContextManager[Run]:
        """Prepare a run: released by its first reader, gone with its whole tree when the block is left."""
        ...


EventFn = Callable[[AgentEvent], Awaitable[None]]
StartFn = Callable[[Run], Awaitable[None]]


async def run_attempt(
    driver: Driver, request: AttemptRequest, sink: EventFn, started: StartFn | None = None
) -> AttemptEnd:
    """Run one attempt to its end; `started` sees the run first and writes its identity down."""
    async with driver.launch(request) as run:
        if started is not None:
            await started(run)
        async for event in run.events():
            await sink(event)
        return await run.end()
