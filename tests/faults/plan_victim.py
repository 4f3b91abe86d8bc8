"""A process to kill while it runs a plan: it ends itself after so many events, like a pulled plug."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from pydantic import BaseModel

from proctor.config import load_settings
from proctor.engine.liveness import LeaseKeeper, open_lease
from proctor.engine.plan_desk import PlanDesk
from proctor.engine.plan_run import Doors
from proctor.engine.plans import Plans
from proctor.gate.context import Context
from proctor.gate.gate import Gate
from proctor.protocol.states import PLAN
from proctor.protocol.tools import SideEffect
from proctor.sandbox.spec import Level
from proctor.store.database import Database
from proctor.tools.registry import Registry, declare
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter
from tests.engine.conftest import KEY
from tests.faults.forking import spawn
from tests.faults.victim import ExitAfter

__all__ = ["LOST", "PlanOrder", "front", "start"]

LOST = 3


@dataclass(frozen=True)
class PlanOrder:
    """What the victim is to do."""

    database_url: str
    root: Path
    plan_id: str
    exit_after: int | None


class Number(BaseModel):
    """Which step it is."""

    number: int


def front(database: Database, writer: TraceWriter, root: Path) -> Plans:
    """Plans with one real tool, whose effect is a line of a ledger."""
    redactor = Redactor(key=KEY)
    settings = load_settings(root, {"HOME": str(root)})

    async def count(_context: Context, inputs: Number) -> Number:
        with (root / "effects").open("a") as ledger:
            ledger.write(f"{inputs.number} {time.time():.6f}\n")
        return inputs

    registry = Registry(
        [
            declare(
                name="count",
                summary="count",
                input=Number,
                output=Number,
                domain="test",
                side_effect=SideEffect.READ_ONLY,
                handler=count,
            )
        ]
    )

    def gate(tools: Registry) -> Gate:
        return Gate(
            tools=tools,
            database=database,
            writer=writer,
            redactor=redactor,
            settings_for=lambda _: settings,
            level=lambda: Level.LIMITS,
        )

    doors = Doors(gate(registry), registry.__contains__, gate)  # type: ignore[arg-type]  # no stand-in is asked for
    return Plans(database=database, writer=writer, doors=doors, settings_for=lambda _: settings)


def start(order: PlanOrder) -> BaseProcess:
    """Start a victim."""
    return spawn(_main, order)


def _main(order: PlanOrder) -> None:
    asyncio.run(_execute(order))


async def _execute(order: PlanOrder) -> None:
    database = Database(order.database_url)
    writer = TraceWriter(database, key=KEY, redactor=Redactor(key=KEY), observer=ExitAfter(order.exit_after))
    plans = front(database, writer, order.root)
    lease = open_lease(database, order.root / "executors", kind="victim", ttl=1.0)
    keeper = LeaseKeeper(lease, lambda: os._exit(LOST))
    await asyncio.to_thread(keeper.begin)
    desk = PlanDesk(plans, lease)
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.run())
        while plans.get(order.plan_id).stage not in PLAN.terminal:  # noqa: ASYNC110 - a fact of the database
            await asyncio.sleep(0.02)
        desk.stop()
    await asyncio.to_thread(keeper.end)
    writer.close()
    database.close()
