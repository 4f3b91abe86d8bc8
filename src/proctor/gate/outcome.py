"""What the gate says of a call: events, errors and results, and the small values it works with. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from proctor.gate.calls import Entry
from proctor.gate.consequences import Consequences
from proctor.gate.context import Confined, Meter
from proctor.gate.leases import Held, Passed, Wish
from proctor.gate.limits import Limits, Node
from proctor.gate.profiles import limits_of_settings
from proctor.gate.verdict import Ask, Deny
from proctor.protocol.errors import ProctorError, RefusedError
from proctor.protocol.events import ActorKind, Draft, EventStatus
from proctor.protocol.permits import Permit
from proctor.protocol.tools import Call, CallError, CallResult, CallState, Usage

__all__ = [
    "SHORT",
    "AnswerChangedError",
    "CallRefusedError",
    "Opened",
    "bound_to",
    "denial",
    "end_draft",
    "error_of",
    "estimate_of",
    "failure",
    "lines",
    "path_of",
    "shown_inputs",
    "start_draft",
    "too_late",
    "unrecorded",
    "waiting",
    "warning_text",
    "wish_of",
]

SHORT: Final = 2000


class AnswerChangedError(RefusedError):
    """Refused: the answer {approval_id} does not hold any more. Ask again."""

    code = "approval_void"


class CallRefusedError(RefusedError):
    """Refused: {message}"""

    code = "call_refused"

    def __init__(self, result: CallResult) -> None:
        self.result = result
        asked = f"it waits for an answer ({result.approval_id}); see `proctor inbox`."
        message = asked if result.waiting else result.error.message if result.error else "it was done before."
        super().__init__(message=message.removeprefix("Refused: "))


@dataclass(slots=True)
class Opened:
    """A call that has begun; whoever opened it acts with its permit and says what was used."""

    entry: Entry
    call_id: str
    permit: Permit
    held: Held
    seconds: float
    began: float
    approval_id: str | None
    snapshot_id: str | None
    notes: tuple[str, ...]
    confined: Confined
    meter: Meter = field(default_factory=Meter)
    output: dict[str, Any] | None = None
    error: CallError | None = None


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────


def estimate_of(entry: Entry) -> Usage:
    """The most the call may use, by its tool's own word."""
    return entry.tool.estimate(entry.inputs) if entry.tool.estimate is not None else Usage()


def wish_of(entry: Entry) -> Wish:
    """What the call asks of the budget."""
    return Wish(entry.tool.domain, entry.tool.name, estimate_of(entry), round(entry.tool.seconds * 1000))


def path_of(entry: Entry, now: datetime) -> list[Node]:
    """Where in the budget tree the call counts, from the top."""
    call, profile, settings = entry.call, entry.profile, entry.settings
    path = [
        Node(f"profile:{profile.name}:{now.date()}", "profile", profile.ceiling),
        Node(f"session:{call.run_id}", "session", entry.ground.limits),
    ]
    if call.task_id is not None:
        agent = settings.agents.get(call.actor.name) if call.actor.kind is ActorKind.AGENT else None
        own = limits_of_settings(agent.limits) if agent is not None else Limits()
        path.append(Node(f"task:{call.task_id}", "task", own))
    return [*path, *(Node(one.node_id, "task", one.limits) for one in call.allowances)]


def bound_to(entry: Entry, ask: Ask, shown: Consequences) -> str:
    """What an answer is bound to: the act, the ground it was shown on, and why it was asked."""
    text = "\0".join((entry.content_hash, shown.digest, ask.code))
    return hashlib.sha256(text.encode()).hexdigest()


def shown_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs as rows and events carry them: long texts are cut, and say so."""
    return {name: _cut(value) for name, value in inputs.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > SHORT:
        return f"{value[:SHORT]}… ({len(value)} characters)"
    return value


# ── errors and results ────────────────────────────────────────────────────────────────────────────────────────────


def error_of(error: ProctorError, reason: str = "") -> CallError:
    """One of our own errors as a call's."""
    return CallError(error.code, str(error), error.exit_code, reason)


def denial(deny: Deny) -> CallError:
    """A verdict against the call."""
    return CallError(deny.code, f"Refused: {deny.reason}. {deny.cure}", RefusedError.exit_code, deny.rule)


def failure(error: BaseException) -> CallError:
    """What a handler raised: ours with its sentence, anything else as a defect."""
    if isinstance(error, ProctorError):
        return error_of(error)
    first = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, Exception):
        return CallError("defect", f"The tool failed: {type(error).__name__}: {first}"[:SHORT])
    return CallError("cancelled", "It was cancelled while it ran.", 130)


def too_late(seconds: float) -> CallError:
    """The call took longer than it may."""
    return CallError("timed_out", f"It took longer than {seconds:g} s and was ended.", 1)


def unrecorded(call: Call, tool: str, error: CallError) -> CallResult:
    """A refusal that leaves the call's row, if there is one, as it is."""
    return CallResult(
        call_id=call.call_id, tool=tool, trace_id=call.trace_id, state=CallState.ENDED, error=error
    )


def waiting(entry: Entry, approval_id: str, reason: str) -> CallResult:
    """A person has to answer first."""
    return CallResult(
        call_id=entry.call.call_id,
        tool=entry.tool.name,
        trace_id=entry.call.trace_id,
        state=CallState.WAITING,
        error=CallError(
            "approval_pending", f"A person has to answer first: {reason}. See `proctor inbox`.", 3
        ),
        simulated=entry.binding.simulated,
        notes=entry.binding.notes,
        approval_id=approval_id,
    )


def warning_text(passed: Passed) -> str:
    """A line of the budget that was reached, for the one who called."""
    facts = passed.details()
    return f"Budget: {facts['used']} of {facts['limit']} used ({facts['scope']}, {facts['percentage']} %)."


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────


def start_draft(entry: Entry, call_id: str, approval_id: str | None) -> Draft:
    """The call begins."""
    details: dict[str, Any] = {
        "inputs": entry.shown,
        "domain": entry.tool.domain,
        "side_effect": entry.tool.side_effect.value,
        "profile": entry.profile.name,
        "adapter": entry.binding.adapter,
        "simulated": entry.binding.simulated,
    }
    if approval_id is not None:
        details["approval_id"] = approval_id
    if entry.binding.notes:
        details["notes"] = list(entry.binding.notes)
    return entry.draft("tool_call_start", EventStatus.RUNNING, details, call_id=call_id)


def end_draft(opened: Opened, output: Mapping[str, Any] | None, duration_ms: float, used: Usage) -> Draft:
    """The call has ended, well or not."""
    error = opened.error
    details: dict[str, Any] = {"simulated": opened.entry.binding.simulated}
    if opened.snapshot_id is not None:
        details["snapshot_id"] = opened.snapshot_id
    if used.tokens or used.micro_usd != 0 or used.plan_micro_usd:
        details |= {"tokens": used.tokens, "micro_usd": used.micro_usd, "plan_micro_usd": used.plan_micro_usd}
    if error is not None:
        details |= {"code": error.code, "error": error.message}
    else:
        details["output"] = shown_inputs(output or {})
    event = "tool_call_complete" if error is None else "tool_call_error"
    status = EventStatus.SUCCESS if error is None else EventStatus.ERROR
    return opened.entry.draft(event, status, details, duration_ms=duration_ms, call_id=opened.call_id)


def lines(entry: Entry, reached: Sequence[Passed]) -> list[Draft]:
    """Budget lines that a call has reached or overrun."""
    drafts = []
    for one in reached:
        event, status = (
            ("budget_exceeded", EventStatus.ERROR) if one.over else ("budget_warning", EventStatus.WARNING)
        )
        details = {**one.details(), **({"reason": one.reason} if one.over else {})}
        drafts.append(entry.draft(event, status, details))
    return drafts
