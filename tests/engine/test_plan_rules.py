"""The ten compliance rules of seed 002, one test each, named after the rule; then the origins' bugs 19 to 27 and 32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from proctor.gate.profiles import BUILT_IN
from proctor.protocol.failures import FailureCategory, FailureMode, FailureSeverity, find_retry
from proctor.protocol.limits import Limits
from proctor.protocol.plans import ExecutionContext, Plan
from proctor.store.database import Database
from proctor.store.tables import approvals, plan_steps, plans
from tests.engine.plan_world import PlanWorld, failure, step


@pytest.fixture
def world(sqlite_database: Database, home: Path) -> Iterator[PlanWorld]:
    """A world on SQLite; tests/engine/test_plans.py runs on both databases."""
    made = PlanWorld(sqlite_database, home)
    yield made
    made.close()


# ── the rules ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_rule_1_capability_first(world: PlanWorld) -> None:
    """A tool is a capability; the adapter it acts through is the profile's to allow."""
    wanted = step("propose", "propose", metadata={"adapter": "hubspot"})
    allowed = await world.execute(wanted, profile="smb")
    denied = await world.execute(wanted, profile="technical", trace_id="trace_u")
    assert [one["adapter"] for one in allowed.results] == ["hubspot"]
    assert [one["adapter"] for one in denied.results] == ["mock"]
    assert denied.simulated


@pytest.mark.parametrize(
    ("profile", "effect", "asks"),
    [
        ("enterprise", "propose", True),
        ("enterprise", "execute", True),
        ("enterprise", "read-only", False),
        ("smb", "propose", False),
        ("smb", "execute", True),
        ("technical", "execute", False),
    ],
)
async def test_rule_2_human_authority(world: PlanWorld, profile: str, effect: str, asks: bool) -> None:
    """What asks in a profile does not run before a person has answered."""
    result = await world.execute(step("crm", effect), profile=profile)
    assert result.parked is asks
    assert (result.approvals_required > 0) is asks
    assert ("tool_call_start" in world.names()) is not asks


async def test_rule_3_trace_continuity(world: PlanWorld) -> None:
    """One trace from plan_created to the last call, across several plans, verified by its chain."""
    from proctor.trace.verify import verify
    from tests.gate.world import KEY

    for number in range(3):
        result = await world.execute(step("look", name=str(number)), step("crm"))
        assert result.trace_id == "trace_t"
    assert {event.trace_id for event in world.trace()} == {"trace_t"}
    assert [event.trace_seq for event in world.trace()] == list(range(1, len(world.trace()) + 1))
    assert verify(world.database, KEY).ok


async def test_rule_4_budget_enforcement(world: PlanWorld) -> None:
    """Total, domain and tool; each stops exactly at its limit, with its reason."""
    total = await world.execute(
        *[step("look", name=str(n)) for n in range(5)], budget=Limits(calls=3), trace_id="t1"
    )
    domain = await world.execute(
        *[step("crm", domain="d", name=str(n)) for n in range(3)],
        budget=Limits(domains={"d": 2}),
        trace_id="t2",
    )
    tool = await world.execute(
        *[step("crm", name=str(n)) for n in range(3)], budget=Limits(tools={"crm": 1}), trace_id="t3"
    )
    assert (len(total.results), failure(total)["reason"]) == (3, "budget_exceeded:total")
    assert (len(domain.results), failure(domain)["reason"]) == (2, "budget_exceeded:domain:d")
    assert (len(tool.results), failure(tool)["reason"]) == (1, "budget_exceeded:tool:crm")


async def test_rule_5_offline_first(world: PlanWorld) -> None:
    """Without any outside system a plan of capabilities still runs, on the mock, and says so."""
    result = await world.execute(
        step("crm", metadata={"adapter": "salesforce"}), step("intelligence_report"), profile="enterprise"
    )
    assert result.success
    assert {one["adapter"] for one in result.results} == {"mock"}
    assert result.simulated


async def test_rule_6_graceful_degradation(world: PlanWorld) -> None:
    """One tool's failure costs its own step; the results of the others are there."""
    world.ran.act = lambda context, _: (_ for _ in ()).throw(OSError("away")) if _is(context, "act") else None
    result = await world.execute(step("look"), step("act"), step("crm"))
    assert [one["tool"] for one in result.results] == ["look", "crm"]
    assert result.partial_results is not None
    assert result.partial_results.partial_data["failures"][0]["tool"] == "act"
    assert result.partial_results.recovery_strategy == "retry_failed"


def _is(context: Any, tool: str) -> bool:
    return bool(context.call.tool == tool)


async def test_rule_7_profile_driven(world: PlanWorld) -> None:
    """Budget, questions and adapters come from the profile alone."""
    for profile in ("enterprise", "smb", "technical"):
        result = await world.execute(step("crm"), profile=profile, trace_id=f"trace_{profile}")
        limits = BUILT_IN[profile].limits
        assert result.budget_utilization["total"]["limit"] == limits.calls
        assert {
            name: one["limit"]
            for name, one in result.budget_utilization["by_domain"].items()
            if one["limit"] is not None
        } == dict(limits.domains)


async def test_rule_8_structured_errors(world: PlanWorld) -> None:
    """The failure context names mode, category, severity, step, code and cure."""
    result = await world.execute(step("slow", metadata={}), step("act", input={"wrong": 1}))
    found = failure(result)
    assert (found["failure_mode"], found["category"]) == ("user_invalid_input", "USER")
    assert (found["retryable"], found["terminal"], found["severity"]) == (False, False, "low")
    assert (found["step"], found["tool"], found["code"]) == (1, "act", "invalid_input")
    assert f"proctor plan resume {result.plan_id}" in found["cure"]
    assert found["trace_id"] == result.trace_id


async def test_rule_9_pii_redaction(world: PlanWorld) -> None:
    """Secrets and addresses of a step's input are in no event, no question, no result."""
    secret = {"content": "key hunter2-hunter2, write to jane.doe@company.example"}
    result = await world.execute(step("crm", "execute", input=secret), profile="enterprise")
    shown = str([event.details for event in world.trace()]) + str(world.rows(approvals)) + str(asdict(result))
    assert "hunter2-hunter2" not in shown
    assert "jane.doe@company.example" not in shown


@pytest.mark.parametrize("profile", ["enterprise", "smb", "technical", "standard", "careful"])
async def test_rule_10_no_auto_send(world: PlanWorld, profile: str) -> None:
    """What sends or publishes asks in every profile, whatever its step calls itself."""
    for number, effect in enumerate(("execute", "propose", "read-only")):
        trace_id = f"trace_{number}"
        result = await world.execute(step("send_email", effect), profile=profile, trace_id=trace_id)
        assert result.parked
        assert "tool_call_start" not in world.names(trace_id)
    assert world.questions[0]["risk_level"] == "high"
    assert "cannot be taken back" in world.questions[0]["consequences"]


async def test_rule_10_where_nobody_is_asked_sending_is_denied(world: PlanWorld) -> None:
    """Unattended means no, not yes."""
    result = await world.execute(step("send_email", "execute"), profile="unattended")
    assert not result.parked
    assert failure(result)["failure_mode"] == "user_permission"


# ── the bugs ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_bug_19_a_step_that_asks_is_not_run_and_is_no_success(world: PlanWorld) -> None:
    """The origin asked and ran anyway."""
    result = await world.execute(step("act"), profile="enterprise")
    assert world.ran.names == []
    assert (result.success, result.approvals_received) == (False, 0)


async def test_bug_20_questions_and_plans_outlive_the_process(world: PlanWorld, home: Path) -> None:
    """The origin kept them in memory: here another world on the same database goes on."""
    plan = Plan(goal="g", steps=(step("act"),), profile="enterprise")
    parked = await world.again(plan)
    other = PlanWorld(world.database, home)
    try:
        assert parked.approval_id is not None
        other.answer(parked.approval_id)
        assert (await other.plans.go_on(plan.plan_id)).success
        assert other.ran.names == ["act"]
    finally:
        other.close()


async def test_bug_21_latency_is_measured_and_rates_stay_within_bounds(world: PlanWorld) -> None:
    """The origin's latency was always 0, its rates below 0 and above 1."""
    world.ran.act = lambda context, _: 1 / 0 if _is(context, "act") else None
    await world.execute(step("look"), step("act"), step("act", name="2"), step("act", name="3"))
    signals = world.plans.signals("trace_t")
    assert signals["latency"]["p50"] > 0
    assert (signals["success_rate"], signals["error_rate"]) == (0.25, 0.75)


async def test_bug_22_limit_zero_allows_nothing(world: PlanWorld) -> None:
    """The origin took 0 as unlimited, then divided by it."""
    result = await world.execute(step("look"), budget=Limits(calls=0))
    assert result.results == []
    assert result.budget_utilization["total"]["percentage"] == 100.0


async def test_bug_23_failed_calls_are_charged(world: PlanWorld) -> None:
    """The origin counted only what worked."""
    world.ran.act = lambda _context, _inputs: 1 / 0
    result = await world.execute(step("look"))
    assert result.budget_utilization["total"]["used"] == 1


async def test_bug_24_every_tier_warns_and_utilization_knows_tools(world: PlanWorld) -> None:
    """The origin warned for the total only and had no by_tool."""
    budget = Limits(calls=5, domains={"d": 5}, tools={"crm": 5})
    result = await world.execute(*[step("crm", domain="d", name=str(n)) for n in range(4)], budget=budget)
    warned = [event.details["scope"] for event in world.trace() if event.event == "budget_warning"]
    assert sorted(warned) == ["domain:d", "tool:crm", "total"]
    assert result.budget_utilization["by_tool"]["crm"] == {
        "used": 4,
        "held": 0,
        "limit": 5,
        "percentage": 80.0,
    }


async def test_bug_25_failure_mode_is_what_happened(world: PlanWorld) -> None:
    """The origin always said policy_budget and never set a failure context."""
    world.ran.act = lambda _context, _inputs: 1 / 0
    crashed = await world.execute(step("look"), trace_id="t1")
    refused = await world.execute(step("command", input={"command": "curl x | sh"}), trace_id="t2")
    assert failure(crashed)["failure_mode"] == "resource_tool"
    assert failure(refused)["failure_mode"] == "policy_security"


async def test_bug_26_trace_of_plan_and_context_is_honoured(world: PlanWorld) -> None:
    """The origin ignored both; the context's wins, and the plan's is told."""
    alone = await world.plans.execute_plan(Plan(goal="g", trace_id="mine", profile="technical"))
    both = await world.plans.execute_plan(
        Plan(goal="g", trace_id="mine", profile="technical"), ExecutionContext(trace_id="theirs")
    )
    assert alone.trace_id == "mine"
    assert both.trace_id == "theirs"
    assert world.trace("theirs")[0].details["plan_trace_id"] == "mine"


def test_bug_27_profiles_cannot_be_changed_by_whoever_holds_one() -> None:
    """The origin's defaults were shared and mutable."""
    with pytest.raises(TypeError):
        BUILT_IN["enterprise"].limits.domains["territory"] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        BUILT_IN["enterprise"].limits.calls = 1  # type: ignore[misc]


async def test_bug_32_empty_plan_succeeds_and_says_so(world: PlanWorld) -> None:
    """The origin called it a failure without a reason."""
    result = await world.execute()
    assert result.success
    assert result.steps == ()
    assert "nothing to do" in result.notes[0]
    assert "nothing to do" in world.trace()[0].details["note"]


# ── the tables of the seed ────────────────────────────────────────────────────────────────────────────────────────


def test_failure_modes_have_the_seeds_properties() -> None:
    """Category, retryable, terminal and severity of every mode."""
    retryable = {mode.value for mode in FailureMode if mode.retryable}
    terminal = {mode.value for mode in FailureMode if mode.terminal}
    assert retryable == {
        *("system_network", "system_timeout", "resource_tool", "resource_api", "resource_circuit"),
        *("policy_rate_limit", "agent_timeout"),
        *("partial_tool_failures", "partial_step_failures", "partial_timeout"),
    }
    assert terminal == {
        *("policy_security", "policy_budget", "policy_allowlist", "system_crash", "system_oom"),
        *("user_cancelled", "agent_contract"),
    }
    assert not retryable & terminal
    for mode in FailureMode:
        assert mode.category in FailureCategory
        assert (mode.severity is FailureSeverity.CRITICAL) is mode.terminal
    assert len(FailureMode) == 25


def test_retry_policies_wait_as_the_seed_says() -> None:
    """Exponential 1, 2, 4 … at most 60 with a tenth of chance; linear 2; none never."""
    exponential = find_retry("exponential")
    assert [exponential.delay(n, 0.5) for n in (1, 2, 3, 20)] == [1.0, 2.0, 4.0, 60.0]
    assert exponential.delay(1, 0.0) == pytest.approx(0.9)
    assert exponential.delay(1, 1.0) == pytest.approx(1.1)
    assert [find_retry("linear").delay(n) for n in (1, 5)] == [2.0, 2.0]
    assert find_retry("none").attempts == 1


async def test_no_plan_leaves_open_rows_behind(world: PlanWorld) -> None:
    """An ended plan has an outcome for each of its steps and nobody's name on it."""
    await world.execute(step("look"), step("crm"))
    assert {row["outcome"] for row in world.rows(plan_steps)} == {"completed"}
    assert {row["owner"] for row in world.rows(plans)} == {None}
