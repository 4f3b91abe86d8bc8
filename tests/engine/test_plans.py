"""Plans run here: the order of the seed, policies on errors, parking and going on, results that say what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.engine.plan_rows import PlanConflictError
from proctor.engine.plans import PlanBusyError
from proctor.engine.retention import Retention
from proctor.gate.retention import prune_calls
from proctor.protocol.errors import InvalidTransitionError, UsageError
from proctor.protocol.failures import ErrorPropagation, FailureMode
from proctor.protocol.limits import Limits
from proctor.protocol.plans import ExecutionContext, Plan, PlanStep
from proctor.protocol.states import PlanState
from proctor.store.database import Database
from tests.engine.plan_world import PlanWorld, failure, step
from tests.gate.world import KEY


@pytest.fixture
def make(database: Database, home: Path) -> Iterator[Callable[..., PlanWorld]]:
    """Make a world on this database."""
    made: list[PlanWorld] = []

    def build(**more: Any) -> PlanWorld:
        made.append(PlanWorld(database, home, **more))
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.fixture
def world(make: Callable[..., PlanWorld]) -> PlanWorld:
    """A world without settings of its own."""
    return make()


def _fails(*tools: str) -> Callable[[Any, Any], None]:
    def act(context: Any, _inputs: Any) -> None:
        if context.call.tool in tools:
            raise RuntimeError("it broke")

    return act


async def test_two_steps_run_in_the_order_of_the_seed(world: PlanWorld) -> None:
    """plan_created, then start and completion of each step; usage, adapters and durations are there."""
    result = await world.execute(step("look"), step("crm", domain="territory"))
    assert result.success
    assert world.names() == [
        "plan_created",
        "tool_call_start",
        "tool_call_complete",
        "tool_call_start",
        "tool_call_complete",
    ]
    assert [(one["tool"], one["adapter"], one["simulated"]) for one in result.results] == [
        ("look", "real", False),
        ("crm", "mock", True),
    ]
    assert result.budget_utilization["total"]["used"] == 2
    assert result.budget_utilization["by_domain"]["territory"]["used"] == 1
    assert result.budget_utilization["by_tool"]["look"]["used"] == 1
    assert result.failure_context is None
    assert result.partial_results is None


async def test_plan_of_simulated_steps_succeeds_as_a_simulation(world: PlanWorld) -> None:
    """It may succeed, and result, notes and trace say that nothing real came of it."""
    result = await world.execute(step("crm"))
    assert result.success
    assert result.simulated
    assert "nothing real came of them" in result.notes[0]
    (started,) = [event for event in world.trace() if event.event == "tool_call_start"]
    assert started.details["simulated"] is True
    assert "SIMULATED" in result.results[0]["result"]["message"]


async def test_policy_continue_keeps_what_worked(world: PlanWorld) -> None:
    """A failed step leaves the others alone; the result has both, and why."""
    world.ran.act = _fails("act")
    result = await world.execute(step("look"), step("act"), step("look", input={"content": "2"}))
    assert not result.success
    assert result.partial_results is not None
    assert result.partial_results.completed_steps == ["look", "look"]
    assert result.partial_results.failed_steps == ["act"]
    assert result.partial_results.completion_ratio == pytest.approx(2 / 3)
    assert result.partial_results.remaining_steps == 0
    assert failure(result)["failure_mode"] == "resource_tool"
    assert world.names().count("tool_call_error") == 1


async def test_policy_fail_fast_ends_at_the_first_failure(world: PlanWorld) -> None:
    """What comes after it is skipped and never called."""
    world.ran.act = _fails("act")
    result = await world.execute(step("act"), step("look"), on_error=ErrorPropagation.FAIL_FAST)
    assert [one.status for one in result.steps] == ["failed", "skipped"]
    assert result.stage is PlanState.FAILED
    assert world.ran.names == ["act"]


async def test_policy_retry_waits_longer_each_time_and_gives_up(world: PlanWorld) -> None:
    """Three tries, one and two seconds apart, each a call of its own that is charged."""
    world.ran.act = _fails("act")
    result = await world.execute(step("act"), on_error=ErrorPropagation.RETRY)
    assert world.slept == [1.0, 2.0]
    assert world.ran.names == ["act"] * 3
    assert result.steps[0].tries == 3
    assert result.budget_utilization["total"]["used"] == 3


async def test_policy_retry_ends_with_the_first_success(world: PlanWorld) -> None:
    """A passing trouble is no failure of the plan; the linear policy waits two seconds each time."""

    def act(_context: Any, _inputs: Any) -> None:
        if len(world.ran.names) < 3:
            raise RuntimeError("not yet")

    world.ran.act = act
    result = await world.execute(step("act"), on_error=ErrorPropagation.RETRY, retry="linear")
    assert result.success
    assert world.slept == [2.0, 2.0]


async def test_what_cannot_be_mended_by_trying_is_not_tried_again(world: PlanWorld) -> None:
    """Wrong inputs stay wrong."""
    result = await world.execute(step("act", input={"nonsense": 1}), on_error=ErrorPropagation.RETRY)
    assert world.slept == []
    assert failure(result)["failure_mode"] == "user_invalid_input"
    assert failure(result)["retryable"] is False
    assert "tool_call_error" in world.names()


async def test_policy_fallback_takes_the_other_tool_and_says_so(world: PlanWorld) -> None:
    """The named tool gets the same input; the trace has the decision."""
    world.ran.act = _fails("act")
    one = step("act", metadata={"fallback": "look"})
    result = await world.execute(one, on_error=ErrorPropagation.FALLBACK)
    assert result.success
    assert result.results[0]["fallback"] is True
    assert world.ran.names == ["act", "look"]
    (routed,) = [event for event in world.trace() if event.event == "route_decision"]
    assert routed.details["selected"] == "look"


async def test_policy_fallback_takes_the_mock_where_no_other_is_named(world: PlanWorld) -> None:
    """A tool with a mock degrades to it, marked simulated; one without stays failed, and the plan goes on."""
    world.ran.act = lambda context, _inputs: (
        _boom() if context.call.adapter == "real" and context.call.tool != "slow" else None
    )
    result = await world.execute(step("look"), step("act"), on_error=ErrorPropagation.FALLBACK)
    assert [(one.status, one.simulated) for one in result.steps] == [("completed", True), ("failed", False)]


def _boom() -> None:
    raise RuntimeError("it broke")


async def test_plan_parks_without_an_approver_and_goes_on_when_answered(world: PlanWorld) -> None:
    """Not run, not lost: the answer lets exactly the rest of it run."""
    plan = Plan(goal="g", steps=(step("look"), step("act"), step("look", name="last")), profile="enterprise")
    parked = await world.again(plan)
    assert parked.parked
    assert (parked.success, parked.approvals_required, parked.approvals_received) == (False, 1, 0)
    assert world.ran.names == ["look"]
    assert failure(parked)["kind"] == "parked"
    assert "Answer" in (parked.partial_results.hint if parked.partial_results else "")
    assert parked.approval_id is not None
    world.answer(parked.approval_id)
    done = await world.again(plan)
    assert done.success
    assert (done.approvals_required, done.approvals_received) == (1, 1)
    assert world.ran.names == ["look", "act", "look"]
    assert world.names().count("plan_created") == 1


async def test_plan_with_a_waiter_goes_on_by_itself(world: PlanWorld) -> None:
    """Who holds hears the answer at once."""
    plan = Plan(goal="g", steps=(step("act"),), profile="enterprise")

    async def say_yes() -> None:
        async with asyncio.timeout(10):
            while not world.questions:  # noqa: ASYNC110 - facts of a database have no event
                await asyncio.sleep(0.02)
        await asyncio.to_thread(world.answer, world.questions[0]["approval_id"])

    async with asyncio.TaskGroup() as group:
        group.create_task(say_yes())
        result = await world.again(plan, hold_s=20)
    assert result.success


async def test_a_no_is_a_failed_step_and_stays_one(world: PlanWorld) -> None:
    """Rejected: nothing ran, the mode is the user's, and the next step goes on under `continue`."""
    plan = Plan(goal="g", steps=(step("act"), step("look")), profile="enterprise")
    parked = await world.again(plan)
    assert parked.approval_id is not None
    world.answer(parked.approval_id, approved=False, reason="not today")
    done = await world.again(plan)
    assert world.ran.names == ["look"]
    assert failure(done)["failure_mode"] == "user_permission"
    assert "not today" in failure(done)["message"]


async def test_expired_question_leaves_the_plan_parked_until_it_is_resumed(world: PlanWorld) -> None:
    """After 24 hours it is neither yes nor no; resuming asks anew."""
    plan = Plan(goal="g", steps=(step("act"),), profile="enterprise")
    first = await world.again(plan)
    world.clock.ahead = timedelta(hours=25)
    world.plans.resume(first.plan_id, by="ada")
    second = await world.again(plan)
    assert second.parked
    assert second.approval_id != first.approval_id
    assert world.ran.names == []


async def test_failed_plan_tries_again_only_what_failed(world: PlanWorld) -> None:
    """A person's resume opens it; completed steps are not repeated, the failed one is a new call."""
    world.ran.act = _fails("act")
    failed = await world.execute(step("look"), step("act"))
    assert failed.stage is PlanState.FAILED
    world.ran.act = None
    world.plans.resume(failed.plan_id, by="ada")
    done = await world.plans.go_on(failed.plan_id)
    assert done.success
    assert world.ran.names == ["look", "act", "act"]


async def test_ended_plan_gives_its_result_again_and_cannot_be_resumed(world: PlanWorld) -> None:
    """The same plan twice is one plan."""
    plan = Plan(goal="g", steps=(step("look"),), profile="technical")
    first, second = await world.again(plan), await world.again(plan)
    assert first == second
    assert world.ran.names == ["look"]
    with pytest.raises(InvalidTransitionError):
        world.plans.resume(plan.plan_id, by="ada")


async def test_another_plan_of_the_same_id_is_refused(world: PlanWorld) -> None:
    """An id names one content."""
    plan = Plan(goal="g", steps=(step("look"),), profile="technical")
    await world.again(plan)
    with pytest.raises(PlanConflictError):
        await world.again(Plan(goal="other", plan_id=plan.plan_id, profile="technical"))


async def test_one_plan_has_one_runner(world: PlanWorld) -> None:
    """A second caller hears that it runs."""
    began, go = asyncio.Event(), asyncio.Event()

    async def hold(_context: Any, _inputs: Any) -> None:
        began.set()
        await go.wait()

    world.ran.act = hold
    plan = Plan(goal="g", steps=(step("look"),), profile="technical")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.again(plan))
        await began.wait()
        with pytest.raises(PlanBusyError):
            await world.again(plan)
        go.set()
    assert first.result().success


async def test_plan_can_be_cancelled_while_it_waits_and_asks_nobody_any_more(world: PlanWorld) -> None:
    """Its question becomes void; the result says who cannot be blamed: the user wanted it."""
    parked = await world.execute(step("act"), profile="enterprise")
    world.plans.cancel(parked.plan_id, by="ada")
    done = world.plans.result(parked.plan_id)
    assert done.stage is PlanState.CANCELLED
    assert failure(done)["failure_mode"] == "user_cancelled"
    assert world.questions[0]["status"] == "void"


async def test_plan_brings_its_own_budget(world: PlanWorld) -> None:
    """Tighter than the profile's in total, by domain and by tool; utilization is of that budget."""
    budget = Limits(calls=10, domains={"engagement": 1}, tools={"ask_model": 0})
    result = await world.execute(step("look"), step("look", name="2"), step("ask_model"), budget=budget)
    reasons = [one.reason for one in result.steps]
    assert reasons == ["", "budget_exceeded:domain:engagement", "budget_exceeded:tool:ask_model"]
    assert result.budget_utilization["total"] == {"used": 1, "held": 0, "limit": 10, "percentage": 10.0}
    assert failure(result)["failure_mode"] == "policy_budget"


async def test_upkeep_leaves_an_open_plan_its_budget_and_its_trace(world: PlanWorld) -> None:
    """What was used before a wait still counts after it, and the trace of what waits is not pruned."""
    plan = Plan(
        goal="g",
        steps=(step("look"), step("act"), step("look")),
        profile="enterprise",
        budget=Limits(calls=2),
    )
    parked = await world.again(plan)
    prune_calls(world.database, older_than=world.clock.now() - timedelta(days=1))
    later, place = world.clock.now() + timedelta(days=9), world.workspace
    upkeep = Retention(world.database, world.writer, KEY, place / "wt", place / "at", later, keep=0)
    await asyncio.to_thread(upkeep.collect)
    assert world.trace()[0].event == "plan_created"
    assert parked.approval_id is not None
    world.answer(parked.approval_id)
    done = await world.again(plan)
    assert [one.reason for one in done.steps] == ["", "", "budget_exceeded:total"]


async def test_spent_total_ends_the_plan_under_every_policy(world: PlanWorld) -> None:
    """No later step could run either, so none is tried."""
    result = await world.execute(*[step("look", name=str(n)) for n in range(4)], budget=Limits(calls=2))
    assert [one.status for one in result.steps] == ["completed", "completed", "failed", "skipped"]
    assert world.names().count("budget_exceeded") == 1


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (PlanStep(tool=" "), "needs a tool"),
        (step("x", effect="delete"), "side_effect_class"),
        (step("x", domain="d" * 60), "domain"),
        (PlanStep(tool="x", input={"v": float("nan")}), "plain JSON"),
        (PlanStep(tool="x", estimated_cost=-1.0), "below 0"),
    ],
)
async def test_plan_that_makes_no_sense_is_refused_whole(world: PlanWorld, bad: PlanStep, says: str) -> None:
    """Nothing of it is begun or written."""
    with pytest.raises(UsageError, match=says):
        await world.execute(step("look"), bad)
    assert world.trace() == []


async def test_unknown_profile_is_refused(world: PlanWorld) -> None:
    """Never another in its place."""
    with pytest.raises(ValueError, match="There is no profile 'nobody'"):
        await world.execute(step("look"), profile="nobody")


async def test_partial_modes_name_what_several_failures_share(world: PlanWorld) -> None:
    """Two of one kind are that kind; two kinds are partial."""
    world.ran.act = _fails("act")
    same = await world.execute(step("act"), step("act", name="2"))
    mixed = await world.execute(
        step("look"), step("act"), step("look", input={"nonsense": 1}), trace_id="trace_u"
    )
    assert failure(same)["failure_mode"] == "resource_tool"
    assert failure(mixed)["failure_mode"] == FailureMode.PARTIAL_STEP_FAILURES
    assert [one["failure_mode"] for one in failure(mixed)["failures"]] == [
        "resource_tool",
        "user_invalid_input",
    ]


async def test_context_carries_trace_and_session_into_every_event(world: PlanWorld) -> None:
    """One trace, one session, one task per plan."""
    context = ExecutionContext(trace_id="trace_c", session_id="s1")
    plan = Plan(goal="g", steps=(step("look"),), profile="technical")
    result = await world.plans.execute_plan(plan, context, workspace=world.workspace)
    assert result.trace_id == "trace_c"
    found = world.trace("trace_c")
    assert {event.session_id for event in found} == {"s1"}
    assert {event.task_id for event in found} == {plan.plan_id}
