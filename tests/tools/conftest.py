"""A desk at which tests call tools: a workspace, databases, and a permit for every call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proctor.config import Settings, load_settings
from proctor.gate.context import Context, ProgressCallback
from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Actor, Call
from proctor.sandbox.process import close_idle_keepers
from proctor.store.database import Database
from proctor.testing.permits import permit_for_tests
from proctor.tools.catalog import standard_registry
from proctor.tools.registry import Registry
from proctor.trace.writer import TraceWriter
from tests.trace.support import KEY, REDACTOR

HUMAN = Actor(ActorKind.HUMAN, "david")
AGENT = Actor(ActorKind.AGENT, "SOLACE")


@dataclass
class Desk:
    """Calls handlers as the gate does, without its rules: the families are tested here, the gate elsewhere."""

    registry: Registry
    settings: Settings
    database: Database
    writer: TraceWriter
    root: Path

    async def call(
        self,
        tool_name: str,
        /,
        *,
        actor: Actor = HUMAN,
        adapter: str = "real",
        cancel: asyncio.Event | None = None,
        progress: ProgressCallback | None = None,
        root: Path | None = None,
        **inputs: Any,
    ) -> dict[str, Any]:
        """Parse, judge nothing, run; give the output as JSON has it."""
        tool = self.registry.find(tool_name)
        parsed = self.registry.parse(tool, inputs)
        if tool.touches is not None:
            assert tool.touches(parsed) is not None
        extra: dict[str, Any] = {"progress": progress} if progress is not None else {}
        context = Context(
            call=Call(tool=tool.name, inputs=inputs, actor=actor, workspace=root or self.root),
            permit=permit_for_tests(tool.name, actor=actor.kind, single_use=tool.single_use),
            settings=self.settings,
            database=self.database,
            writer=self.writer,
            cancel=cancel or asyncio.Event(),
            **extra,
        )
        output = await tool.handlers[adapter](context, parsed)
        assert isinstance(output, tool.output)
        return output.model_dump(mode="json")


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
        return Desk(standard_registry(), settings, database, writer, workspace)

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
