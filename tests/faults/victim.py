"""A process to kill: an executor on given databases that may end itself after so many events, like a pulled plug."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from proctor.agents.driver import AttemptEnd, AttemptRequest, Outcome
from proctor.agents.scripted import ScriptedDriver
from proctor.engine.dispatch import Capacity
from proctor.engine.executor import Executor, Parts
from proctor.engine.liveness import open_lease
from proctor.engine.supervisor import Supervisor
from proctor.protocol.events import Event
from proctor.store.database import Database
from proctor.testing.instant import InstantDriver, InstantRun
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter
from tests.engine.conftest import KEY, Book, Scratch
from tests.faults.forking import spawn

__all__ = ["EXITED", "Order", "kill", "start"]

EXITED = 86
AGENTS = ("a", "b", "c")


@dataclass(frozen=True)
class Order:
    """What the victim is to do."""

    database_url: str
    engine_url: str
    root: Path
    home: Path
    exit_after: int | None = None
    """End with os._exit after so many events are on disk."""
    ttl: float = 1.0
    work_s: float = 0.0
    slots: int = 4
    workers: int = 16
    scripted: bool = False
    """Real processes of the scripted agent instead of an effect in this one."""
    supervised: bool = False
    """Come back with a new executor when one is lost, as the real supervisor does."""


class ExitAfter:
    """Counts events that are on disk and pulls the plug."""

    def __init__(self, count: int | None) -> None:
        self._left = count

    def batch(self, events: Sequence[Event], seconds: float) -> None:
        """Notice a committed batch."""
        if self._left is None:
            return
        self._left -= len(events)
        if self._left <= 0:
            os._exit(EXITED)


def start(order: Order) -> BaseProcess:
    """Start a victim."""
    return spawn(_main, order)


def kill(process: BaseProcess) -> None:
    """kill -9, and wait for it to be gone."""
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join(10)


def _main(order: Order) -> None:
    faulthandler.register(signal.SIGUSR1)
    asyncio.run(_execute(order))


async def _execute(order: Order) -> None:
    database = Database(order.database_url)
    writer = TraceWriter(database, key=KEY, redactor=Redactor(key=KEY), observer=ExitAfter(order.exit_after))
    if order.supervised:
        make = lambda: Executor(_parts(order, database, writer))  # noqa: E731 - as `app` does it
        await Supervisor(make, writer, kind="victim", idle_s=None).run()
    else:
        executor = Executor(_parts(order, database, writer))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, executor.stop)
        await executor.run()
    writer.close()
    database.close()


def _parts(order: Order, database: Database, writer: TraceWriter) -> Parts:
    async def work(request: AttemptRequest, run: InstantRun) -> AttemptEnd:
        """The effect: one line per begun run; a completed task must never get another."""
        line = f"{time.time():.6f} {request.task_id} {request.attempt}\n"
        with (order.root / "effects").open("a") as ledger:
            ledger.write(line)
        await asyncio.sleep(order.work_s)
        return AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)

    return Parts(
        database=database,
        writer=writer,
        engine_url=order.engine_url,
        lease=open_lease(database, order.home / "executors", kind="victim", ttl=order.ttl),
        book=Book(dict.fromkeys(AGENTS, ScriptedDriver() if order.scripted else InstantDriver(work))),
        places=Scratch(order.root / "places"),
        capacity=lambda _: Capacity(dict.fromkeys(AGENTS, order.slots)),
        workers=order.workers,
    )
