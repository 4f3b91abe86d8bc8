"""The seven tests of seed 002, with its fixes: `tool` not `tool_name`, a typed budget, the domain from the metadata."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.compat.house import House
from proctor.compat.orchestrator import (
    AGENTSCoordinator,
    ExecutionContext,
    ExecutionResult,
    Plan,
    PlanningStage,
    PlanStep,
    ToolBudget,
    ToolBudgetEnforcer,
)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A state of the test's own."""
    made = House(tmp_path / "state")
    yield made
    made.close()


def _step(tool: str, effect: str = "read-only", domain: str = "test", **more: Any) -> PlanStep:
    metadata = {"side_effect_class": effect, "domain": domain, **more.pop("metadata", {})}
    return PlanStep(tool=tool, input=more.pop("input", {}), name=tool, reason=tool, metadata=metadata)


def _plan(coordinator: AGENTSCoordinator, *steps: PlanStep) -> Plan:
    return Plan(
        plan_id=str(uuid.uuid4()),
        goal="test",
        steps=list(steps),
        stage=PlanningStage.CREATED,
        budget=ToolBudget(),
        trace_id=coordinator.trace_emitter.trace_id,
    )


def _execute(coordinator: AGENTSCoordinator, plan: Plan) -> ExecutionResult:
    context = ExecutionContext(
        trace_id=coordinator.trace_emitter.trace_id,
        request_id="test-request",
        user_intent="test",
        memory_scope="test/session",
    )
    return asyncio.run(coordinator.execute_plan(plan, context))


def test_coordinator_basic_execution(house: House) -> None:
    """A plan of two steps runs, with its canonical events and its usage."""
    coordinator = AGENTSCoordinator(profile="enterprise", house=house)
    result = _execute(coordinator, _plan(coordinator, _step("test_tool_1"), _step("test_tool_2")))
    assert result.success is True
    assert len(result.results) == 2
    assert result.trace_id == coordinator.trace_emitter.trace_id
    assert result.simulated  # nobody knows these tools: they ran on the mock adapter, and all of it says so
    assert [event["event"] for event in coordinator.get_trace()] == [
        "plan_created",
        *["tool_call_start", "tool_call_complete"] * 2,
    ]
    assert {e["details"]["simulated"] for e in coordinator.get_trace() if e["tool_name"]} == {True}
    total = coordinator.get_budget_utilization()["total"]
    assert (total["used"], total["limit"]) == (2, 200)


@pytest.mark.slow
def test_coordinator_budget_enforcement(house: House) -> None:
    """A hundred calls and not one more; what was done is kept, and the trace says why it ended."""
    coordinator = AGENTSCoordinator(profile="smb", house=house)
    result = _execute(coordinator, _plan(coordinator, *[_step(f"tool_{i}") for i in range(150)]))
    assert result.success is False
    assert len(result.results) == 100
    assert result.partial_results is not None
    assert len(result.partial_results.completed_steps) == 100
    assert result.failure_context is not None
    assert result.failure_context["failure_mode"] == "policy_budget"
    names = [event["event"] for event in coordinator.get_trace()]
    assert names.count("budget_exceeded") == 1
    at_80 = [
        e for e in coordinator.get_trace() if e["event"] == "budget_warning" and e["details"].get("used")
    ]
    assert [event["details"]["used"] for event in at_80] == [80]
    assert coordinator.get_budget_utilization()["total"]["percentage"] == 100.0


def test_coordinator_approval_required(house: House) -> None:
    """An execution asks and is not run; after the yes the same plan goes on and finishes."""
    coordinator = AGENTSCoordinator(profile="enterprise", house=house)
    step = _step("send_email", "execute", "engagement", input={"to": "prospect@company.example"})
    plan = _plan(coordinator, step)
    result = _execute(coordinator, plan)
    assert (result.success, result.parked) == (False, True)
    assert result.approvals_required == 1
    assert result.approvals_received == 0
    names = [event["event"] for event in coordinator.get_trace()]
    assert names == ["plan_created", "approval_requested"]
    (asked,) = coordinator.approval_manager.list_pending()
    assert (asked.tool_name, asked.risk_level) == ("send_email", "high")
    assert coordinator.approval_manager.approve(asked.approval_id)
    done = _execute(coordinator, plan)
    assert done.success
    assert (done.approvals_required, done.approvals_received) == (1, 1)


def test_coordinator_profile_driven_budgets(house: House) -> None:
    """Each profile has its own budget, as a typed one."""
    for profile, limit in {"enterprise": 200, "smb": 100, "technical": 500}.items():
        coordinator = AGENTSCoordinator(profile=profile, house=house)
        assert isinstance(coordinator.budget_enforcer.budget, ToolBudgetEnforcer)
        assert coordinator.get_budget_utilization()["total"] == {"used": 0, "limit": limit, "percentage": 0.0}


def test_coordinator_graceful_degradation(house: House) -> None:
    """A tool that fails costs its own step; the others' results are there, and the failure is described."""
    coordinator = AGENTSCoordinator(profile="technical", house=house)
    broken = PlanStep(
        tool="read_file", input={"path": "x"}, metadata={"domain": "filesystem"}
    )  # no workspace
    result = _execute(coordinator, _plan(coordinator, _step("test_tool_1"), broken, _step("test_tool_2")))
    assert result.success is False
    assert [one["tool"] for one in result.results] == ["test_tool_1", "test_tool_2"]
    assert result.partial_results is not None
    assert result.partial_results.failed_steps == ["read_file"]
    assert result.failure_context is not None
    assert result.failure_context["category"] == "USER"
    assert "tool_call_error" in [event["event"] for event in coordinator.get_trace()]


def test_coordinator_golden_signals(house: House) -> None:
    """Rates within 0 and 1, and a latency that was really measured."""
    coordinator = AGENTSCoordinator(profile="enterprise", house=house)
    _execute(coordinator, _plan(coordinator, _step("test_tool")))
    signals = coordinator.get_golden_signals()
    assert signals["success_rate"] == 1.0
    assert signals["error_rate"] == signals["tool_error_rate"] == 0.0
    assert signals["latency"]["p50"] > 0
    assert signals["total_events"] >= 3


def test_coordinator_trace_continuity(house: House) -> None:
    """Three plans, one trace; the budget is one too."""
    coordinator = AGENTSCoordinator(profile="enterprise", house=house)
    original = coordinator.trace_emitter.trace_id
    for number in range(3):
        assert _execute(coordinator, _plan(coordinator, _step(f"tool_{number}"))).trace_id == original
    assert {event["trace_id"] for event in coordinator.get_trace()} == {original}
    assert coordinator.get_budget_utilization()["total"]["used"] == 3
