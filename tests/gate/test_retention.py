"""Old calls leave with their leases and budget rows; what is open, held or asked stays; the dead are charged."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from proctor.gate.calls import reap_dead
from proctor.gate.grants import Scope
from proctor.gate.retention import prune_calls
from proctor.store.tables import attempts, budget_nodes, grants, leases, task_queue
from tests.gate.world import World


async def test_old_calls_leave_and_open_ones_stay(world: World) -> None:
    """After pruning nothing of an ended run is left but its trace and its questions; a waiting call is untouched."""
    for number in range(3):
        assert (await world.run("look", trace_id=f"trace_{number}")).ok
    asked = await world.run("send")
    later = world.clock.now() + timedelta(days=2)
    assert prune_calls(world.database, older_than=world.clock.now() - timedelta(days=1)) == 0
    assert prune_calls(world.database, older_than=later, dry_run=True) == 3
    assert prune_calls(world.database, older_than=later) == 3
    assert [row["approval_id"] for row in world.calls] == [asked.approval_id]
    assert world.rows(leases) == []
    assert world.rows(budget_nodes) == []
    world.answer(asked.approval_id or "")
    assert (await world.run("send")).ok
    assert prune_calls(world.database, older_than=later) == 1
    assert len(world.questions) == 1


async def test_running_call_is_never_pruned(world: World) -> None:
    """Neither its row nor the budget it holds."""
    began, go = world.hold()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(world.run("look", task_id="task_1"))
        await began.wait()
        assert prune_calls(world.database, older_than=world.clock.now() + timedelta(days=9)) == 0
        assert world.used()["held_calls"] == 1
        go.set()
    assert running.result().ok
    assert (world.used()["held_calls"], world.used()["used_calls"]) == (0, 1)


async def test_lease_of_an_ended_attempt_is_reaped_after_a_while(world: World) -> None:
    """An attempt that ended a minute ago holds nothing any more; one that just ended may still settle."""
    began, go = world.hold()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.run("look", task_id="task_1", attempt=1))
        await began.wait()
        ended = world.clock.now()
        with world.database.write() as connection:
            connection.execute(task_queue.insert().values(task_id="task_1", description="x"))
            row = {"task_id": "task_1", "attempt": 1, "agent_name": "forge", "owner": "o", "ended_at": ended}
            connection.execute(attempts.insert().values(row))
        soon, later = ended + timedelta(seconds=10), ended + timedelta(seconds=70)
        assert world.writer.transact(lambda c: reap_dead(c, soon)) == 0
        assert world.writer.transact(lambda c: reap_dead(c, later)) == 1
        assert world.writer.transact(lambda c: reap_dead(c, later)) == 0
        assert (world.used()["held_calls"], world.used()["used_calls"]) == (0, 1)
        assert world.calls[0]["state"] == "interrupted"
        go.set()
    # It did come to its end after all: that is written, and not charged again.
    assert world.calls[0]["state"] == "ended"
    assert (world.used()["held_calls"], world.used()["used_calls"]) == (0, 1)


async def test_holder_named_dead_is_charged(world: World) -> None:
    """An executor that others know to be dead, on another machine, is reaped by name."""
    async with world.gate.open(world.call("ask_model")):
        with world.database.write() as connection:
            connection.execute(leases.update().values(holder="elsewhere|boot|1|1"))
        now = world.clock.now()
        assert world.writer.transact(lambda c: reap_dead(c, now)) == 0
        assert world.writer.transact(lambda c: reap_dead(c, now, dead=frozenset({"elsewhere|boot|1|1"}))) == 1
    row = world.used()
    assert (row["used_calls"], row["used_tokens"], row["used_micro_usd"]) == (1, 100, 500)


async def test_grants_of_old_tasks_leave_and_standing_ones_stay(world: World) -> None:
    """What was granted for one task or for half an hour goes when it is old; `always` stays until it is revoked."""
    fetch = {"command": "curl -O https://example.org/a"}
    for scope, task in ((Scope.TASK, "task_1"), (Scope.TIME, "task_2"), (Scope.ALWAYS, "task_3")):
        world.clock.ahead += timedelta(hours=1)
        asked = await world.run("command", inputs=fetch, task_id=task)
        world.answer(asked.approval_id or "", grant=scope)
    prune_calls(world.database, older_than=world.clock.now() - timedelta(days=1))
    assert len(world.rows(grants)) == 3
    prune_calls(world.database, older_than=world.clock.now() + timedelta(days=2))
    assert [row["scope"] for row in world.rows(grants)] == ["always"]
