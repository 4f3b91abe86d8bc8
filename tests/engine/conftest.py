"""A real executor inside the test's event loop, on both databases, with drivers that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from proctor.agents.driver import AttemptEnd, Driver
from proctor.engine.attempts import Agent, Place
from proctor.engine.claims import Claim, Work
from proctor.engine.dispatch import Capacity
from proctor.engine.executor import Executor, Parts
from proctor.engine.liveness import open_lease
from proctor.engine.tasks import Task, Tasks
from proctor.protocol.errors import NotFoundError
from proctor.protocol.states import TASK
from proctor.store.database import Database
from proctor.testing.instant import InstantDriver
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter
from tests.support.rows import NOON

KEY = b"k" * 32


@dataclass
class FakeClock:
    """A clock that goes only when the test says so."""

    moment: datetime = NOON

    def now(self) -> datetime:
        """What it shows."""
        return self.moment

    def monotonic(self) -> float:
        """The same, as seconds."""
        return self.moment.timestamp()

    def forward(self, **more: float) -> None:
        """Let time pass, or jump back."""
        self.moment += timedelta(**more)


@dataclass(frozen=True)
class Book:
    """Agents as the test names them."""

    drivers: dict[str, Driver]

    def agent(self, name: str, workspace: str | None) -> Agent:
        """One of them."""
        if name not in self.drivers:
            raise NotFoundError(kind="agent", name=name, cure="See `proctor agents list --all`.")
        return Agent(name, self.drivers[name])


@dataclass(frozen=True)
class Scratch:
    """A directory per task."""

    root: Path

    async def prepare(self, claim: Claim) -> Place:
        """Make it."""
        place = self.root / claim.task.task_id
        for part in ("work", "tmp", "state"):
            (place / part).mkdir(parents=True, exist_ok=True)
        return Place(place / "work", place / "tmp", place / "state")

    async def collect(self, claim: Claim, place: Place, end: AttemptEnd) -> Work:
        """Leave everything there."""
        return Work(files=sorted(path.name for path in place.directory.iterdir()))


@dataclass
class House:
    """Everything a test of the engine needs."""

    database: Database
    writer: TraceWriter
    root: Path
    engine_url: str
    tasks: Tasks
    drivers: dict[str, Driver] = field(default_factory=lambda: {"instant": InstantDriver()})
    slots: int = 8

    def executor(self, **more: object) -> Executor:
        """An executor of its own, as another process would have."""
        lease = open_lease(self.database, self.root / "executors", kind="test", ttl=20.0)
        parts = Parts(
            database=self.database,
            writer=self.writer,
            engine_url=self.engine_url,
            lease=lease,
            book=Book(self.drivers),
            places=Scratch(self.root / "places"),
            capacity=lambda _: Capacity(dict.fromkeys(self.drivers, self.slots)),
            **more,  # type: ignore[arg-type]  # the test names fields of Parts
        )
        return Executor(parts)

    @asynccontextmanager
    async def running(self, **more: object) -> AsyncIterator[Executor]:
        """An executor that works while the block lasts."""
        executor = self.executor(**more)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(executor.run())
            try:
                yield executor
            finally:
                executor.stop()
                await asyncio.wait_for(work, 30)

    async def until(self, what: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for a fact, with an end."""
        async with asyncio.timeout(seconds):
            while not await asyncio.to_thread(what):  # noqa: ASYNC110 - facts of a database have no event
                await asyncio.sleep(0.02)

    async def ended(self, *task_ids: str, seconds: float = 60.0) -> list[Task]:
        """Wait until these tasks have ended."""
        await self.until(lambda: all(self.tasks.get(t).status in TASK.terminal for t in task_ids), seconds)
        return [self.tasks.get(task_id) for task_id in task_ids]


@pytest.fixture
def house(database: Database, tmp_path: Path) -> Iterator[House]:
    """A queue, a trace and room for executors on this database."""
    url = database.url.render_as_string(hide_password=False)
    engine_url = f"sqlite:///{tmp_path}/engine.db" if database.dialect == "sqlite" else url
    with TraceWriter(database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        yield House(database, writer, tmp_path, engine_url, Tasks(database, writer))
