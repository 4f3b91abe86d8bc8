"""The rows of plans: put in once, claimed by one runner, parked, gone on with, ended; each change with its event.

All functions work inside the caller's transaction and give the events that belong to it. What names an owner changes
nothing when the owner is another by now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from proctor.protocol.errors import NotFoundError, RefusedError, UsageError
from proctor.protocol.events import ActorKind, Draft, EventKind, EventStatus
from proctor.protocol.failures import ErrorPropagation, FailureMode
from proctor.protocol.limits import Limits
from proctor.protocol.plans import ExecutionContext, Plan, PlanStep
from proctor.protocol.states import PLAN, PlanState
from proctor.store.tables import approvals, plan_steps, plans

__all__ = [
    "SUPERVISOR",
    "Decided",
    "PlanConflictError",
    "PlanRow",
    "StepRow",
    "claim",
    "draft",
    "end",
    "find_plan",
    "find_same",
    "give_back",
    "insert_plan",
    "leave_to_supervisor",
    "load",
    "next_try",
    "park",
    "record",
    "reopen",
]

SUPERVISOR: Final = "supervisor"
MAX_TEXT: Final = 4000
MOST_ALIKE: Final = 1000
ENDINGS: Final = {
    PlanState.COMPLETED: ("plan_completed", EventStatus.SUCCESS),
    PlanState.FAILED: ("plan_failed", EventStatus.ERROR),
    PlanState.CANCELLED: ("plan_cancelled", EventStatus.WARNING),
}


class PlanConflictError(RefusedError):
    """Refused: the id {plan_id!r} belongs to another plan. Give the new one an id of its own."""

    code = "plan_conflict"


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step as it stands."""

    index: int
    step: PlanStep
    unregistered: bool
    tries: int
    call_key: str | None
    outcome: str | None
    fallback: bool
    failure_mode: FailureMode | None
    code: str
    reason: str
    error: str
    ended_at: datetime | None

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> StepRow:
        """Read a row."""
        names = (
            "tool",
            "input",
            "name",
            "reason",
            "estimated_cost",
            "estimated_tokens",
            "worker",
            "metadata",
        )
        return cls(
            index=row["step"],
            step=PlanStep(**{name: row[name] for name in names}),
            unregistered=row["unregistered"],
            tries=row["tries"],
            call_key=row["call_key"],
            outcome=row["outcome"],
            fallback=row["fallback"],
            failure_mode=FailureMode(row["failure_mode"]) if row["failure_mode"] else None,
            code=row["code"] or "",
            reason=row["failure_reason"] or "",
            error=row["error"] or "",
            ended_at=row["ended_at"],
        )


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One plan as it stands."""

    plan_id: str
    goal: str
    stage: PlanState
    profile: str
    on_error: ErrorPropagation
    retry: str
    budget: Limits | None
    context: Mapping[str, Any]
    metadata: Mapping[str, Any]
    trace_id: str
    session_id: str | None
    workspace: str | None
    created_by: str
    runner: str
    owner: str | None
    waiting_for: str | None
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    error: str | None

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> PlanRow:
        """Read a row."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        budget = None if row["budget"] is None else Limits(**row["budget"])
        kinds = {"stage": PlanState(row["stage"]), "on_error": ErrorPropagation(row["on_error"])}
        return cls(**{**values, **kinds, "budget": budget})

    @property
    def run_id(self) -> str:
        """What shares one budget and one snapshot: the session, else the root request."""
        return self.session_id or self.trace_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What the plan decided about a step."""

    index: int
    outcome: str
    call_key: str | None
    tries: int
    fallback: bool = False
    failure_mode: FailureMode | None = None
    code: str = ""
    reason: str = ""
    error: str = ""


def draft(
    row: PlanRow,
    event: str,
    status: EventStatus,
    details: Mapping[str, Any],
    *,
    kind: EventKind = EventKind.SYSTEM,
    tool: str | None = None,
    actor: ActorKind = ActorKind.PROCTOR,
    actor_name: str = "",
) -> Draft:
    """An event of this plan."""
    return Draft(
        trace_id=row.trace_id,
        event=event,
        kind=kind,
        status=status,
        actor=actor,
        actor_name=actor_name,
        session_id=row.session_id,
        task_id=row.plan_id,
        tool_name=tool,
        details={"plan_id": row.plan_id, **details},
    )


# ── putting in ────────────────────────────────────────────────────────────────────────────────────────────────────


def insert_plan(
    connection: sa.Connection,
    plan: Plan,
    context: ExecutionContext,
    *,
    unregistered: Sequence[bool],
    workspace: str | None,
    runner: str,
    by: str,
    now: datetime,
) -> tuple[PlanRow, list[Draft]]:
    """Write a plan down once; the same one again is found as it stands, another one of its id is refused."""
    digest = _digest(plan, workspace)
    found = _row(connection, plan.plan_id)
    if found is not None:
        if found["content_hash"] != digest:
            raise PlanConflictError(plan_id=plan.plan_id)
        if runner == SUPERVISOR:
            leave_to_supervisor(connection, plan.plan_id)
        return load(connection, plan.plan_id)[0], []
    values = {
        "plan_id": plan.plan_id,
        "goal": plan.goal,
        "profile": plan.profile,
        "on_error": plan.on_error.value,
        "retry": plan.retry,
        "budget": None if plan.budget is None else _limits(plan.budget),
        "context": _context(context),
        "metadata": dict(plan.metadata),
        "content_hash": digest,
        "trace_id": context.trace_id,
        "session_id": context.session_id,
        "workspace": workspace,
        "created_by": by[:100],
        "runner": runner,
        "created_at": now,
    }
    connection.execute(plans.insert().values(values))
    rows = [_step_values(plan.plan_id, i, step, unregistered[i]) for i, step in enumerate(plan.steps)]
    if rows:
        connection.execute(plan_steps.insert(), rows)
    row, _ = load(connection, plan.plan_id)
    return row, [_created(row, plan, unregistered)]


def leave_to_supervisor(connection: sa.Connection, plan_id: str) -> None:
    """Let the supervisor go on with a plan once nobody else holds it."""
    connection.execute(plans.update().where(plans.c.plan_id == plan_id).values(runner=SUPERVISOR))


def _step_values(plan_id: str, index: int, step: PlanStep, unregistered: bool) -> dict[str, Any]:
    return {
        "plan_id": plan_id,
        "step": index,
        "tool": step.tool,
        "input": dict(step.input),
        "name": step.name,
        "reason": step.reason,
        "estimated_cost": step.estimated_cost,
        "estimated_tokens": step.estimated_tokens,
        "worker": step.worker[:100],
        "metadata": dict(step.metadata),
        "unregistered": unregistered,
    }


def _created(row: PlanRow, plan: Plan, unregistered: Sequence[bool]) -> Draft:
    details: dict[str, Any] = {
        "goal": plan.goal[:500],
        "steps": len(plan.steps),
        "tools": [step.tool for step in plan.steps[:50]],
        "profile": plan.profile,
        "on_error": plan.on_error.value,
        "simulated_steps": sum(unregistered),
        "user_intent": row.context.get("user_intent"),
        "request_id": row.context.get("request_id"),
    }
    if plan.trace_id is not None and plan.trace_id != row.trace_id:
        details["plan_trace_id"] = plan.trace_id
    if not plan.steps:
        details["note"] = "the plan is empty: there is nothing to do"
    return draft(row, "plan_created", EventStatus.SUCCESS, details, kind=EventKind.CANONICAL)


def _digest(plan: Plan, workspace: str | None) -> str:
    steps = [_step_values("", i, step, False) for i, step in enumerate(plan.steps)]
    budget = None if plan.budget is None else _limits(plan.budget)
    whole = [plan.goal, steps, plan.profile, plan.on_error.value, plan.retry, budget, workspace]
    try:
        text = json.dumps(whole, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(message=f"A plan's inputs and metadata must be plain JSON: {error}.") from None
    return hashlib.sha256(text.encode()).hexdigest()


def _limits(limits: Limits) -> dict[str, Any]:
    names = ("calls", "tokens", "micro_usd", "millis", "warn_at")
    tables = {"domains": dict(limits.domains), "tools": dict(limits.tools)}
    return {**{name: getattr(limits, name) for name in names}, **tables}


def _context(context: ExecutionContext) -> dict[str, Any]:
    names = ("request_id", "user_intent", "user_id", "memory_scope", "conversation_id")
    found = {name: getattr(context, name) for name in names}
    return {**{name: value for name, value in found.items() if value is not None}, **dict(context.metadata)}


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _row(connection: sa.Connection, plan_id: str) -> Mapping[str, Any] | None:
    found = connection.execute(plans.select().where(plans.c.plan_id == plan_id)).mappings().first()
    return None if found is None else dict(found)


def find_plan(connection: sa.Connection, name: str) -> str:
    """The id of a plan by its id or a unique beginning of it."""
    if _row(connection, name) is not None:
        return name
    query = sa.select(plans.c.plan_id).where(plans.c.plan_id.startswith(name, autoescape=True)).limit(2)
    found = list(connection.execute(query).scalars()) if name else []
    if len(found) == 1:
        return str(found[0])
    cure = "More than one begins so; give more of it." if found else "`proctor plan list` names them."
    raise NotFoundError(kind="plan", name=name[:80], cure=cure)


def find_same(connection: sa.Connection, plan: Plan, workspace: str | None) -> str | None:
    """The newest plan of the same content, under whatever profile it was run."""
    query = plans.select().where(plans.c.goal == plan.goal, _at(workspace))
    query = query.order_by(plans.c.created_at.desc(), plans.c.plan_id.desc()).limit(MOST_ALIKE)
    for row in connection.execute(query).mappings():
        if row["content_hash"] == _digest(replace(plan, profile=row["profile"]), workspace):
            return str(row["plan_id"])
    return None


def _at(workspace: str | None) -> sa.ColumnElement[bool]:
    return plans.c.workspace.is_(None) if workspace is None else plans.c.workspace == workspace


def load(connection: sa.Connection, plan_id: str) -> tuple[PlanRow, list[StepRow]]:
    """A plan with its steps in order."""
    row = _row(connection, plan_id)
    if row is None:
        raise NotFoundError(kind="plan", name=plan_id[:80], cure="`proctor plan list` names them.")
    query = plan_steps.select().where(plan_steps.c.plan_id == plan_id).order_by(plan_steps.c.step)
    return PlanRow.of(row), [StepRow.of(step) for step in connection.execute(query).mappings()]


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────


def claim(
    connection: sa.Connection, plan_id: str, owner: str, *, instead_of: str | None, now: datetime
) -> tuple[PlanRow | None, list[Draft]]:
    """Take a plan for one runner, from nobody or from an owner that is gone; None when another was quicker."""
    row, _ = load(connection, plan_id)
    if row.stage in PLAN.terminal:
        return None, []
    same = plans.c.owner.is_(None) if instead_of is None else plans.c.owner == instead_of
    values: dict[str, Any] = {"owner": owner, "not_before": None, "waiting_for": None}
    values["stage"] = PlanState.EXECUTING.value
    first = row.started_at is None
    if first:
        values |= {"routed_at": now, "started_at": now}
    taken = connection.execute(plans.update().where(plans.c.plan_id == plan_id, same).values(values))
    if taken.rowcount != 1:
        return None, []
    details: dict[str, Any] = {} if first else {"after": "a death" if instead_of else "a wait"}
    event = "plan_started" if first else "plan_resumed"
    found, _ = load(connection, plan_id)
    # Who parks it again for the same question tells nobody twice.
    return replace(found, waiting_for=row.waiting_for), [draft(row, event, EventStatus.RUNNING, details)]


def record(connection: sa.Connection, row: PlanRow, decided: Decided, now: datetime) -> None:
    """Keep what was decided about a step."""
    connection.execute(
        _step(row, decided.index).values(
            outcome=decided.outcome,
            call_key=decided.call_key,
            tries=decided.tries,
            fallback=decided.fallback,
            failure_mode=decided.failure_mode.value if decided.failure_mode else None,
            code=decided.code[:50] or None,
            failure_reason=decided.reason[:MAX_TEXT] or None,
            error=decided.error[:MAX_TEXT] or None,
            ended_at=now,
        )
    )


def next_try(connection: sa.Connection, row: PlanRow, index: int, tries: int) -> None:
    """Count a try before it begins, so that a restart knows its key."""
    connection.execute(_step(row, index).values(tries=tries))


def _step(row: PlanRow, index: int) -> sa.Update:
    mine = sa.and_(plan_steps.c.plan_id == row.plan_id, plan_steps.c.step == index)
    return plan_steps.update().where(mine)


def _mine(row: PlanRow, owner: str) -> sa.Update:
    return plans.update().where(plans.c.plan_id == row.plan_id, plans.c.owner == owner)


def park(
    connection: sa.Connection, row: PlanRow, owner: str, *, approval_id: str, step: int
) -> tuple[bool, list[Draft]]:
    """Leave a plan until a person has answered; no runner holds it meanwhile."""
    values = {"owner": None, "waiting_for": approval_id}
    if connection.execute(_mine(row, owner).values(values)).rowcount != 1:
        return False, []
    if row.waiting_for == approval_id:
        return True, []
    details = {"approval_id": approval_id, "step": step, "cure": "Answer it in `proctor inbox`."}
    return True, [draft(row, "plan_parked", EventStatus.PENDING, details)]


def give_back(connection: sa.Connection, row: PlanRow, owner: str, *, not_before: datetime | None) -> None:
    """Leave a plan as it is, for whoever comes next."""
    connection.execute(_mine(row, owner).values(owner=None, not_before=not_before))


def end(
    connection: sa.Connection,
    row: PlanRow,
    owner: str,
    stage: PlanState,
    *,
    error: str | None,
    details: Mapping[str, Any],
    now: datetime,
) -> tuple[bool, list[Draft]]:
    """Write a plan's end; False when somebody else holds it by now."""
    PLAN.step(PlanState.EXECUTING, stage)
    values = {
        "stage": stage.value,
        "owner": None,
        "waiting_for": None,
        "completed_at": now,
        "error": None if error is None else error[:MAX_TEXT],
    }
    if connection.execute(_mine(row, owner).values(values)).rowcount != 1:
        return False, []
    skipped = sa.and_(plan_steps.c.plan_id == row.plan_id, plan_steps.c.outcome.is_(None))
    connection.execute(plan_steps.update().where(skipped).values(outcome="skipped"))
    mine = sa.and_(approvals.c.task_id == row.plan_id, approvals.c.status == "pending")
    connection.execute(approvals.update().where(mine).values(status="void"))
    event, status = ENDINGS[stage]
    return True, [draft(row, event, status, details)]


def reopen(connection: sa.Connection, row: PlanRow, *, by: str) -> list[Draft]:
    """Open a failed plan again: what failed or was skipped gets a new try, what completed stays."""
    stage = PLAN.reopen(row.stage)
    again = sa.and_(plan_steps.c.plan_id == row.plan_id, plan_steps.c.outcome != "completed")
    failed = sa.and_(again, plan_steps.c.outcome == "failed")
    connection.execute(plan_steps.update().where(failed).values(tries=plan_steps.c.tries + 1))
    cleared = dict.fromkeys(("outcome", "failure_mode", "code", "failure_reason", "error", "ended_at"))
    connection.execute(plan_steps.update().where(again).values(**cleared, fallback=False))
    values = {"stage": stage.value, "completed_at": None, "error": None, "cancel_requested": False}
    connection.execute(plans.update().where(plans.c.plan_id == row.plan_id).values(values))
    details = {"why": "a person asked for another try"}
    return [draft(row, "plan_resumed", EventStatus.PENDING, details, actor=ActorKind.HUMAN, actor_name=by)]
