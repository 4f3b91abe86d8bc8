"""One test for each bug of the seeds' origins that the gate must not have (SPEC.md section 5, items 19 to 27 and 30)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest

from proctor.gate.context import Context
from proctor.gate.limits import Limits
from proctor.gate.profiles import BUILT_IN, find_profile
from proctor.gate.report import report_of
from proctor.trace.signals import measure
from tests.gate.world import Inputs, TroubleError, World

TEN = "[limits]\ncalls = 10\n"


async def test_item_19_nothing_runs_before_it_is_approved(world: World) -> None:
    """An approval that was requested and not given means: not executed, not successful."""
    result = await world.run("send", profile="enterprise")
    assert world.ran.names == []
    assert not result.ok
    assert result.waiting
    assert world.events("tool_call_start") == []


async def test_item_20_approvals_survive_the_process(make_world: Callable[..., World]) -> None:
    """A question is a row: another process answers it, a third runs the call."""
    asked = await make_world().run("send")
    make_world().answer(asked.approval_id or "")
    third = make_world()
    assert (await third.run("send")).ok
    assert third.ran.names == ["send"]


async def test_item_21_duration_is_real_and_rates_are_shares(world: World) -> None:
    """Latency comes from the written durations; success and error rates lie between 0 and 1."""
    import asyncio

    async def nap(_context: Context, inputs: Inputs) -> None:
        await asyncio.sleep(0.02)
        if inputs.path == "bad":
            raise TroubleError

    world.ran.act = nap
    for path in ("good", "good", "bad"):
        await world.run("look", inputs={"path": path})
    await world.run("command", inputs={"command": "sudo reboot"})
    durations = [event.duration_ms for event in world.events("tool_call_complete")]
    assert all(one is not None and one >= 20 for one in durations)
    signals = measure(world.events())
    assert (signals.success_rate, signals.error_rate) == (0.5, 0.5)
    assert signals.latency.p50 >= 20


async def test_item_22_limit_zero_means_none_and_divides_by_nothing(make_world: Callable[..., World]) -> None:
    """0 allows no call at all, and its share is told as full."""
    world = make_world(local="[profiles.none]\n[profiles.none.limits]\ncalls = 0\n")
    result = await world.run("look", profile="none")
    assert result.error is not None
    assert result.error.reason == "budget_exceeded:total"
    assert world.ran.names == []
    (event,) = world.events()
    assert event.event == "budget_exceeded"
    with world.database.read() as connection:
        report = report_of(connection, "session:trace_t", Limits(calls=0))
    assert report["total"] == {"used": 0, "held": 0, "limit": 0, "percentage": 100.0}


async def test_item_23_failed_calls_cost_and_checking_is_taking(make_world: Callable[..., World]) -> None:
    """Ten failures use up ten calls; a crowd gets exactly ten."""
    import asyncio

    world = make_world(toml=TEN)

    def fail(_context: Context, _inputs: Inputs) -> None:
        raise TroubleError

    world.ran.act = fail
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(world.run("look")) for _ in range(40)]
    codes = [task.result().error.code for task in running if task.result().error]  # type: ignore[union-attr]
    assert codes.count("trouble") == 10
    assert codes.count("budget_exceeded") == 30
    assert (world.used()["used_calls"], world.used()["held_calls"]) == (10, 0)


async def test_item_24_every_tier_warns_once_at_80_percent(make_world: Callable[..., World]) -> None:
    """The 8th of 10 warns and the 7th does not, for total, domain and tool; utilization shows all three."""
    limits = "calls = 10\ndomains = { engagement = 10 }\ntools = { look = 10 }\n"
    world = make_world(local=f"[profiles.tiers]\n[profiles.tiers.limits]\n{limits}")
    for number in range(1, 11):
        result = await world.run("look", profile="tiers")
        assert result.ok
        assert bool(result.notes) == (number == 8)
    scopes = [event.details["scope"] for event in world.events("budget_warning")]
    assert scopes == ["total", "domain:engagement", "tool:look"]
    assert {event.details["used"] for event in world.events("budget_warning")} == {8}
    over = await world.run("look", profile="tiers")
    assert over.error is not None
    assert over.error.reason == "budget_exceeded:total"
    with world.database.read() as connection:
        report = report_of(connection, "session:trace_t")
    assert report["total"]["percentage"] == 100.0
    assert report["by_domain"]["engagement"]["used"] == report["by_tool"]["look"]["used"] == 10


async def test_item_25_each_failure_has_its_own_code(make_world: Callable[..., World]) -> None:
    """Budget, policy, person, tool and time are told apart."""
    world = make_world(local="[profiles.none]\n[profiles.none.limits]\ncalls = 0\n")

    def fail(_context: Context, _inputs: Inputs) -> None:
        raise TroubleError

    world.ran.act = fail
    asked = await world.run("send")
    world.answer(asked.approval_id or "", approved=False)
    results = [
        await world.run("look", profile="none"),
        await world.run("command", inputs={"command": "sudo reboot"}),
        await world.run("send"),
        await world.run("send", profile="unattended"),
        await world.run("look"),
        await world.run("act", adapter="salesforce", profile="technical"),
    ]
    codes = [result.error.code for result in results if result.error is not None]
    assert codes == [
        "budget_exceeded",
        "command_denied",
        "approval_rejected",
        "unattended_denied",
        "trouble",
        "adapter_unavailable",
    ]


async def test_item_26_the_trace_of_the_caller_is_kept(world: World) -> None:
    """Everything a call does, also its questions and warnings, is in the trace it was given."""
    asked = await world.run("send", session_id="orch_1", task_id="task_1")
    world.answer(asked.approval_id or "")
    assert (await world.run("send", session_id="orch_1", task_id="task_1")).trace_id == "trace_t"
    events = world.events()
    assert len(events) == 4
    assert {(event.session_id, event.task_id) for event in events} == {("orch_1", "task_1")}


def test_item_27_profiles_are_not_shared_mutable_defaults() -> None:
    """Nobody can change a profile, so nothing leaks to another user of it."""
    profile = find_profile("enterprise")
    with pytest.raises(FrozenInstanceError):
        profile.name = "mine"  # type: ignore[misc]  # on purpose
    with pytest.raises(TypeError):
        profile.limits.domains["territory"] = 10**6  # type: ignore[index]  # on purpose
    with pytest.raises(TypeError):
        BUILT_IN["enterprise"] = profile  # type: ignore[index]  # on purpose
    assert find_profile("enterprise").limits.domains["territory"] == 50


async def test_item_30_secrets_are_in_no_row_and_no_event(world: World) -> None:
    """Inputs, outputs, errors, questions: what is known to be secret is nowhere to be read."""
    secret = "hunter2-hunter2"

    def leak(_context: Context, inputs: Inputs) -> object:
        if inputs.path == "bad":
            raise ValueError(f"wrong password {secret}")
        return type(world.registry.find("look").output(did="")).model_validate({"did": f"password={secret}"})

    world.ran.act = leak
    for inputs in ({"content": secret}, {"path": "bad"}):
        await world.run("act", inputs=inputs, reasoning=f"because of {secret}")
    await world.run("send", inputs={"content": secret}, reasoning=f"because of {secret}")
    await world.run("write", inputs={"path": ".env", "content": f"PASSWORD={secret}\n"})
    everything = f"{world.calls} {world.questions} {world.events()}"
    assert "REDACTED" in everything
    assert secret not in everything
