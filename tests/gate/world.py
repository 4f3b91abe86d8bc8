"""A gate with its own database, workspace and a handful of small real tools, for tests of the door."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict

from proctor.config import Settings, load_settings
from proctor.gate.approvals import Answered, answer
from proctor.gate.context import Context
from proctor.gate.gate import Gate
from proctor.gate.grants import Scope
from proctor.gate.humans import user_at_terminal
from proctor.gate.snapshots import Snapshots
from proctor.protocol.errors import RefusedError
from proctor.protocol.events import ActorKind, Event
from proctor.protocol.tools import Actor, Call, CallResult, Runs, SideEffect, Tool, Usage, Writes
from proctor.sandbox.spec import Level
from proctor.store.database import Database
from proctor.store.tables import approvals, budget_nodes, calls
from proctor.tools.registry import Registry, declare
from proctor.trace.reader import stream
from proctor.trace.redact import Redactor
from proctor.trace.writer import Observer, TraceWriter
from proctor.workspace.backups import Backups
from proctor.workspace.files import Root

__all__ = ["AGENT", "HUMAN", "KEY", "PROCTOR", "Inputs", "Output", "TroubleError", "World", "small_tools"]

KEY = b"k" * 32
AGENT = Actor(ActorKind.AGENT, "forge")
HUMAN = Actor(ActorKind.HUMAN, "ada")
PROCTOR = Actor(ActorKind.PROCTOR, "proctor")


class MovedClock:
    """The real time, with a distance that a test can change."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        """The time it is for the gate."""
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


class Inputs(BaseModel):
    """What the small tools take."""

    model_config = ConfigDict(extra="forbid")

    path: str = "note.txt"
    content: str = "text\n"
    command: str = "true"


class Output(BaseModel):
    """What they give."""

    did: str


@dataclass
class Ran:
    """What really ran, and what the handler is to do."""

    names: list[str] = field(default_factory=list)
    act: Callable[[Context, Inputs], Any] | None = None


def small_tools(ran: Ran) -> list[Tool]:
    """read, write, command, send (irreversible), ask_model (costs money), crm (only other adapters)."""

    def handler(name: str) -> Callable[[Context, Inputs], Any]:
        async def handle(context: Context, inputs: Inputs) -> Output:
            ran.names.append(name)
            if ran.act is not None:
                done = ran.act(context, inputs)
                if asyncio.iscoroutine(done):
                    done = await done
                if isinstance(done, BaseModel):
                    return done  # type: ignore[return-value]  # a test gives a wrong one on purpose
            return Output(did=name)

        return handle

    async def write(context: Context, inputs: Inputs) -> Output:
        ran.names.append("write")
        with Root(context.root) as root:
            root.write_atomic(inputs.path, inputs.content.encode(), permit=context.permit)
        return Output(did="write")

    def small(name: str, effect: SideEffect, **more: Any) -> Tool:
        domain = more.pop("domain", "engagement")
        return declare(
            name=name,
            summary=name,
            input=Inputs,
            output=Output,
            domain=domain,
            side_effect=effect,
            handler=more.pop("handler", handler(name)),
            **more,
        )

    return [
        small("look", SideEffect.READ_ONLY, mock=handler("look-mock")),
        small(
            "propose",
            SideEffect.PROPOSE,
            mock=handler("propose-mock"),
            adapters={"hubspot": handler("hubspot")},
        ),
        small("act", SideEffect.EXECUTE),
        small("send", SideEffect.EXECUTE, reversible=False),
        small("slow", SideEffect.READ_ONLY, seconds=0.2),
        small("ask_model", SideEffect.READ_ONLY, domain="agent", estimate=lambda _: Usage(100, 500)),
        small("free_model", SideEffect.READ_ONLY, domain="agent", estimate=lambda _: Usage(100, None)),
        small(
            "write",
            SideEffect.PROPOSE,
            domain="filesystem",
            handler=write,
            touches=lambda inputs: (Writes(inputs.path, inputs.content.encode()),),
        ),
        small(
            "command", SideEffect.EXECUTE, domain="command", touches=lambda inputs: (Runs(inputs.command),)
        ),
    ]


class World:
    """Everything a test of the gate needs."""

    def __init__(
        self,
        database: Database,
        home: Path,
        *,
        toml: str = "",
        local: str = "",
        level: Level = Level.LANDLOCK,
        observer: Observer | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.database = database
        self.clock = MovedClock()
        self.workspace = home / "project"
        self.workspace.mkdir(exist_ok=True)
        (self.workspace / "proctor.toml").write_text(toml)
        if local:
            (self.workspace / "proctor.local.toml").write_text(local)
        self.environ = dict(environ or {"HOME": str(home)})
        self.redactor = Redactor(key=KEY, known=("hunter2-hunter2",))
        self.writer = TraceWriter(database, key=KEY, redactor=self.redactor, observer=observer)
        self.ran = Ran()
        self.registry = Registry(small_tools(self.ran))
        self.backups = Backups(self.settings().paths.backups_dir)
        self.gate = Gate(
            tools=self.registry,
            database=database,
            writer=self.writer,
            redactor=self.redactor,
            settings_for=self.settings,
            snapshots=Snapshots(self.backups),
            clock=self.clock,
            level=lambda: level,
        )

    def settings(self, _workspace: Path | None = None) -> Settings:
        """The settings of the workspace."""
        return load_settings(self.workspace, self.environ)

    def call(
        self, tool: str, actor: Actor = AGENT, inputs: Mapping[str, Any] | None = None, **more: Any
    ) -> Call:
        """A call in one trace."""
        given = {"workspace": self.workspace, "trace_id": "trace_t", **more}
        return Call(tool=tool, inputs=inputs or {}, actor=actor, **given)

    async def run(self, tool: str, actor: Actor = AGENT, **more: Any) -> CallResult:
        """Run a call."""
        hold = more.pop("hold_s", 0.0)
        return await self.gate.run(self.call(tool, actor, **more), hold_s=hold)

    async def asked(self) -> None:
        """Wait until a question is there."""
        async with asyncio.timeout(60):
            while not self.questions:  # noqa: ASYNC110 - facts of a database have no event
                await asyncio.sleep(0.01)

    def answer(
        self, approval_id: str, approved: bool = True, *, reason: str = "", grant: Scope | None = None
    ) -> Answered:
        """Answer as the user."""
        token = self.settings().paths.token_file
        who = user_at_terminal(self.environ, token_file=token, name="ada")
        return self.writer.transact(
            lambda c: answer(
                c, approval_id, approved=approved, by=who, reason=reason, grant=grant, now=self.clock.now()
            )
        )

    def events(self, *names: str) -> list[Event]:
        """The events of these names, in order."""
        return [event for event in stream(self.database, "trace_t") if not names or event.event in names]

    def rows(self, table: sa.Table) -> list[dict[str, Any]]:
        """All rows of a table."""
        with self.database.read() as connection:
            return [dict(row) for row in connection.execute(table.select()).mappings()]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """All calls."""
        return self.rows(calls)

    @property
    def questions(self) -> list[dict[str, Any]]:
        """All approvals."""
        return sorted(self.rows(approvals), key=lambda row: str(row["requested_at"]))

    def hold(self) -> tuple[asyncio.Event, asyncio.Event]:
        """Let tools begin and then wait: one has begun, and may go on."""
        began, go = asyncio.Event(), asyncio.Event()

        async def wait(_context: Context, _inputs: Inputs) -> None:
            began.set()
            await go.wait()

        self.ran.act = wait
        return began, go

    def used(self, node: str = "session:trace_t") -> dict[str, Any]:
        """What a node has used in all."""
        return next(row for row in self.rows(budget_nodes) if row["bucket_id"] == f"{node}/")

    def close(self) -> None:
        """Write what is on its way."""
        self.writer.close()


class TroubleError(RefusedError):
    """Refused: trouble. Calm down."""

    code = "trouble"
