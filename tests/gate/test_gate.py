"""The one door: what runs is judged, counted, traced and settled, whatever happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import BaseModel

from proctor.gate.context import Context
from proctor.gate.outcome import CallRefusedError
from proctor.gate.profiles import UnknownProfileError
from proctor.protocol.errors import NotFoundError
from proctor.protocol.permits import PermitSpentError
from proctor.protocol.tools import CallState, Usage
from proctor.sandbox.spec import Level, Network
from proctor.store.tables import budget_nodes, leases
from proctor.tools.registry import InvalidInputError
from proctor.trace.log import lock_log
from proctor.trace.verify import verify
from proctor.workspace.files import Root
from tests.gate.world import AGENT, HUMAN, KEY, PROCTOR, Inputs, TroubleError, World


async def test_call_is_a_row_two_events_and_a_settled_lease(world: World) -> None:
    """Start and end are in the trace with tool, duration and call; the row has ended; nothing is held."""
    result = await world.run("look")
    assert result.ok
    assert result.output == {"did": "look"}
    start, end = world.events()
    assert (start.event, end.event) == ("tool_call_start", "tool_call_complete")
    assert {start.tool_name, end.tool_name} == {"look"}
    assert start.details["call_id"] == end.details["call_id"] == result.call_id
    assert end.duration_ms is not None
    assert end.duration_ms > 0
    (row,) = world.calls
    assert (row["state"], row["simulated"], row["actor"]) == ("ended", False, "agent")
    assert world.used()["used_calls"] == 1
    assert world.used()["held_calls"] == 0
    assert [lease["outcome"] for lease in world.rows(leases)] == ["settled"]


@pytest.mark.parametrize(
    ("tool", "inputs", "error"),
    [
        ("nothing", {}, NotFoundError),
        ("look", {"wrong": 1}, InvalidInputError),
        ("look", {"path": 1}, InvalidInputError),
    ],
)
async def test_what_makes_no_sense_raises_and_leaves_nothing(
    world: World, tool: str, inputs: dict[str, object], error: type[Exception]
) -> None:
    """An unknown tool or wrong inputs are the caller's mistake: no row, no event, no charge."""
    with pytest.raises(error):
        await world.run(tool, inputs=inputs)
    assert world.calls == []
    assert world.events() == []


async def test_unknown_profile_is_refused(world: World) -> None:
    """There is no silent fallback to another profile."""
    with pytest.raises(UnknownProfileError, match="Did you mean 'careful'"):
        await world.run("look", profile="carefull")
    assert world.ran.names == []


async def test_failed_call_ends_with_its_own_code_and_is_charged(world: World) -> None:
    """Our errors keep their code, others are defects; both are settled and traced."""

    def fail(_context: Context, inputs: Inputs) -> None:
        if inputs.path == "ours":
            raise TroubleError
        raise ZeroDivisionError("division by zero")

    world.ran.act = fail
    ours = await world.run("look", inputs={"path": "ours"})
    defect = await world.run("look")
    assert ours.error is not None
    assert defect.error is not None
    assert (ours.error.code, ours.error.exit_code) == ("trouble", 5)
    assert defect.error.code == "defect"
    assert "ZeroDivisionError" in defect.error.message
    assert [event.event for event in world.events()] == ["tool_call_start", "tool_call_error"] * 2
    assert (world.used()["used_calls"], world.used()["held_calls"]) == (2, 0)


async def test_wrong_output_is_a_defect_of_the_tool(world: World) -> None:
    """What does not fit the output model never reaches a caller as a result."""

    class Other(BaseModel):
        x: int = 1

    world.ran.act = lambda _context, _inputs: Other()
    result = await world.run("look")
    assert result.error is not None
    assert result.error.code == "defect"
    assert result.output is None


async def test_call_that_takes_too_long_is_ended(world: World) -> None:
    """The tool's own time limit holds, and the end is written."""

    async def sleep(_context: Context, _inputs: Inputs) -> None:
        await asyncio.sleep(30)

    world.ran.act = sleep
    result = await world.run("slow")
    assert result.error is not None
    assert result.error.code == "timed_out"
    assert world.used()["held_calls"] == 0


async def test_cancelled_caller_leaves_a_settled_call(world: World) -> None:
    """Cancelling the caller's task cancels the handler; row, event and charge are there."""
    began = asyncio.Event()

    async def sleep(_context: Context, _inputs: Inputs) -> None:
        began.set()
        await asyncio.sleep(30)

    world.ran.act = sleep
    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.run("look"))
        await began.wait()
        task.cancel()
    assert [event.event for event in world.events()] == ["tool_call_start", "tool_call_error"]
    assert world.calls[0]["code"] == "cancelled"
    assert (world.used()["used_calls"], world.used()["held_calls"]) == (1, 0)


@pytest.mark.parametrize("warm", [True, False])
async def test_caller_who_leaves_during_the_start_leaves_nothing_held(world: World, warm: bool) -> None:
    """Written and not yet answered, or waiting for another writer: the call ends as cancelled, and never ran."""
    if warm:
        assert (await world.run("look")).ok
    before = len(world.ran.names)
    async with asyncio.TaskGroup() as group:
        with world.database.write() as other:
            lock_log(other, KEY)
            task = group.create_task(world.run("look"))
            await asyncio.sleep(0.3)  # until its start waits; were it not so far, it would be taken back
            task.cancel()
            await asyncio.sleep(0.1)
    assert task.cancelled()
    assert len(world.ran.names) == before
    assert {row["state"] for row in world.calls} <= {"ended"}
    assert {row["settled_at"] is None for row in world.rows(leases)} <= {False}
    assert {row["held_calls"] for row in world.rows(budget_nodes)} <= {0}
    starts, ends = world.events("tool_call_start"), world.events("tool_call_complete", "tool_call_error")
    assert len(starts) == len(ends)
    assert verify(world.database, KEY).ok


async def test_caller_who_leaves_after_the_start_was_written_is_told_of_in_the_trace(world: World) -> None:
    """The commit is done and its answer on the way: row and events say cancelled."""
    for _ in range(2):
        assert (await world.run("look")).ok
    loop = asyncio.get_running_loop()

    def watch(moment: str) -> None:
        if moment == "committed":
            world.database.watch = None
            loop.call_soon_threadsafe(task.cancel)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.run("look"))
        world.database.watch = watch
    assert task.cancelled()
    assert [event.event for event in world.events()][-2:] == ["tool_call_start", "tool_call_error"]
    assert sorted(row["code"] or "" for row in world.calls) == ["", "", "cancelled"]
    assert (world.used()["used_calls"], world.used()["held_calls"]) == (3, 0)


async def test_permit_opens_one_door_once(world: World) -> None:
    """A handler that tries to write twice with a permit for one use is stopped."""

    def twice(context: Context, _inputs: Inputs) -> None:
        with Root(context.root) as root:
            root.write_atomic("a", b"1", permit=context.permit)
            root.write_atomic("b", b"2", permit=context.permit)

    world.ran.act = twice
    result = await world.run("look")
    assert result.error is not None
    assert result.error.code == PermitSpentError.code
    assert not (world.workspace / "b").exists()


async def test_opened_call_is_settled_at_the_end_of_the_block(world: World) -> None:
    """An act outside the registry's handlers passes the same door."""
    async with world.gate.open(world.call("look")) as opened:
        opened.meter.charge(Usage(tokens=7))
        opened.output = {"did": "by hand"}
        assert world.used()["held_calls"] == 1
    assert world.used()["used_tokens"] == 7
    with pytest.raises(TroubleError):
        async with world.gate.open(world.call("look")):
            raise TroubleError
    assert [row["code"] for row in world.calls] == [None, "trouble"]
    with pytest.raises(CallRefusedError, match="waits for an answer"):
        async with world.gate.open(world.call("send")):
            raise AssertionError("it must not begin")


# ── actors (law 8) ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_human_is_not_asked_but_may_be_denied(world: World) -> None:
    """What asks an agent runs for a person, confined; what is denied is denied to all."""
    seen: list[Context] = []
    world.ran.act = lambda context, _inputs: seen.append(context)
    assert (await world.run("send", HUMAN)).ok
    assert (await world.run("command", HUMAN, inputs={"command": "git push origin main"})).ok
    assert seen[-1].confined.level_required is Level.LANDLOCK
    assert seen[-1].confined.network is Network.FULL
    denied = await world.run("command", HUMAN, inputs={"command": "sudo reboot"})
    assert denied.error is not None
    assert (denied.error.code, denied.error.exit_code) == ("command_denied", 5)
    assert world.questions == []


async def test_agent_is_asked_by_policy_and_for_what_cannot_be_taken_back(world: World) -> None:
    """Free inside the sandbox, a question outside of it."""
    assert (await world.run("command", inputs={"command": "ls"})).ok
    assert (await world.run("write")).ok
    assert (await world.run("command", inputs={"command": "git push"})).waiting
    assert (await world.run("write", inputs={"path": ".env"})).waiting
    assert (await world.run("send")).waiting
    assert world.ran.names == ["command", "write"]


async def test_unattended_denies_instead_of_asking(world: World) -> None:
    """Nobody is asked: push and the irreversible are denied, the rest is free."""
    for tool, inputs in (("send", {}), ("command", {"command": "git push"})):
        result = await world.run(tool, inputs=inputs, profile="unattended")
        assert result.error is not None
        assert result.error.code == "unattended_denied"
    assert (await world.run("command", inputs={"command": "ls"}, profile="unattended")).ok
    assert world.questions == []


@pytest.mark.parametrize("profile", ["standard", "careful", "enterprise", "smb", "technical"])
async def test_what_cannot_be_taken_back_asks_in_every_profile(world: World, profile: str) -> None:
    """Also where nothing else asks."""
    assert (await world.run("send", profile=profile)).waiting


async def test_proctor_runs_commands_confined_without_network_or_not(
    make_world: Callable[..., World],
) -> None:
    """What agents may have written is run by Proctor at level 2 and offline; without a sandbox it is inconclusive."""
    world = make_world()
    seen: list[Context] = []
    world.ran.act = lambda context, _inputs: seen.append(context)
    assert (await world.run("command", PROCTOR, inputs={"command": "make test; ./strange"})).ok
    assert seen[0].confined.level_required is Level.LANDLOCK
    assert seen[0].confined.network is Network.OFF
    sent = await world.run("send", PROCTOR)
    weak = make_world(level=Level.LIMITS)
    low = await weak.run("command", PROCTOR, inputs={"command": "make test"}, trace_id="trace_low")
    assert sent.error is not None
    assert low.error is not None
    assert sent.error.code == low.error.code == "inconclusive"
    assert weak.ran.names == []


async def test_without_a_sandbox_every_command_of_an_agent_asks(make_world: Callable[..., World]) -> None:
    """Level 1 is for attended work only."""
    world = make_world(level=Level.LIMITS)
    assert (await world.run("command", inputs={"command": "ls"})).waiting
    human = await world.run("command", HUMAN, inputs={"command": "ls"})
    assert human.ok
    assert "no sandbox" in human.notes[0]
    pushed = await world.run("command", HUMAN, inputs={"command": "git push"})
    assert pushed.error is not None
    assert pushed.error.code == "sandbox_level"


# ── adapters ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_adapter_falls_back_to_the_mock_and_says_so(world: World) -> None:
    """Not allowed by the profile, or not there: simulated in result, row and trace, never in silence."""
    allowed = await world.run("propose", adapter="hubspot", profile="technical")
    missing = await world.run("propose", adapter="unheard-of", profile="standard")
    for result in (allowed, missing):
        assert result.ok
        assert result.simulated
        assert result.notes[0].startswith("Simulated: ")
        assert "Nothing was changed" in result.notes[0]
    assert world.ran.names == ["propose-mock", "propose-mock"]
    assert all(row["simulated"] for row in world.calls)
    assert all(event.details["simulated"] for event in world.events())
    assert (await world.run("propose", adapter="hubspot", profile="smb")).simulated is False


async def test_tool_without_a_mock_is_refused_rather_than_pretended(world: World) -> None:
    """Nothing can stand in for it."""
    result = await world.run("act", adapter="salesforce", profile="technical")
    assert result.error is not None
    assert result.error.code == "adapter_unavailable"
    assert world.ran.names == []
    assert [event.details["code"] for event in world.events("tool_call_error")] == ["adapter_unavailable"]


async def test_profile_that_simulates_touches_nothing(make_world: Callable[..., World]) -> None:
    """A rehearsal runs mocks only."""
    world = make_world(local="[profiles.rehearsal]\nsimulate = true\n")
    assert (await world.run("look", profile="rehearsal")).simulated
    refused = await world.run("write", profile="rehearsal")
    assert refused.error is not None
    assert not (world.workspace / "note.txt").exists()


# ── idempotency (law 4) ───────────────────────────────────────────────────────────────────────────────────────────


async def test_same_key_is_the_same_call(world: World) -> None:
    """It runs once; the second time gives the kept result and is not charged."""
    first = await world.run("write", idempotency_key="k1")
    second = await world.run("write", idempotency_key="k1")
    assert (first.replayed, second.replayed) == (False, True)
    assert first.call_id == second.call_id
    assert second.output == {"did": "write"}
    assert world.ran.names == ["write"]
    assert world.used()["used_calls"] == 1


async def test_same_key_for_another_act_is_refused(world: World) -> None:
    """Another content or another actor under a known key does not run."""
    await world.run("write", idempotency_key="k1")
    other = await world.run("write", idempotency_key="k1", inputs={"content": "other"})
    actor = await world.run("write", HUMAN, idempotency_key="k1")
    for result in (other, actor):
        assert result.error is not None
        assert result.error.code == "idempotency_conflict"
    assert world.ran.names == ["write"]


async def test_same_key_while_it_runs_is_refused(world: World) -> None:
    """Two callers with one key: one runs, the other hears so."""
    began, go = world.hold()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.run("act", idempotency_key="k"))
        await began.wait()
        second = await world.run("act", idempotency_key="k")
        go.set()
    assert first.result().ok
    assert second.error is not None
    assert second.error.code == "call_in_progress"


async def test_denied_call_may_be_tried_again_with_its_key(make_world: Callable[..., World]) -> None:
    """What never began is judged anew."""
    world = make_world(toml="[limits]\ncalls = 1\n")
    assert (await world.run("look")).ok
    assert (await world.run("look", idempotency_key="k")).error is not None
    (world.workspace / "proctor.toml").write_text("[limits]\ncalls = 5\n")
    assert (await world.run("look", idempotency_key="k")).ok


# ── snapshots (law 5) ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_workspace_is_saved_before_the_first_change_of_a_run(world: World) -> None:
    """Once per run, before the write; reading and worktrees need none."""
    (world.workspace / "note.txt").write_text("before\n")
    first = await world.run("write")
    second = await world.run("write", inputs={"content": "again\n"})
    reading = await world.run("command", inputs={"command": "ls"})
    elsewhere = await world.run("write", worktree_of=world.workspace)
    assert first.snapshot_id is not None
    assert first.snapshot_id == second.snapshot_id
    assert reading.snapshot_id is elsewhere.snapshot_id is None
    (saved,) = world.backups.listing(world.workspace)
    assert saved.id == first.snapshot_id
    assert await world.gate.finish_run("trace_t") == 1


async def test_call_that_cannot_be_saved_first_does_not_begin(world: World) -> None:
    """Fail closed: no snapshot, no write, no charge."""
    call = replace(world.call("write"), workspace=world.workspace / "gone")
    result = await world.gate.run(call)
    assert result.error is not None
    assert result.error.code == "snapshot_failed"
    assert world.ran.names == []
    assert result.state is CallState.ENDED


async def test_lease_of_a_day_ago_does_not_block_its_key(world: World) -> None:
    """A call whose process hangs past its end counts as interrupted: reading goes on, the rest asks."""
    began, go = world.hold()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.run("act", AGENT, idempotency_key="k"))
        await began.wait()
        world.clock.ahead = timedelta(days=1)
        world.ran.act = None
        again = await world.run("act", AGENT, idempotency_key="k")
        third = await world.run("act", AGENT, idempotency_key="k")
        go.set()
    assert again.waiting
    assert third.waiting  # asking once is no leave: it still has begun before
    assert "interrupted" in world.questions[0]["action"]
    assert world.ran.names == ["act"]
