"""The façades of seed 002: names, signatures, and none of the origins' bugs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from proctor.compat import orchestrator
from proctor.compat.house import House, shared_house
from proctor.compat.orchestrator import (
    AGENTSCoordinator,
    ApprovalManager,
    BudgetEnforcer,
    ExecutionContext,
    Plan,
    PlanningStage,
    PlanStep,
    ProfileLoader,
    ToolBudget,
    ToolBudgetEnforcer,
    TraceEmitter,
)
from proctor.gate.humans import NotHumanError
from proctor.gate.leases import BudgetExceededError
from proctor.protocol.errors import ConfigError

NINE = {
    "TraceEmitter",
    "ToolBudgetEnforcer",
    "BudgetEnforcer",
    "ApprovalRequestAGENTS",
    "ApprovalManager",
    "ProfileConfig",
    "ProfileLoader",
    "AGENTSCoordinator",
    "ExecutionResult",
}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A state of the test's own."""
    made = House(tmp_path / "state")
    yield made
    made.close()


def test_coordinators_of_equal_profiles_share_what_they_open(house: House) -> None:
    """A program that makes one for every request opens its database once."""
    loose, strict = ({"gold": {"base": "smb", "limits": {"calls": calls}}} for calls in (9, 1))
    assert house.app_with(dict(loose)) is house.app_with(dict(loose))
    assert house.app_with(strict) is not house.app_with(loose)
    assert house.app_with({}) is house.app


@pytest.fixture
def emitter(house: House) -> TraceEmitter:
    """A trace in that state."""
    return TraceEmitter(house=house)


def test_all_nine_exports_are_there() -> None:
    """And what a user of them needs beside them."""
    assert set(orchestrator.__all__) >= NINE | {
        "Plan",
        "PlanStep",
        "ToolBudget",
        "ExecutionContext",
        "PlanningStage",
    }


def test_bare_names_import_with_the_path_that_the_command_prints() -> None:
    """`cuga.orchestrator` and its modules, in a process of their own."""
    printed = subprocess.run(
        [sys.executable, "-m", "proctor", "compat", "path"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code = (
        "import cuga.orchestrator as o; from cuga.orchestrator.budget_enforcer import ToolBudget\n"
        "from cuga.orchestrator import coordinator, approval_manager, profile_loader, trace_emitter\n"
        "assert o.ToolBudgetEnforcer is ToolBudget and o.ToolBudget is not ToolBudget\n"
        f"print(sorted(set({sorted(NINE)}) - set(o.__all__)))"
    )
    environment = {"PYTHONPATH": printed.stdout.strip(), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.stdout == "[]\n", done.stderr


def test_step_takes_tool_and_not_tool_name() -> None:
    """The seed's first fix; the domain stands in the metadata."""
    with pytest.raises(TypeError, match="tool_name"):
        PlanStep(tool_name="x")  # type: ignore[call-arg]
    assert PlanStep(tool="x").ours().domain == "unknown"


def test_non_canonical_event_is_a_value_error(emitter: TraceEmitter) -> None:
    """Only the ten; and an unknown status is one too."""
    with pytest.raises(ValueError, match="Non-canonical event"):
        emitter.emit("custom_event", {})
    with pytest.raises(ValueError, match="great"):
        emitter.emit("plan_created", {}, status="great")
    assert emitter.get_trace() == []


def test_events_are_kept_and_without_secrets(emitter: TraceEmitter, house: House) -> None:
    """What was emitted is found by another emitter of the trace, redacted."""
    emitter.emit("plan_created", {"mail": "jane.doe@company.example", "steps": 1}, status="success")
    (event,) = TraceEmitter(emitter.trace_id, house=house).get_trace()
    assert event["trace_id"] == emitter.trace_id
    assert event["details"]["steps"] == 1
    assert "jane.doe@company.example" not in str(event)


def test_eighth_of_ten_warns_once_and_the_eleventh_is_refused(emitter: TraceEmitter) -> None:
    """The current call counts; all three tiers warn; the reason names the tier."""
    budget = ToolBudgetEnforcer(total_calls=10, calls_per_domain={"d": 9}, calls_per_tool={"t": 5})
    enforcer = BudgetEnforcer(budget=budget, trace_emitter=emitter)
    for number in range(10):
        tool, domain = ("t" if number < 5 else "u"), ("d" if number < 9 else "e")
        assert enforcer.check_budget(tool_name=tool, domain=domain) == (True, None)
        enforcer.record_usage(tool, domain)
    warnings = [e["details"] for e in emitter.get_trace() if e["event"] == "budget_warning"]
    assert [(one["scope"], one["used"]) for one in warnings] == [("tool:t", 4), ("total", 8), ("domain:d", 8)]
    assert enforcer.check_budget("u", "e") == (False, "budget_exceeded:total")
    assert enforcer.get_utilization()["by_tool"]["t"] == {"used": 5, "limit": 5, "percentage": 100.0}
    assert enforcer.usage["total"] == 10


def test_limit_of_zero_allows_nothing_and_divides_by_nothing(emitter: TraceEmitter) -> None:
    """Zero is a limit; in all there must be at least one."""
    enforcer = BudgetEnforcer(budget=ToolBudgetEnforcer(calls_per_domain={"d": 0}), trace_emitter=emitter)
    assert enforcer.check_budget("t", "d") == (False, "budget_exceeded:domain:d")
    assert enforcer.get_utilization()["by_domain"]["d"] == {"used": 0, "limit": 0, "percentage": 100.0}
    with pytest.raises(ValueError, match="positive"):
        ToolBudgetEnforcer(total_calls=0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        ToolBudgetEnforcer(warning_threshold=1.0)


def test_many_threads_never_pass_a_limit(emitter: TraceEmitter) -> None:
    """Check and record may interleave; what is counted is exact."""
    enforcer = BudgetEnforcer(budget=ToolBudgetEnforcer(total_calls=10), trace_emitter=emitter)
    refused: list[BudgetExceededError] = []

    def work() -> None:
        for _ in range(5):
            try:
                enforcer.record_usage("t", "d")
            except BudgetExceededError as error:
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert enforcer.usage["total"] == 10
    assert len(refused) == 10


def test_profiles_are_copies_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    """Who changes one changes nobody else's; a directory of YAML adds to them."""
    loader = ProfileLoader()
    loader.load_profile("enterprise").budget["total_calls"] = 1
    loader.profiles["smb"].allowed_adapters.append("evil")
    ProfileLoader.DEFAULT_PROFILES["technical"].allowed_adapters.append("evil")
    fresh = ProfileLoader()
    assert fresh.get_budget("enterprise")["total_calls"] == 200
    assert not fresh.is_adapter_allowed("smb", "evil")
    assert fresh.load_profile("technical").allowed_adapters == ["mock"]
    with pytest.raises(ValueError, match="no profile 'gold'"):
        fresh.load_profile("gold")
    assert fresh.requires_approval("gold", "read-only")
    assert not fresh.is_adapter_allowed("gold", "salesforce")
    assert fresh.is_adapter_allowed("gold", "mock")
    assert [fresh.requires_approval("smb", one) for one in ("read-only", "propose", "execute")] == [
        False,
        False,
        True,
    ]


def test_profile_from_yaml_rules_a_coordinator(house: House, tmp_path: Path) -> None:
    """Its budget and its questions are the gate's; a broken file is named."""
    place = tmp_path / "profiles"
    place.mkdir()
    (place / "gold.yaml").write_text(
        "name: gold\nbudget: {total_calls: 2}\napproval_required: [propose]\n"
        "allowed_adapters: [mock]\nguardrails: strict\n"
    )
    coordinator = AGENTSCoordinator(
        profile="gold", house=house, profile_loader=ProfileLoader(config_dir=place)
    )
    steps = [PlanStep(tool=f"t{n}") for n in range(3)]
    result = asyncio.run(coordinator.execute_plan(Plan(plan_id="p1", goal="g", steps=steps)))
    assert len(result.results) == 2
    asks = [PlanStep(tool="t", metadata={"side_effect_class": "propose"})]
    assert coordinator.get_budget_utilization()["total"]["limit"] == 2
    other = AGENTSCoordinator(profile="gold", house=house, profile_loader=ProfileLoader(config_dir=place))
    assert asyncio.run(other.execute_plan(Plan(plan_id="p2", goal="g", steps=asks))).parked
    (place / "bad.yaml").write_text("name: [")
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        ProfileLoader(config_dir=place)


def test_budget_that_is_made_smaller_holds_at_once(house: House) -> None:
    """Who changes the coordinator's budget changes what the gate allows, counting what was used before."""
    coordinator = AGENTSCoordinator(profile="technical", house=house)
    steps = [PlanStep(tool="t", name=str(n)) for n in range(3)]
    assert asyncio.run(coordinator.execute_plan(Plan(plan_id="p1", goal="g", steps=steps))).success
    coordinator.budget_enforcer.budget.total_calls = 4
    result = asyncio.run(coordinator.execute_plan(Plan(plan_id="p2", goal="g", steps=steps)))
    assert len(result.results) == 1
    assert result.budget_utilization["total"] == {"used": 4, "limit": 4, "percentage": 100.0}


def test_plan_that_blocks_at_its_own_ceiling(house: House) -> None:
    """Policy `block` ends, `warn` only tells."""
    steps = [PlanStep(tool="t", name=str(n)) for n in range(3)]
    coordinator = AGENTSCoordinator(profile="technical", house=house)
    block = Plan(plan_id="p1", goal="g", steps=steps, budget=ToolBudget(call_ceiling=2, policy="block"))
    warn = Plan(plan_id="p2", goal="g", steps=steps, budget=ToolBudget(call_ceiling=2))
    assert len(asyncio.run(coordinator.execute_plan(block)).results) == 2
    assert asyncio.run(coordinator.execute_plan(warn)).success
    told = [e["details"] for e in coordinator.get_trace() if e["event"] == "budget_warning"]
    assert [one["plan_id"] for one in told if one.get("scope") == "plan"] == ["p2"]


def test_questions_are_durable_and_answered_once(emitter: TraceEmitter, house: House) -> None:
    """Another manager of the trace finds them; risk and consequences come from what would be done."""
    manager = ApprovalManager(trace_emitter=emitter)
    name = manager.request_approval(
        "Send it", "send_email", {"to": "a@b.example"}, "lead", "execute", profile="enterprise"
    )
    other = ApprovalManager(trace_emitter=TraceEmitter(emitter.trace_id, house=house))
    (asked,) = other.list_pending(profile="enterprise")
    assert (asked.approval_id, asked.risk_level, asked.status) == (name, "high", "pending")
    assert any("leave for people outside" in line for line in asked.consequences)
    assert other.list_pending(profile="smb") == []
    assert other.reject(name, reason="no")
    assert not manager.approve(name)
    found = manager.get_approval(name)
    assert found is not None
    assert found.status == "rejected"
    assert [e["event"] for e in emitter.get_trace()] == ["approval_requested", "approval_received"]
    assert manager.get_approval("nobody") is None


def test_question_expires_after_its_time(emitter: TraceEmitter) -> None:
    """24 hours; who shortens the time of the question they hold sees it expire, with its event."""
    manager = ApprovalManager(trace_emitter=emitter)
    name = manager.request_approval("a", "t", {}, "r", "propose")
    asked = manager.pending_approvals[name]
    life = datetime.fromisoformat(asked.expires_at) - datetime.fromisoformat(asked.requested_at)
    assert life == timedelta(hours=24)
    asked.expires_at = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    found = manager.get_approval(name)
    assert found is not None
    assert found.status == "timeout"
    assert not manager.approve(name)
    assert emitter.get_trace()[-1]["event"] == "approval_timeout"


def test_agent_cannot_answer(emitter: TraceEmitter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that Proctor started for an agent is no person."""
    manager = ApprovalManager(trace_emitter=emitter)
    name = manager.request_approval("a", "t", {}, "r", "execute")
    monkeypatch.setenv("PROCTOR_RUN", "1")
    with pytest.raises(NotHumanError):
        manager.approve(name)


def test_coordinator_with_somebody_to_answer_waits_for_them(house: House) -> None:
    """With `approval_wait` one call of execute_plan asks, hears the yes, runs the step and succeeds."""
    coordinator = AGENTSCoordinator(profile="enterprise", house=house, approval_wait=60)
    step = PlanStep(tool="send_email", metadata={"side_effect_class": "execute"})

    def say_yes() -> None:
        while not (asked := coordinator.approval_manager.list_pending()):
            threading.Event().wait(0.05)
        assert coordinator.approval_manager.approve(asked[0].approval_id)

    answering = threading.Thread(target=say_yes)
    answering.start()
    result = asyncio.run(coordinator.execute_plan(Plan(plan_id="p", goal="g", steps=[step])))
    answering.join(30)
    assert result.success
    assert (result.approvals_required, result.approvals_received) == (1, 1)
    names = [event["event"] for event in coordinator.get_trace()]
    assert names.index("approval_received") < names.index("tool_call_start")


def test_transitions_of_a_plan_are_the_machines() -> None:
    """An unlawful step is a ValueError that says so."""
    plan = Plan(plan_id="p", goal="g", steps=[])
    routed = plan.transition_to(PlanningStage.ROUTED)
    assert routed.routed_at is not None
    assert plan.stage is PlanningStage.CREATED
    with pytest.raises(ValueError, match="Invalid transition"):
        plan.transition_to(PlanningStage.COMPLETED)
    done = routed.transition_to(PlanningStage.EXECUTING).transition_to(PlanningStage.COMPLETED)
    with pytest.raises(ValueError, match="Invalid transition"):
        done.transition_to(PlanningStage.FAILED)


def test_context_keeps_its_trace_and_is_honoured(house: House) -> None:
    """Copies keep it; a plan runs in the context's trace, and the coordinator's own trace finds it."""
    context = ExecutionContext(trace_id="trace-of-mine", memory_scope="s").with_user_intent("i")
    coordinator = AGENTSCoordinator(profile="technical", house=house)
    result = asyncio.run(
        coordinator.execute_plan(Plan(plan_id="p", goal="g", steps=[PlanStep(tool="t")]), context)
    )
    assert result.trace_id == context.trace_id == "trace-of-mine"
    assert {event["trace_id"] for event in coordinator.get_trace()} == {"trace-of-mine"}
    with pytest.raises(ValueError, match="trace_id"):
        ExecutionContext(trace_id="")


def test_single_tool_runs_with_adapter_binding(house: House) -> None:
    """An adapter the profile does not allow falls back to the mock, and says so."""
    coordinator = AGENTSCoordinator(profile="technical", house=house)
    step = PlanStep(tool="crm", metadata={"adapter": "salesforce"})
    done = asyncio.run(coordinator._execute_tool(step))
    assert (done["success"], done["adapter"], done["simulated"]) == (True, "mock", True)


def test_without_a_state_one_temporary_house_serves_the_process() -> None:
    """It is not the user's own state, and everybody here shares it."""
    assert shared_house() is shared_house()
    assert shared_house().temporary
    assert TraceEmitter().house is shared_house()
