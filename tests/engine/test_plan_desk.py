"""Plans in an executor: taken when ready, left when a person is needed, gone on with when answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.engine import desk as desk_module
from proctor.engine.controls import set_paused
from proctor.engine.liveness import open_lease
from proctor.engine.plan_desk import PlanDesk
from proctor.engine.plan_rows import PlanRow
from proctor.gate.holder import this_process
from proctor.protocol.plans import Plan, PlanStep
from proctor.protocol.states import PlanState
from proctor.store.database import Database
from proctor.store.tables import plans
from tests.engine.plan_world import PlanWorld, step


@pytest.fixture
def world(database: Database, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanWorld]:
    """A world whose desk looks often."""
    monkeypatch.setattr(desk_module, "LOOK_SECONDS", 0.05)
    made = PlanWorld(database, home)
    yield made
    made.close()


@asynccontextmanager
async def _working(world: PlanWorld) -> AsyncIterator[PlanDesk]:
    lease = open_lease(world.database, world.workspace / "executors", kind="test", ttl=10.0)
    await asyncio.to_thread(lease.take)
    desk = PlanDesk(world.plans, lease)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(desk.run())
            try:
                yield desk
            finally:
                desk.stop()
    finally:
        await asyncio.to_thread(lease.release)


def _submit(world: PlanWorld, *steps: PlanStep, profile: str = "technical") -> PlanRow:
    return world.plans.submit(Plan(goal="g", steps=steps, profile=profile), workspace=world.workspace)


async def _until(world: PlanWorld, row: PlanRow, fact: Callable[[PlanRow], bool]) -> PlanRow:
    async with asyncio.timeout(30):
        while not fact(found := await asyncio.to_thread(world.plans.get, row.plan_id)):  # noqa: ASYNC110 - a fact
            await asyncio.sleep(0.02)
        return found


def _ended(row: PlanRow) -> bool:
    return row.completed_at is not None


async def test_desk_runs_a_plan_and_goes_on_when_it_is_answered(world: PlanWorld) -> None:
    """While a person is needed nobody holds it; the answer alone brings it to its end."""
    row = _submit(world, step("look"), step("act"), profile="enterprise")
    async with _working(world) as desk:
        parked = await _until(world, row, lambda found: found.waiting_for is not None)
        assert parked.owner is None
        assert not await asyncio.to_thread(desk.waits)
        assert parked.waiting_for is not None
        world.answer(parked.waiting_for)
        done = await _until(world, row, _ended)
    assert done.stage is PlanState.COMPLETED
    assert world.ran.names == ["look", "act"]


async def test_expired_question_keeps_the_plan_parked_until_a_person_resumes_it(world: PlanWorld) -> None:
    """No yes, no no, and no question asked again by itself."""
    row = _submit(world, step("act"), profile="enterprise")
    async with _working(world):
        first = await _until(world, row, lambda found: found.waiting_for is not None)
        world.clock.ahead = timedelta(hours=25)
        await asyncio.sleep(0.3)
        assert len(world.questions) == 1
        world.plans.resume(row.plan_id, by="ada")
        again = await _until(world, row, lambda found: found.waiting_for not in {None, first.waiting_for})
    assert again.stage is PlanState.EXECUTING
    assert world.ran.names == []


async def test_paused_house_begins_no_plan(world: PlanWorld) -> None:
    """It waits for the resume."""
    now = world.clock.now()
    world.writer.transact(lambda c: set_paused(c, ["all"], paused=True, by="ada", now=now))
    row = _submit(world, step("look"))
    async with _working(world):
        await asyncio.sleep(0.3)
        assert world.ran.names == []
        world.writer.transact(lambda c: set_paused(c, ["all"], paused=False, by="ada", now=now))
        await _until(world, row, _ended)
    assert world.ran.names == ["look"]


async def test_running_plan_is_cancelled_between_its_steps(world: PlanWorld) -> None:
    """The call that runs hears of it; no other begins."""
    began = asyncio.Event()

    async def hold(context: Any, _inputs: Any) -> None:
        began.set()
        await context.cancel.wait()

    world.ran.act = hold
    row = _submit(world, step("act"), step("look"))
    async with _working(world):
        await asyncio.wait_for(began.wait(), 20)
        asked = await asyncio.to_thread(world.plans.cancel, row.plan_id, by="ada")
        assert asked.cancel_requested
        done = await _until(world, row, _ended)
    assert done.stage is PlanState.CANCELLED
    assert world.ran.names == ["act"]


async def test_desk_that_stops_leaves_the_plan_for_the_next(world: PlanWorld) -> None:
    """The step that runs ends, the next one is the next desk's."""
    began, go = asyncio.Event(), asyncio.Event()

    async def hold(_context: Any, _inputs: Any) -> None:
        began.set()
        await go.wait()

    world.ran.act = hold
    row = _submit(world, step("act"), step("look"))
    async with _working(world) as desk:
        await asyncio.wait_for(began.wait(), 20)
        desk.stop()
        go.set()
    left = world.plans.get(row.plan_id)
    assert (left.stage, left.owner) == (PlanState.EXECUTING, None)
    assert world.ran.names == ["act"]
    async with _working(world):
        await _until(world, row, _ended)
    assert world.ran.names == ["act", "look"]


@pytest.mark.parametrize(("tool", "ran", "stage"), [("look", 2, "completed"), ("act", 1, "failed")])
async def test_call_that_was_cut_off_by_a_stop_runs_again_only_if_it_reads(
    world: PlanWorld, monkeypatch: pytest.MonkeyPatch, tool: str, ran: int, stage: str
) -> None:
    """Of an effect that was cut off nobody knows how far it came, so it is not repeated by itself."""
    monkeypatch.setattr(desk_module, "STOP_SECONDS", 0.1)
    began = asyncio.Event()

    async def hang(_context: Any, _inputs: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    world.ran.act = hang
    row = _submit(world, step(tool))
    async with _working(world):
        await asyncio.wait_for(began.wait(), 20)
    world.ran.act = None
    async with _working(world):
        done = await _until(world, row, _ended)
    assert world.ran.names == [tool] * ran
    assert done.stage.value == stage


async def test_plans_of_a_process_are_left_to_it(world: PlanWorld) -> None:
    """Only who brought a plan in their own process knows its tools."""
    plan = Plan(goal="g", steps=(step("act"),), profile="enterprise")
    parked = await world.again(plan)
    assert parked.approval_id is not None
    world.answer(parked.approval_id)
    async with _working(world) as desk:
        await asyncio.sleep(0.3)
        assert not await asyncio.to_thread(desk.waits)
    assert world.ran.names == []


async def test_plan_of_a_process_that_a_person_resumes_is_the_supervisors(world: PlanWorld) -> None:
    """Whoever parked it has left: `proctor plan resume`, or the same plan handed in, brings it to its end."""
    plan = Plan(goal="g", steps=(step("act"),), profile="enterprise")
    parked = await world.again(plan)
    assert parked.approval_id is not None
    world.answer(parked.approval_id)
    row = await asyncio.to_thread(world.plans.resume, plan.plan_id, by="ada")
    async with _working(world):
        done = await _until(world, row, _ended)
    assert done.stage is PlanState.COMPLETED
    assert world.ran.names == ["act"]


async def test_plan_that_its_process_resumes_itself_stays_its_own(world: PlanWorld) -> None:
    """A coordinator that goes on with its plan is not overtaken by the supervisor."""
    plan = Plan(goal="g", steps=(step("act"),), profile="enterprise")
    parked = await world.again(plan)
    assert parked.approval_id is not None
    world.answer(parked.approval_id)
    await asyncio.to_thread(world.plans.resume, plan.plan_id, by="ada", hand_over=False)
    async with _working(world) as desk:
        await asyncio.sleep(0.3)
        assert not await asyncio.to_thread(desk.waits)
        assert (await world.plans.go_on(plan.plan_id)).success
    assert world.ran.names == ["act"]


def _held_by(world: PlanWorld, row: PlanRow, owner: str) -> None:
    with world.database.write() as connection:
        mine = plans.c.plan_id == row.plan_id
        connection.execute(plans.update().where(mine).values(owner=owner, stage="executing"))


async def test_desk_takes_a_plan_from_a_process_only_when_that_is_gone(world: PlanWorld) -> None:
    """A living process keeps what it runs; of a dead one nothing is left behind."""
    row = _submit(world, step("look"))
    _held_by(world, row, f"{this_process()}|run_1")
    async with _working(world):
        await asyncio.sleep(0.3)
        assert world.ran.names == []
        _held_by(
            world, row, f"{this_process().rpartition('|')[0]}|1|run_1"
        )  # the same pid, begun at another time
        await _until(world, row, _ended)
    assert world.ran.names == ["look"]


async def test_plan_whose_process_is_gone_is_cancelled_at_once(world: PlanWorld) -> None:
    """Nobody is left to ask."""
    row = _submit(world, step("look"))
    _held_by(world, row, f"{this_process().rpartition('|')[0]}|1|run_1")
    assert world.plans.cancel(row.plan_id, by="ada").stage is PlanState.CANCELLED
