"""A process to kill in the middle of the gate: it ends itself at the n-th statement or commit, like a pulled plug,
on the ordinary way and in the quick lane alike.

Two stories: `lease` runs three calls; `approval` asks, answers and runs. Whoever survives tells the same story again,
with the same keys, on the same database.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proctor.gate.context import Context
from proctor.protocol.tools import CallResult
from proctor.store.database import Database
from tests.faults.forking import spawn
from tests.gate.world import Inputs, World

__all__ = ["EXITED", "Order", "start", "tell"]

EXITED = 86


@dataclass(frozen=True)
class Order:
    """What the victim is to do, and at which point it dies; None: it lives and writes down how many there are."""

    database_url: str
    home: Path
    story: str
    point: int | None


def start(order: Order) -> BaseProcess:
    """Start a victim."""
    return spawn(_main, order)


def _main(order: Order) -> None:
    database = Database(order.database_url)
    points = quick = 0

    def pull(*_facts: Any) -> None:
        nonlocal points
        points += 1
        if points == order.point:
            os._exit(EXITED)

    def pull_quickly(moment: str) -> None:
        nonlocal quick
        quick += moment == "committed"
        pull()

    for moment in ("before_cursor_execute", "after_cursor_execute", "commit"):
        sa.event.listen(database.engine, moment, pull)
    database.watch = pull_quickly
    world = World(database, order.home)
    asyncio.run(tell(world, order.story))
    world.close()
    (order.home / "points").write_text(str(points))
    (order.home / "quick").write_text(str(quick))


async def tell(world: World, story: str) -> list[CallResult]:
    """Go through the story to its end; what was interrupted is asked, and the person says yes."""

    def effect(_context: Context, inputs: Inputs) -> None:
        with (world.workspace.parent / "effects").open("a") as ledger:
            ledger.write(f"{inputs.content}\n")

    world.ran.act = effect
    tools = ("act", "look", "ask_model") if story == "lease" else ("send",)
    return [await _until_done(world, tool) for tool in tools]


async def _until_done(world: World, tool: str) -> CallResult:
    for _ in range(4):
        result = await world.run(
            tool, inputs={"content": tool}, idempotency_key=f"key-{tool}", task_id="task_1"
        )
        if not result.waiting:
            return result
        status = next(row["status"] for row in world.questions if row["approval_id"] == result.approval_id)
        if status == "pending":
            world.answer(result.approval_id or "")
    raise AssertionError(f"{tool} never came to its end")
