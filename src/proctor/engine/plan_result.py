"""What came of a plan, computed from its rows, its calls and its questions: the same after any restart. Reads only.

Nothing is kept as a display: a result is made anew whenever somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from proctor.engine.plan_rows import PlanRow, StepRow, load
from proctor.gate.report import report_of
from proctor.protocol.failures import FailureMode, common_mode
from proctor.protocol.limits import Allowance, Limits
from proctor.protocol.plans import ExecutionResult, PartialResult, StepReport
from proctor.protocol.states import PLAN, PlanState
from proctor.store.tables import approvals, calls

__all__ = ["result_of"]

_EMPTY: Final = "The plan has no steps: there was nothing to do, and nothing was done."
_SIMULATED: Final = "Simulated: {count} of {all} steps ran on the mock adapter; nothing real came of them."
_NOT_KEPT: Final = "Step {index}: its output was too large to be kept."


def result_of(connection: sa.Connection, plan_id: str, *, limits: Limits) -> ExecutionResult:
    """The result as it stands; `limits` are the profile's, shown for what was not used yet."""
    row, steps = load(connection, plan_id)
    reports = _reports(connection, row, steps)
    asked, answered = _questions(connection, row)
    completed = [one for one in reports if one.status == "completed"]
    success = row.stage is PlanState.COMPLETED and len(completed) == len(reports)
    parked = row.waiting_for is not None and row.stage not in PLAN.terminal
    simulated = sum(one.simulated for one in completed)
    return ExecutionResult(
        success=success,
        results=[one.as_result() for one in completed],
        trace_id=row.trace_id,
        partial_results=None if success else _partial(row, reports),
        failure_context=None if success else _context(row, reports),
        budget_utilization=_utilization(connection, row, limits),
        approvals_required=asked,
        approvals_received=answered,
        plan_id=row.plan_id,
        stage=row.stage,
        simulated=simulated > 0,
        parked=parked,
        approval_id=row.waiting_for if parked else None,
        notes=tuple(_notes(reports, simulated)),
        steps=tuple(reports),
    )


def _reports(connection: sa.Connection, row: PlanRow, steps: Sequence[StepRow]) -> list[StepReport]:
    keys = [step.call_key for step in steps if step.call_key is not None]
    found: dict[str, Mapping[str, Any]] = {}
    for start in range(0, len(keys), 500):
        query = calls.select().where(calls.c.idempotency_key.in_(keys[start : start + 500]))
        found |= {one["idempotency_key"]: dict(one) for one in connection.execute(query).mappings()}
    waiting = next((step.index for step in steps if step.outcome is None), None) if row.waiting_for else None
    return [_report(row, step, found.get(step.call_key or "", {}), step.index == waiting) for step in steps]


def _report(row: PlanRow, step: StepRow, call: Mapping[str, Any], waits: bool) -> StepReport:
    return StepReport(
        index=step.index,
        tool=step.step.tool,
        name=step.step.name,
        status=step.outcome or ("waiting" if waits else "pending"),
        adapter=call.get("adapter", ""),
        simulated=bool(call.get("simulated", False)),
        result=call.get("result"),
        code=step.code,
        message=step.error,
        reason=step.reason,
        failure_mode=step.failure_mode,
        tries=step.tries if step.outcome in {"completed", "failed"} else 0,
        fallback=step.fallback,
        call_id=call.get("call_id", ""),
        approval_id=call.get("approval_id") or (row.waiting_for if waits else None),
        duration_ms=call.get("duration_ms") or 0.0,
        ended_at=None if step.ended_at is None else step.ended_at.timestamp(),
    )


def _questions(connection: sa.Connection, row: PlanRow) -> tuple[int, int]:
    """How many questions the plan needed a person for, and how many of them were answered."""
    answered = sa.case((approvals.c.status.in_(["approved", "rejected"]), 1), else_=0)
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(answered), 0))
    # What became void was asked again for another ground: it is the same need.
    real = sa.or_(approvals.c.status != "void", approvals.c.answered_at.is_not(None))
    found = connection.execute(query.where(approvals.c.task_id == row.plan_id, real)).one()
    return int(found[0]), int(found[1])


def _utilization(connection: sa.Connection, row: PlanRow, limits: Limits) -> dict[str, Any]:
    """Of the plan's own budget where it has one, else of its session or root request."""
    if row.budget is not None:
        return report_of(connection, Allowance(row.plan_id, row.budget).node_id, row.budget)
    return report_of(connection, f"session:{row.run_id}", limits)


# ── what did not work ─────────────────────────────────────────────────────────────────────────────────────────────


def _mode(row: PlanRow, reports: Sequence[StepReport]) -> FailureMode:
    if row.stage is PlanState.CANCELLED:
        return FailureMode.USER_CANCELLED
    modes = [one.failure_mode for one in reports if one.failure_mode is not None]
    if modes:
        return common_mode(modes, completed=sum(one.status == "completed" for one in reports))
    return FailureMode.USER_PERMISSION if row.waiting_for is not None else FailureMode.AGENT_STATE


def _partial(row: PlanRow, reports: Sequence[StepReport]) -> PartialResult:
    completed = [one for one in reports if one.status == "completed"]
    failed = [one for one in reports if one.status == "failed"]
    mode = _mode(row, reports)
    stuck = failed[0] if failed else next((one for one in reports if one.status == "waiting"), None)
    return PartialResult(
        completed_steps=[one.tool for one in completed],
        failed_steps=[one.tool for one in failed],
        partial_data={
            "results": [one.as_result() for one in completed],
            "failures": [one.as_failure() for one in failed],
        },
        failure_mode=mode,
        recovery_strategy=_strategy(row, mode, failed),
        step_results={f"{one.index}:{one.label}": one.result for one in completed},
        step_timestamps={f"{one.index}:{one.label}": one.ended_at for one in completed if one.ended_at},
        total_steps=len(reports),
        failure_point=None if stuck is None else f"{stuck.index}:{stuck.label}",
        trace_id=row.trace_id,
    )


def _strategy(row: PlanRow, mode: FailureMode, failed: Sequence[StepReport]) -> str:
    if row.stage is PlanState.FAILED and mode.retryable:
        return "retry_failed"
    went_on = row.stage is PlanState.FAILED and not any(one.failure_mode in _HARD for one in failed)
    return "skip_failed" if went_on and row.on_error.value == "continue" else "manual"


_HARD: Final = frozenset(mode for mode in FailureMode if mode.terminal)


def _context(row: PlanRow, reports: Sequence[StepReport]) -> dict[str, Any] | None:
    """Everything a caller needs to decide what to do next; None while the plan simply has not ended yet."""
    failed = [one for one in reports if one.status == "failed"]
    if row.stage not in PLAN.terminal and not failed and row.waiting_for is None:
        return None
    mode = _mode(row, reports)
    first = failed[0].as_failure() if failed else {}
    waits = row.waiting_for is not None and row.stage not in PLAN.terminal
    resumable = row.stage in {PlanState.FAILED, PlanState.EXECUTING}
    return {
        "kind": "parked" if waits else row.stage.value,
        "failure_mode": mode.value,
        "category": mode.category.value,
        "retryable": mode.retryable,
        "terminal": mode.terminal,
        "severity": mode.severity.value,
        "stage": row.stage.value,
        "step": first.get("index", next((one.index for one in reports if one.status == "waiting"), None)),
        "tool": first.get("tool", next((one.tool for one in reports if one.status == "waiting"), None)),
        "code": first.get("code", "approval_pending" if waits else ""),
        "reason": first.get("reason", ""),
        "message": _message(row, first, waits),
        "failures": [one.as_failure() for one in failed],
        "policy": row.on_error.value,
        "retry_policy": row.retry,
        "resumable": resumable,
        "approval_id": row.waiting_for if waits else None,
        "cure": _cure(row, waits, resumable),
        "trace_id": row.trace_id,
    }


def _message(row: PlanRow, first: Mapping[str, Any], waits: bool) -> str:
    if waits:
        return "A person has to answer first; nothing of this step was done."
    return str(first.get("error") or row.error or "")


def _cure(row: PlanRow, waits: bool, resumable: bool) -> str:
    if waits:
        return f"Answer {row.waiting_for} in `proctor inbox`; the plan then goes on."
    return f"`proctor plan resume {row.plan_id}` tries again what failed." if resumable else ""


def _notes(reports: Sequence[StepReport], simulated: int) -> list[str]:
    notes = [] if reports else [_EMPTY]
    if simulated:
        notes.append(_SIMULATED.format(count=simulated, all=len(reports)))
    lost = [one for one in reports if one.status == "completed" and one.result is None]
    return [*notes, *(_NOT_KEPT.format(index=one.index) for one in lost[:10])]
