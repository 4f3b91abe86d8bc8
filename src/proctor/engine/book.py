"""The agents as the engine sees them: settings of the task's own workspace, health looked at now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from proctor.agents.driver import Driver
from proctor.agents.health import Health, health_of_all
from proctor.agents.roster import Agent as Worker
from proctor.agents.roster import Roster, environment
from proctor.config import Settings
from proctor.engine.attempts import Agent
from proctor.engine.dispatch import Capacity
from proctor.protocol.errors import ProctorError, UnavailableError

__all__ = ["SettingsBook"]

# Settings are read again this often, so that an edited proctor.toml counts without a restart; health costs more.
SETTINGS_SECONDS = 2.0
HEALTH_SECONDS = 30.0
Load = Callable[[Path | None], Settings]
T = TypeVar("T")


class SettingsBook:
    """Finds agents in the settings of any workspace; one supervisor serves them all."""

    def __init__(
        self,
        load: Load,
        *,
        drivers: Mapping[str, Callable[[Worker], Driver]] | None = None,
    ) -> None:
        self._load = load
        self._drivers = drivers or {}
        """Drivers that work inside this house and need parts of it."""
        self._lock = threading.Lock()
        self._settings: dict[str | None, tuple[float, Settings]] = {}
        self._health: dict[str | None, tuple[float, dict[str, Health]]] = {}

    def agent(self, name: str, workspace: str | None) -> Agent:
        """An agent ready to be launched; refuses one that is unknown or cannot work, with the cure."""
        settings = self.settings(workspace)
        roster = Roster(settings.agents)
        found = roster.get(name)
        state = self.health(workspace).get(found.name)
        if state is not None and not state.online:
            raise UnavailableError(what=f"Agent {found.name}", reason=state.reason, cure=state.cure)
        inside = self._drivers.get(found.driver)
        return Agent(
            found.name,
            inside(found) if inside is not None else roster.driver(found.name),
            model=found.model,
            env=environment(found, settings.environ),
            limits=found.limits,
        )

    def capacity(self, workspaces: Iterable[str | None]) -> Capacity:
        """Who can work for these workspaces, and how much at once; a name in two counts with the larger number."""
        slots: dict[str, int] = {}
        skills: dict[str, frozenset[str]] = {}
        for workspace in workspaces:
            try:
                roster = Roster(self.settings(workspace).agents)
            except ProctorError:
                continue  # its settings are wrong or it is gone: its tasks fail when they are begun, with the sentence
            state = self.health(workspace)
            for agent in roster.agents():
                if state.get(agent.name, _OFFLINE).online:
                    slots[agent.name] = max(slots.get(agent.name, 0), agent.max_parallel)
                    skills[agent.name] = frozenset(agent.capabilities)
        return Capacity(slots, skills)

    def settings(self, workspace: str | None) -> Settings:
        """The settings of a workspace, not older than a moment."""
        place = Path(workspace) if workspace else None
        return self._fresh(self._settings, workspace, SETTINGS_SECONDS, lambda: self._load(place))

    def health(self, workspace: str | None) -> dict[str, Health]:
        """Who can work there; looked at again every half minute."""

        def look() -> dict[str, Health]:
            settings = self.settings(workspace)
            return health_of_all(Roster(settings.agents).agents(), settings.environ)

        return self._fresh(self._health, workspace, HEALTH_SECONDS, look)

    def _fresh(
        self,
        kept: dict[str | None, tuple[float, T]],
        workspace: str | None,
        seconds: float,
        look: Callable[[], T],
    ) -> T:
        """What is kept while it is fresh, else a new look; nobody waits for the slow disk of another workspace."""
        with self._lock:
            known = kept.get(workspace)
        if known is not None and time.monotonic() - known[0] <= seconds:
            return known[1]
        found = look()
        now = time.monotonic()
        with self._lock:
            kept[workspace] = now, found
            for name in [name for name, (when, _) in kept.items() if now - when > seconds]:
                del kept[name]  # it would be looked at anew, and workspaces come and go
        return found


_OFFLINE = Health(False, "not looked at yet")
