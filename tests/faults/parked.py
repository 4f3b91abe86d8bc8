"""A process that parks many questions and says what that costs: `python -m tests.faults.parked URL ENGINE ROOT COUNT`.

Prints one line of JSON: threads, memory and statements per second with a few and with many parked, and what was answered.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proctor.engine.dispatch import Capacity
from proctor.engine.executor import Executor, Parts
from proctor.engine.liveness import open_lease
from proctor.engine.tasks import NewTask, Tasks
from proctor.store.database import Database
from proctor.store.tables import approvals, task_queue
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter
from tests.engine.asking import AskingDriver
from tests.engine.conftest import KEY, Book, Scratch

__all__ = ["main"]

# Enough to fill pools and caches: what comes on top is what being parked costs.
FEW = 300
WATCH_SECONDS = 4.0


class Probe:
    """An executor whose agents ask and are parked at once."""

    def __init__(self, url: str, engine_url: str, root: Path) -> None:
        self.database = Database(url)
        self.writer = TraceWriter(self.database, key=KEY, redactor=Redactor(key=KEY))
        self.tasks = Tasks(self.database, self.writer)
        self.driver = AskingDriver()
        self.statements = 0
        sa.event.listen(self.database.engine, "after_cursor_execute", self._count)
        self.executor = Executor(
            Parts(
                database=self.database,
                writer=self.writer,
                engine_url=engine_url,
                lease=open_lease(self.database, root / "executors", kind="probe"),
                book=Book({"asking": self.driver}),
                places=Scratch(root / "places"),
                capacity=lambda _: Capacity({"asking": 16}),
                hold_s=0.0,
            )
        )

    def _count(self, *_: Any) -> None:
        self.statements += 1

    def status(self, status: str) -> int:
        """How many tasks have it."""
        query = sa.select(sa.func.count()).where(task_queue.c.status == status)
        with self.database.read() as connection:
            return int(connection.execute(query).scalar_one())

    async def park(self, count: int) -> dict[str, float]:
        """Park so many more; what an idle executor then costs."""
        already = self.status("awaiting_approval")
        self.tasks.add_many([NewTask("ask", agent="asking") for _ in range(count)])
        self.executor.wake()
        await _until(lambda: self.status("awaiting_approval") == already + count)
        self.driver.requests.clear()
        await asyncio.sleep(3.0)
        gc.collect()
        before = self.statements
        await asyncio.sleep(WATCH_SECONDS)
        rate = (self.statements - before) / WATCH_SECONDS
        facts = {"rss_mb": _rss(), "threads": float(threading.active_count())}
        return {**facts, "tasks": float(len(asyncio.all_tasks())), "statements_per_s": rate}

    async def answer(self, count: int) -> int:
        """Approve some; how many of them then complete."""
        few = sa.select(approvals.c.approval_id).where(approvals.c.status == "pending").limit(count)
        with self.database.write() as connection:
            ids = list(connection.execute(few).scalars())
            chosen = approvals.update().where(approvals.c.approval_id.in_(ids))
            connection.execute(chosen.values(status="approved"))
        self.executor.wake()
        await _until(lambda: self.status("completed") == count)
        return len(self.driver.done)


async def _until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not await asyncio.to_thread(fact):  # noqa: ASYNC110 - facts of a database have no event
            await asyncio.sleep(0.05)


def _rss() -> float:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096 / 1e6


async def main(url: str, engine_url: str, root: str, count: str) -> dict[str, Any]:
    """Measure."""
    probe = Probe(url, engine_url, Path(root))
    async with asyncio.TaskGroup() as group:
        group.create_task(probe.executor.run())
        few = await probe.park(FEW)
        many = await probe.park(int(count))
        answered = await probe.answer(20)
        probe.executor.stop()
    probe.writer.close()
    return {"few": few, "many": many, "answered": answered}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))) + "\n")
