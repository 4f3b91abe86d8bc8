"""A desk at which tests call tools through the real gate: a workspace, a database, and who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proctor.config import Settings, load_settings
from proctor.gate.context import ProgressCallback
from proctor.gate.gate import Gate
from proctor.gate.rulebook import SettingsShelf
from proctor.gate.snapshots import Snapshots
from proctor.protocol.errors import NotFoundError, ProctorError, RefusedError, UnavailableError, UsageError
from proctor.protocol.events import ActorKind
from proctor.protocol.ids import new_id
from proctor.protocol.tools import Actor, Call, CallResult
from proctor.sandbox.process import close_idle_keepers
from proctor.store.database import Database
from proctor.tools.catalog import standard_registry
from proctor.tools.registry import Registry
from proctor.trace.writer import TraceWriter
from proctor.workspace.backups import Backups
from tests.trace.support import KEY, REDACTOR

__all__ = ["AGENT", "HUMAN", "Desk", "FailedError", "MakeDesk"]

HUMAN = Actor(ActorKind.HUMAN, "david")
AGENT = Actor(ActorKind.AGENT, "SOLACE")


class FailedError(ProctorError):
    """{code}: {message}"""


class _RefusedError(FailedError, RefusedError):
    """{code}: {message}"""


class _MissingError(FailedError, NotFoundError):
    """{code}: {message}"""


class _UsageError(FailedError, UsageError):
    """{code}: {message}"""


class _AwayError(FailedError, UnavailableError):
    """{code}: {message}"""


_KINDS: dict[int, type[FailedError]] = {5: _RefusedError, 4: _MissingError, 2: _UsageError, 6: _AwayError}


@dataclass
class Desk:
    """Calls tools as a door does; what the gate answers with an error is raised as one of its kind."""

    registry: Registry
    settings: Settings
    database: Database
    writer: TraceWriter
    gate: Gate
    root: Path
    trace_id: str = field(default_factory=lambda: new_id("trace"))

    async def result(
        self,
        tool_name: str,
        /,
        *,
        actor: Actor = HUMAN,
        adapter: str = "real",
        profile: str = "standard",
        cancel: asyncio.Event | None = None,
        progress: ProgressCallback | None = None,
        root: Path | None = None,
        **inputs: Any,
    ) -> CallResult:
        """Pass the gate and give its whole answer."""
        call = Call(
            tool=tool_name,
            inputs=inputs,
            actor=actor,
            profile=profile,
            adapter=adapter,
            workspace=root or self.root,
            trace_id=self.trace_id,
        )
        return await self.gate.run(call, cancel=cancel, progress=progress)

    async def call(self, tool_name: str, /, **words: Any) -> dict[str, Any]:
        """Pass the gate and give the output; raises what went wrong."""
        done = await self.result(tool_name, **words)
        if done.error is not None:
            kind = _KINDS.get(done.error.exit_code, FailedError)
            raise kind(code=done.error.code, message=done.error.message)
        assert done.output is not None
        assert done.simulated == done.output["simulated"]
        return dict(done.output)


@pytest.fixture
def workspace(home: Path) -> Path:
    """A small project."""
    root = home / "project"
    (root / "src").mkdir(parents=True)
    (root / "proctor.toml").write_text("")
    (root / "src" / "app.py").write_text("print('hello')\n")
    (root / "README.md").write_text("# Project\n")
    return root


MakeDesk = Callable[[Database], Desk]


@pytest.fixture
def make_desk(workspace: Path) -> Iterator[MakeDesk]:
    """Make a desk on any database."""
    writers: list[TraceWriter] = []

    def make(database: Database) -> Desk:
        writer = TraceWriter(database, key=KEY, redactor=REDACTOR)
        writers.append(writer)
        settings = load_settings(workspace)
        registry = standard_registry()
        gate = Gate(
            tools=registry,
            database=database,
            writer=writer,
            redactor=REDACTOR,
            settings_for=SettingsShelf(settings, settings.environ).of,
            snapshots=Snapshots(Backups(settings.paths.backups_dir)),
        )
        return Desk(registry, settings, database, writer, gate, workspace)

    yield make
    for writer in writers:
        writer.close()
    close_idle_keepers()


@pytest.fixture
def desk(sqlite_database: Database, make_desk: MakeDesk) -> Desk:
    """A desk on SQLite."""
    return make_desk(sqlite_database)


@pytest.fixture
def each_desk(database: Database, make_desk: MakeDesk) -> Desk:
    """A desk on SQLite and one on PostgreSQL, in turn."""
    return make_desk(database)
