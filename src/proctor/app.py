"""The only file that wires concrete classes together. Everything is made when it is first asked for.

Reading commands use `database`; adding ones `tasks`; only a supervisor or worker asks for an executor, and only that
imports dbos.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.config import Settings, load_settings

if TYPE_CHECKING:
    from proctor.agents.model_chats import Chats
    from proctor.agents.model_driver import ModelDriver
    from proctor.engine.executor import Executor
    from proctor.engine.plans import Plans
    from proctor.engine.tasks import Tasks
    from proctor.gate.gate import Gate, Tools
    from proctor.gate.profiles import Profile
    from proctor.gate.repeats import Repeats
    from proctor.store.database import Database
    from proctor.tools.registry import Registry
    from proctor.trace.metrics import TraceMetrics
    from proctor.trace.redact import Redactor
    from proctor.trace.writer import TraceWriter

__all__ = ["App", "open_app"]


def open_app(start: Path | None = None) -> App:
    """The application with the settings that hold here."""
    return App(load_settings(start))


class App:
    """One process's house; `close` when done."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def database(self) -> Database:
        """Our tables, with a schema that fits."""
        from proctor.store.schema import open_database

        return open_database(self.settings.database_url)

    @cached_property
    def key(self) -> bytes:
        """The key that seals the trace; workers on several machines share it through the environment."""
        from proctor.trace.key import key_of

        return key_of(self.settings)

    @cached_property
    def writer(self) -> TraceWriter:
        """The hand on the log."""
        from proctor.trace.writer import TraceWriter

        # Who wants the counts asks for `metrics` before anything is written.
        observer = self.__dict__.get("metrics")
        return TraceWriter(self.database, key=self.key, redactor=self.redactor, observer=observer)

    @cached_property
    def metrics(self) -> TraceMetrics:
        """What the writer counts, for Prometheus; only servers ask."""
        from proctor.trace.metrics import TraceMetrics

        return TraceMetrics()

    @cached_property
    def redactor(self) -> Redactor:
        """What takes secrets out of everything that is written or shown."""
        from proctor.trace.redact import Redactor

        return Redactor(key=self.key, known=self.settings.secrets)

    @cached_property
    def registry(self) -> Registry:
        """Every tool there is."""
        from proctor.engine.control_tools import whole_registry

        return whole_registry("pwsh" if self.settings.shell == "pwsh" else "bash", self._wake)

    @cached_property
    def wake(self) -> Callable[[], object]:
        """Tells whoever executes that there may be something to do; a server that executes itself sets its own."""
        from proctor.engine import client

        return lambda: client.ensure(self.settings)

    def _wake(self) -> object:
        return self.wake()  # whoever sets another after the tools were made is heard too

    @cached_property
    def repeats(self) -> Repeats:
        """Knows which earlier call a repeated one is."""
        from proctor.gate.repeats import Repeats

        return Repeats(tools=self.registry, database=self.database, settings_for=self.settings_for)

    @cached_property
    def gate(self) -> Gate:
        """The one door every call passes."""
        from proctor.gate.snapshots import Snapshots
        from proctor.workspace.backups import Backups

        backups = Backups(self.settings.paths.backups_dir, keep=self.settings.retention.count)
        return self._gate_with(self.registry, snapshots=Snapshots(backups))

    def _gate_with(self, tools: Tools, **more: Any) -> Gate:
        from proctor.gate.gate import Gate

        return Gate(
            tools=tools,
            database=self.database,
            writer=self.writer,
            redactor=self.redactor,
            settings_for=self.settings_for,
            **more,
        )

    @cached_property
    def chats(self) -> Chats:
        """Conversations with API models."""
        from proctor.agents.model_chats import Chats, House
        from proctor.trace.redact import Redactor

        return Chats(
            House(
                database=self.database,
                writer=self.writer,
                gate=self.gate,
                registry=self.registry,
                make_gate=self._light_gate,
                redactor=self.redactor,
                history_redactor=Redactor(key=self.key, known=self.settings.secrets, pii=False),
                settings_for=self.settings_for,
            )
        )

    def _model_driver(self, agent: str) -> ModelDriver:
        from proctor.agents.model_driver import ModelDriver
        from proctor.gate.task_tokens import Holder, find_holder

        def find(token: str) -> Holder | None:
            with self.database.read() as connection:
                return find_holder(connection, token)

        return ModelDriver(agent=agent, chats=self.chats, find_holder=find)

    def _light_gate(self, tools: Tools) -> Gate:
        """A door to what runs no command, so nobody needs to ask what sandbox there is."""
        from proctor.sandbox.spec import Level

        return self._gate_with(tools, level=lambda: Level.LIMITS)

    @cached_property
    def settings_for(self) -> Callable[[Path | None], Settings]:
        """The settings that hold in a workspace now."""
        from proctor.gate.rulebook import SettingsShelf

        return SettingsShelf(self.settings, self.settings.environ).of

    @cached_property
    def plans(self) -> Plans:
        """The plans' front door; a tool nobody has registered gets a door of its own, to its stand-in."""
        from proctor.engine.plan_run import Doors
        from proctor.engine.plans import Plans

        doors = Doors(self.gate, self.registry.__contains__, self._light_gate)
        return Plans(database=self.database, writer=self.writer, doors=doors, settings_for=self.settings_for)

    def proof_gate(self, seconds: float) -> Gate:
        """The same door for the commands of a proof, each of which may take so long."""
        from proctor.gate.rulebook import SettingsShelf
        from proctor.proof.permits import proof_gate

        shelf = SettingsShelf(self.settings, self.settings.environ)
        return proof_gate(self.database, self.writer, self.redactor, shelf.of, seconds=seconds)

    @cached_property
    def tasks(self) -> Tasks:
        """The queue's front door."""
        from proctor.engine.tasks import Tasks

        return Tasks(self.database, self.writer)

    def executor(self, *, kind: str) -> Executor:
        """A new executor with a lease of its own."""
        from proctor.engine.agents_table import Census
        from proctor.engine.book import SettingsBook
        from proctor.engine.executor import Executor, Parts
        from proctor.engine.liveness import open_lease
        from proctor.engine.places import GitPlaces

        paths = self.settings.paths
        book = SettingsBook(
            lambda workspace: load_settings(workspace or Path("/"), self.settings.environ),
            drivers={"model": lambda agent: self._model_driver(agent.name)},
        )
        lease = open_lease(self.database, paths.state_dir / "executors", kind=kind)
        return Executor(
            Parts(
                database=self.database,
                writer=self.writer,
                engine_url=self.settings.engine_database_url,
                lease=lease,
                book=book,
                places=GitPlaces(paths.worktrees_dir, paths.state_dir / "attempts"),
                capacity=book.capacity,
                census=Census(self.database, book),
                plans=self.plans,
                chats=self.chats,
                redactor=self.redactor,
                profile_of=self._profile_of,
            )
        )

    def _profile_of(self, workspace: Path | None) -> Profile:
        from proctor.gate.profiles import find_profile

        settings = self.settings_for(workspace)
        return find_profile(settings.profile, settings.profiles)

    def close(self) -> None:
        """Write what is on its way and give everything back."""
        if "writer" in self.__dict__:
            self.writer.close()
        if "database" in self.__dict__:
            self.database.close()
