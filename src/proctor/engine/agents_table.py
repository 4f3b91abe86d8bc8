"""The `agents` table in step with the roster and with what was found by looking, for the seeds' `agent_status` view.

Only facts go in: who there is, and why one cannot work. Status itself is computed by the view. When several machines look,
one that can run an agent counts for more than one that cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

import sqlalchemy as sa

from proctor.agents.health import Health
from proctor.agents.roster import Agent, Roster
from proctor.config import Settings
from proctor.engine.tasks import OPEN
from proctor.protocol.errors import ProctorError
from proctor.protocol.ports import Clock, SystemClock
from proctor.store.database import Database
from proctor.store.tables import agents, task_queue

__all__ = ["Book", "Census", "offline_sentence", "sync"]

BUSY_SECONDS = 30.0
# Looking starts programs; when nothing waits, seldom is enough.
IDLE_SECONDS = 600.0
RECENT = timedelta(days=7)
MAX_WORKSPACES = 200
# On a shared database another machine's fresh "can work" is not contradicted for this long.
GRACE = timedelta(seconds=3 * BUSY_SECONDS)
UNKNOWN = "no settings of a workspace used lately name it. Name it in proctor.toml, or use another agent."


class Book(Protocol):
    """Who reads a workspace's settings and looks at its agents (`SettingsBook`)."""

    def settings(self, workspace: str | None) -> Settings:
        """The settings there."""
        ...

    def health(self, workspace: str | None) -> dict[str, Health]:
        """Who can work there."""
        ...


def offline_sentence(health: Health) -> str | None:
    """Why an agent cannot work, with the cure; None when it can."""
    if health.online:
        return None
    return f"{health.reason.rstrip('.')}. {health.cure}".strip()


def sync(
    connection: sa.Connection,
    roster: Iterable[Agent],
    health: Mapping[str, Health],
    now: datetime,
    *,
    grace: timedelta = timedelta(0),
) -> None:
    """Write what was found into the caller's transaction; whom nobody names any more is offline for that reason."""
    listed = {agent.name: agent for agent in roster}
    known = {row.agent_name: row for row in connection.execute(sa.select(agents))}
    for name, agent in listed.items():
        values = _values(agent, health.get(name), now)
        if name not in known:
            connection.execute(agents.insert().values(agent_name=name, **values))
        elif values["offline_reason"] is None or not _vouched(known[name], now, grace):
            connection.execute(agents.update().where(agents.c.agent_name == name).values(values))
    for name in known.keys() - listed.keys():
        if known[name].offline_reason != UNKNOWN and not _vouched(known[name], now, grace):
            gone = {"offline_reason": UNKNOWN, "checked_at": now}
            connection.execute(agents.update().where(agents.c.agent_name == name).values(gone))


def _values(agent: Agent, health: Health | None, now: datetime) -> dict[str, Any]:
    reason = "nobody has looked at it yet" if health is None else offline_sentence(health)
    return {
        "agent_type": (agent.provider or agent.driver)[:50],
        "capabilities": list(agent.capabilities),
        "offline_reason": reason,
        "checked_at": now,
    }


def _vouched(row: Any, now: datetime, grace: timedelta) -> bool:
    return row.offline_reason is None and row.checked_at is not None and now - row.checked_at < grace


class Census:
    """Looks at the agents of every workspace in use; call it as often as you like, it looks when it is time."""

    def __init__(self, database: Database, book: Book, clock: Clock | None = None) -> None:
        self._database = database
        self._book = book
        self._clock = clock or SystemClock()
        self._grace = timedelta(0) if database.dialect == "sqlite" else GRACE
        self._last: float | None = None

    def __call__(self) -> bool:
        """Look if it is time and write it down; whether it did. Blocks as long as slow programs take to answer."""
        now = self._clock.monotonic()
        with self._database.read() as connection:
            busy = connection.execute(_open_tasks().limit(1)).first() is not None
            if self._last is not None and now - self._last < (BUSY_SECONDS if busy else IDLE_SECONDS):
                return False
            workspaces = _workspaces(connection, self._clock.now())
        self._last = now
        roster, health = self._look(workspaces)
        with self._database.write() as connection:
            sync(connection, roster, health, self._clock.now(), grace=self._grace)
        return True

    def _look(self, workspaces: Iterable[str | None]) -> tuple[list[Agent], dict[str, Health]]:
        roster: dict[str, Agent] = {}
        health: dict[str, Health] = {}
        for workspace in workspaces:
            try:
                listed = Roster(self._book.settings(workspace).agents).agents()
                found = self._book.health(workspace)
            except ProctorError:
                continue  # its settings are wrong or it is gone: doctor and its tasks say so
            for agent in listed:
                state = found.get(agent.name)
                better = agent.name not in health or not health[agent.name].online
                if state is not None and better:
                    roster[agent.name], health[agent.name] = agent, state
        return list(roster.values()), health


def _open_tasks() -> sa.Select[tuple[Any]]:
    return sa.select(task_queue.c.workspace).where(task_queue.c.status.in_(OPEN))


def _workspaces(connection: sa.Connection, now: datetime) -> list[str | None]:
    """No workspace, those with open tasks, and those used lately."""
    lately = sa.select(task_queue.c.workspace).where(task_queue.c.created_at > now - RECENT)
    found: list[str | None] = [None]
    for query in (_open_tasks(), lately):
        found += connection.execute(query.distinct().limit(MAX_WORKSPACES)).scalars()
    return list(dict.fromkeys(found))[:MAX_WORKSPACES]
