"""One measured run of the engine or of bare DBOS, in a process of its own: `python -m bench.engine_runs NAME …`.

Prints one line of JSON. Bare DBOS gets the same engine factory, serializer, pool and queue settings as ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from proctor.agents.driver import AttemptEnd, AttemptRequest, Outcome
from proctor.engine.attempts import Agent, Place
from proctor.engine.claims import Claim, Work
from proctor.engine.dispatch import Capacity
from proctor.engine.executor import Executor, Parts
from proctor.engine.liveness import open_lease
from proctor.engine.tasks import NewTask, Tasks
from proctor.store.database import Database
from proctor.store.schema import open_database
from proctor.store.tables import task_history
from proctor.testing.instant import InstantDriver, InstantRun
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter

__all__ = ["main"]

KEY = b"k" * 32
WORKERS = 64


class Book:
    """One agent."""

    def __init__(self, driver: InstantDriver) -> None:
        self._agent = Agent("instant", driver)

    def agent(self, name: str, workspace: str | None) -> Agent:
        """It."""
        return self._agent

    def replace(self, driver: InstantDriver) -> None:
        """Another behaviour from now on."""
        self._agent = Agent("instant", driver)


class Nowhere:
    """One directory for all: no worktree is part of what is measured."""

    def __init__(self, root: Path) -> None:
        self._place = Place(root, root, root)

    async def prepare(self, claim: Claim) -> Place:
        """It."""
        return self._place

    async def collect(self, claim: Claim, place: Place, end: AttemptEnd) -> Work:
        """Nothing was done."""
        return Work()


class House:
    """Our engine on given databases."""

    def __init__(self, url: str, engine_url: str, root: Path, *, ttl: float = 15.0) -> None:
        self.database: Database = open_database(url, migrate=True)
        self.writer = TraceWriter(self.database, key=KEY, redactor=Redactor(key=KEY))
        self.tasks = Tasks(self.database, self.writer)
        self.book = Book(InstantDriver())
        lease = open_lease(self.database, root / "executors", kind="bench", ttl=ttl)
        self.executor = Executor(
            Parts(
                database=self.database,
                writer=self.writer,
                engine_url=engine_url,
                lease=lease,
                book=self.book,
                places=Nowhere(root),
                capacity=lambda _: Capacity({"instant": WORKERS}),
                workers=WORKERS,
            )
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the block lasts."""
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.executor.run(ready.set))
            await ready.wait()
            yield
            self.executor.stop()

    def ended(self) -> int:
        """How many attempts are in the history."""
        import sqlalchemy as sa

        with self.database.read() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(task_history)).scalar_one())


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _until(done: Callable[[], bool], seconds: float = 300.0) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(done):  # noqa: ASYNC110 - a database has no event
            await asyncio.sleep(0.02)


def _rates(count: int, began: float, cpu: float) -> dict[str, float]:
    seconds = time.perf_counter() - began
    return {"per_s": round(count / seconds, 1), "cpu_ms_each": round((_cpu() - cpu) * 1000 / count, 2)}


async def ours(url: str, engine_url: str, root: str, count: str) -> dict[str, Any]:
    """A full queue is worked off: claim, events, history, end."""
    number, house = int(count), House(url, engine_url, Path(root))
    began = time.perf_counter()
    house.tasks.add_many([NewTask(f"no-op {n}", agent="instant") for n in range(number)])
    added = number / (time.perf_counter() - began)
    began, cpu = time.perf_counter(), _cpu()
    async with house.running():
        launched = time.perf_counter() - began
        await _until(lambda: house.ended() >= number)
        found = _rates(number, began + launched, cpu)
    house.writer.close()
    return {**found, "added_per_s": round(added), "threads": threading.active_count()}


async def bare(engine_url: str, count: str, poll: str) -> dict[str, Any]:
    """The same number of workflows with one no-op step each, with DBOS alone."""
    from dbos import DBOS, DBOSPortableJSONSerializer

    from proctor.engine.runtime import MAX_THREADS, engine_database

    number, engine = int(count), engine_database(engine_url)

    @DBOS.step()
    async def step(n: int) -> str:
        return "done"

    @DBOS.workflow(name="noop")
    async def workflow(n: int) -> str:
        return await step(n)

    DBOS(
        config={
            "name": "bare",
            "system_database_url": engine_url,
            "system_database_engine": engine,
            "executor_id": "bare",
            "application_version": "bare-1",
            "max_executor_threads": MAX_THREADS,
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    interval = float(poll)
    queue = await DBOS.register_queue_async("noops", worker_concurrency=0, polling_interval_sec=interval)
    began = time.perf_counter()
    for n in range(number):
        await DBOS.enqueue_workflow_async("noops", workflow, n)
    added = number / (time.perf_counter() - began)
    await asyncio.sleep(1.5)  # the new queue is found once per second
    cpu = _cpu()
    await queue.set_worker_concurrency_async(WORKERS)
    began = time.perf_counter()

    def left() -> bool:
        return not DBOS.list_workflows(
            status=["ENQUEUED", "PENDING"], limit=1, load_input=False, load_output=False
        )

    await _until(left)
    found = _rates(number, began, cpu)
    with contextlib.suppress(RuntimeError):
        await asyncio.to_thread(DBOS.destroy)
    return {**found, "added_per_s": round(added), "threads": threading.active_count()}


async def latency(url: str, engine_url: str, root: str, count: str) -> dict[str, Any]:
    """From the return of `add` and the wake-up to the first step of the agent, on an idle queue."""
    house, took, added = House(url, engine_url, Path(root)), [], 0.0

    async def note(_request: AttemptRequest, _run: InstantRun) -> AttemptEnd:
        took.append(time.perf_counter() - added)
        return AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)

    house.book.replace(InstantDriver(note))
    async with house.running():
        await asyncio.sleep(1.5)
        for number in range(int(count)):
            await asyncio.to_thread(house.tasks.add, NewTask("no-op", agent="instant"))
            added = time.perf_counter()
            house.executor.wake()
            await _until(lambda number=number: house.ended() > number)  # type: ignore[misc]
            await asyncio.sleep(0.15)
    house.writer.close()
    cuts = statistics.quantiles(took, n=20)
    return {"p50_ms": round(statistics.median(took) * 1000, 1), "p95_ms": round(cuts[18] * 1000, 1)}


async def takeover(url: str, engine_url: str, root: str) -> dict[str, Any]:
    """From kill -9 of an executor to the takeover of its attempt by one that already runs."""
    lease = 3.0
    open_database(url, migrate=True).close()
    code = "import sys; from bench.engine_runs import victim; victim(*sys.argv[1:])"
    command = [sys.executable, "-c", code, url, engine_url, root, str(lease)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    house = House(url, engine_url, Path(root), ttl=lease)
    task = await asyncio.to_thread(house.tasks.add, NewTask("hang", agent="instant"))
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), 60)
    taken = asyncio.Event()

    async def note(_request: AttemptRequest, _run: InstantRun) -> AttemptEnd:
        taken.set()
        return AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)

    house.book.replace(InstantDriver(note))
    async with house.running():
        await asyncio.sleep(2.0)
        process.kill()
        began = time.perf_counter()
        await asyncio.wait_for(taken.wait(), 60)
        seconds = time.perf_counter() - began
        await _until(lambda: house.ended() == 1)
    await process.wait()
    house.writer.close()
    assert house.tasks.get(task.task_id).attempt == 1
    return {"seconds": round(seconds, 2), "lease": lease}


def victim(url: str, engine_url: str, root: str, lease: str) -> None:
    """An executor whose agent hangs, to be killed."""

    async def hang(_request: AttemptRequest, _run: InstantRun) -> AttemptEnd:
        print("hangs", flush=True)
        await asyncio.sleep(600)
        raise AssertionError("nobody killed it")

    async def live() -> None:
        house = House(url, engine_url, Path(root), ttl=float(lease))
        house.book.replace(InstantDriver(hang))
        await house.executor.run()

    asyncio.run(live())


def main(argv: list[str]) -> int:
    """Run one by name."""
    name, *arguments = argv
    runs: dict[str, Callable[..., Any]] = {
        "ours": ours,
        "bare": bare,
        "latency": latency,
        "takeover": takeover,
    }
    print(json.dumps(asyncio.run(runs[name](*arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
