"""Tools and calls as words: what a capability declares, what one use of it is, and what came of it. No I/O.

A tool is declared once; every door (REST, WebSocket, MCP, chat, plan, CLI) calls it through the gate. What a call would
touch is said by the tool from the call's own inputs, before anything runs: the gate judges exactly that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from pydantic import BaseModel

from proctor.protocol.events import ActorKind
from proctor.protocol.ids import CallId, new_id
from proctor.protocol.limits import Allowance

__all__ = [
    "MOCK",
    "PARAMETER_ALIASES",
    "REAL",
    "Actor",
    "Call",
    "CallError",
    "CallResult",
    "CallState",
    "Handler",
    "Reaches",
    "Reads",
    "Runs",
    "SideEffect",
    "Tool",
    "Touch",
    "Usage",
    "Writes",
]

REAL = "real"
MOCK = "mock"

# What the seeds call the same parameter; each is taken where the tool has the field on the right.
PARAMETER_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "file_path": "path",
        "dir_path": "path",
        "directory": "path",
        "filename": "path",
        "working_directory": "cwd",
        "working_dir": "cwd",
        "workspace": "workspace_path",
        "table": "table_name",
    }
)


class SideEffect(StrEnum):
    """What a tool does to the world (seed 002's side_effect_class)."""

    READ_ONLY = "read-only"
    PROPOSE = "propose"
    EXECUTE = "execute"


class CallState(StrEnum):
    """Where a call stands; `started` without an end after a crash becomes `interrupted`."""

    REQUESTED = "requested"
    WAITING = "waiting"
    PERMITTED = "permitted"
    STARTED = "started"
    ENDED = "ended"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Reads:
    """The call would read this path (relative: to the workspace)."""

    path: str


@dataclass(frozen=True, slots=True)
class Writes:
    """The call would write this path; with the new content, a person who is asked sees the difference."""

    path: str
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Runs:
    """The call would run this command line in a directory of the workspace."""

    command: str
    cwd: str = "."


@dataclass(frozen=True, slots=True)
class Reaches:
    """The call's command would reach this host of the network: a name, `*.suffix` or address, perhaps with a port."""

    host: str


Touch: TypeAlias = Reads | Writes | Runs | Reaches


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call may use, or has used, besides itself and its time.

    `micro_usd` None means: it costs money and nobody knows how much. That is never free: where money is limited such a
    call is refused. What a flat subscription covers is `plan_micro_usd`, counted apart from money.
    """

    tokens: int = 0
    micro_usd: int | None = 0
    plan_micro_usd: int = 0


@dataclass(frozen=True, slots=True)
class Actor:
    """Who wants the call; the gate treats the three kinds differently (law 8)."""

    kind: ActorKind
    name: str


# (Context, input model) -> output model; `proctor.gate.context.Context` is what it gets.
Handler: TypeAlias = Callable[[Any, Any], Awaitable[BaseModel]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One capability, declared once. Make it with `proctor.tools.registry.declare`, which checks the types."""

    name: str
    summary: str
    input: type[BaseModel]
    output: type[BaseModel]
    domain: str
    side_effect: SideEffect
    handlers: Mapping[str, Handler]
    """By adapter: `real`, `mock` and others; without `mock` nothing can stand in for a missing one."""
    aliases: tuple[str, ...] = ()
    parameter_aliases: Mapping[str, str] = field(default_factory=dict)
    reversible: bool = True
    """Whether `proctor undo` (or nothing at all) takes it back; what is not reversible asks in every profile."""
    touches: Callable[[Any], Sequence[Touch]] | None = None
    """What a call with these inputs would touch; must name every path and command, the gate judges them."""
    explains: Callable[[Any], Sequence[str]] | None = None
    """Further consequences in plain words, for whoever is asked."""
    estimate: Callable[[Any], Usage] | None = None
    """The most a call with these inputs may use; None: no tokens, no money."""
    seconds: float = 300.0
    """The longest a call may take; then it is cancelled."""
    single_use: bool = True
    """Whether its permit opens one door once; a tool that writes several files says False."""
    snapshot: bool | None = None
    """Whether the workspace is saved before the first such call of a run; None: when it writes or runs something."""

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters it has a handler for."""
        return tuple(self.handlers)

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing."""
        return self.side_effect is SideEffect.READ_ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One use of a tool: who, what, where, under which rules. The same idempotency key is the same call."""

    tool: str
    inputs: Mapping[str, Any]
    actor: Actor
    profile: str = "standard"
    workspace: Path | None = None
    trace_id: str = field(default_factory=lambda: new_id("trace"))
    session_id: str | None = None
    task_id: str | None = None
    attempt: int | None = None
    adapter: str = REAL
    reasoning: str = ""
    worktree_of: Path | None = None
    """Set when `workspace` is a worktree made for this work: the user's own workspace, whose settings and policy hold.
    An agent can edit the copies in its worktree, so those never count."""
    idempotency_key: str | None = None
    allowances: tuple[Allowance, ...] = ()
    """Further budgets it must fit into, for instance that of its plan."""
    call_id: CallId = field(default_factory=lambda: CallId(new_id("call")))

    @property
    def rules_from(self) -> Path | None:
        """The directory whose settings and policy hold."""
        return self.worktree_of or self.workspace

    @property
    def run_id(self) -> str:
        """What shares one budget and one snapshot: the session, else the root request."""
        return self.session_id or self.trace_id


@dataclass(frozen=True, slots=True)
class CallError:
    """Why a call gave no output: a stable code and a sentence with the cure."""

    code: str
    message: str
    exit_code: int = 1
    reason: str = ""
    """The finer reason where there is one: `budget_exceeded:domain:command`, a rule of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What came of a call. The gate gives one for every call; it raises only for a request that makes no sense."""

    call_id: str
    tool: str
    trace_id: str
    state: CallState
    output: Mapping[str, Any] | None = None
    error: CallError | None = None
    simulated: bool = False
    notes: tuple[str, ...] = ()
    """What a reader must know: a fallback to mock, a warning of the budget, a weaker sandbox."""
    approval_id: str | None = None
    snapshot_id: str | None = None
    duration_ms: float = 0.0
    replayed: bool = False
    """Whether this is the kept result of an earlier call with the same key."""

    @property
    def ok(self) -> bool:
        """Whether it ran to its end without an error."""
        return self.state is CallState.ENDED and self.error is None

    @property
    def waiting(self) -> bool:
        """Whether a person has to answer first."""
        return self.state is CallState.WAITING
