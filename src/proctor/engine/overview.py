"""What needs a person, what runs, what waits, what has ended: all of `proctor status`, from a few bounded queries.

Looks only: starts nothing, writes nothing, never scans events (the last one of a task is found by its index). Lists are
capped and say how many there are; tasks of the current workspace come first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from proctor.engine.evidence import ExecutorFact, executors_seen, process_alive
from proctor.store.glance import Glance, as_moment

__all__ = [
    "Approval",
    "Blocked",
    "Ended",
    "Listed",
    "OfflineAgent",
    "Overview",
    "Pause",
    "Running",
    "overview",
]

T = TypeVar("T")

WAITING = ("pending", "assigned", "recovering", "awaiting_approval", "blocked")
RUNS = "('in_progress','verifying')"
ENDED = "('completed','failed','cancelled')"
MAX_AGENTS = 1000
_HERE_FIRST = "CASE WHEN {0}workspace = CAST(:here AS TEXT) THEN 0 ELSE 1 END"


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """The first rows of a list and how many it has."""

    rows: tuple[T, ...]
    total: int

    @property
    def more(self) -> int:
        """How many are not shown."""
        return max(0, self.total - len(self.rows))


@dataclass(frozen=True, slots=True)
class Approval:
    """A question that waits for a person."""

    approval_id: str
    task_id: str | None
    action: str
    tool_name: str
    risk_level: str
    requested_at: datetime | None
    expires_at: datetime | None
    workspace: str | None


@dataclass(frozen=True, slots=True)
class Blocked:
    """A task that cannot go on by itself."""

    task_id: str
    title: str
    reason: str
    workspace: str | None


@dataclass(frozen=True, slots=True)
class OfflineAgent:
    """An agent that cannot work while tasks wait for it; the reason carries the cure."""

    agent: str | None
    """None: the tasks may be anybody's, and nobody can work."""
    reason: str
    tasks: int
    checked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Pause:
    """A scope in which nothing new begins: all, session:… or agent:…"""

    scope: str
    changed_by: str
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt under way, with what proves that it lives."""

    task_id: str
    title: str
    status: str
    agent: str
    attempt: int
    started_at: datetime | None
    last_event_at: datetime | None
    pid: int | None
    alive: bool | None
    simulated: bool
    owner: str | None
    owner_alive: bool | None
    host: str | None
    cancelling: bool
    workspace: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that has ended, newest first."""

    task_id: str
    title: str
    status: str
    agent: str | None
    attempt: int
    ended_at: datetime | None
    error: str | None
    branch: str | None
    simulated: bool
    workspace: str | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything at one moment."""

    at: datetime
    workspace: str | None
    approvals: Listed[Approval]
    blocked: Listed[Blocked]
    offline: tuple[OfflineAgent, ...]
    paused: Listed[Pause]
    running: Listed[Running]
    waiting: Mapping[str, int]
    finished: Listed[Ended]
    executors: tuple[ExecutorFact, ...]

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return self.running.total + sum(self.waiting.values()) + self.finished.total

    @property
    def abandoned(self) -> bool:
        """Whether there is work that nobody executes."""
        open_work = self.running.total + sum(
            self.waiting.get(state, 0) for state in ("pending", "assigned", "recovering")
        )
        return open_work > 0 and all(one.alive is False for one in self.executors)


def overview(look: Glance | None, *, workspace: str | None = None, limit: int = 10) -> Overview:
    """Take the whole picture on one snapshot; without a database everything is empty."""
    now = datetime.now(UTC)
    query = _Query(look, workspace, limit)
    states = query.states()
    executors = tuple(executors_seen(look, now)) if look is not None else ()
    return Overview(
        at=now,
        workspace=workspace,
        approvals=query.approvals(),
        blocked=query.blocked(states),
        offline=query.offline(),
        paused=query.paused(),
        running=query.running(states, {one.executor_id: one for one in executors}),
        waiting={state: states[state] for state in WAITING if states.get(state)},
        finished=query.finished(states),
        executors=executors,
    )


class _Query:
    """The statements, each bounded by the limit or by a group."""

    def __init__(self, look: Glance | None, here: str | None, limit: int) -> None:
        self._look = look
        self._values = {"here": here, "limit": limit}

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        if self._look is None:
            return []
        wanted = {name: value for name, value in self._values.items() if f":{name}" in sql}
        return self._look.rows(sql, wanted)

    def _listed(self, sql: str, total: int, make: Callable[[Mapping[str, Any]], T]) -> Listed[T]:
        rows = tuple(make(row) for row in self._rows(sql)) if total else ()
        return Listed(rows, max(total, len(rows)))

    def states(self) -> dict[str, int]:
        """How many tasks stand where; read from an index."""
        found = self._rows("SELECT status, count(*) AS tasks FROM task_queue GROUP BY status")
        return {row["status"]: row["tasks"] for row in found}

    def approvals(self) -> Listed[Approval]:
        total = self._rows("SELECT count(*) AS open FROM approvals WHERE status = 'pending'")
        sql = (
            "SELECT a.approval_id, a.task_id, substr(a.action, 1, 300) AS action, a.tool_name, a.risk_level,"
            " a.requested_at, a.expires_at, t.workspace"
            " FROM approvals a LEFT JOIN task_queue t ON t.task_id = a.task_id WHERE a.status = 'pending'"
            f" ORDER BY {_HERE_FIRST.format('t.')}, a.requested_at, a.approval_id LIMIT :limit"
        )
        return self._listed(sql, total[0]["open"] if total else 0, _approval)

    def blocked(self, states: Mapping[str, int]) -> Listed[Blocked]:
        sql = (
            "SELECT task_id, substr(description, 1, 200) AS title, substr(error_log, 1, 500) AS reason, workspace"
            " FROM task_queue WHERE status = 'blocked'"
            f" ORDER BY {_HERE_FIRST.format('')}, created_at DESC, task_id LIMIT :limit"
        )
        return self._listed(sql, states.get("blocked", 0), _blocked)

    def offline(self) -> tuple[OfflineAgent, ...]:
        """Whom tasks wait for although they cannot work."""
        waits = self._rows(
            "SELECT assigned_to_agent AS agent, count(*) AS tasks, min(created_at) AS oldest FROM task_queue"
            " WHERE status IN ('pending','assigned','recovering') AND queued_at IS NULL AND owner IS NULL"
            f" GROUP BY assigned_to_agent ORDER BY assigned_to_agent LIMIT {MAX_AGENTS}"
        )
        if not waits:
            return ()
        known = {
            row["agent_name"].casefold(): row
            for row in self._rows(
                f"SELECT agent_name, offline_reason, checked_at FROM agents LIMIT {MAX_AGENTS}"
            )
        }
        return tuple(_offline(row, known) for row in waits if _cannot_work(row, known))

    def paused(self) -> Listed[Pause]:
        found = self._rows(
            "SELECT scope, changed_by, changed_at FROM controls WHERE paused ORDER BY scope LIMIT :limit"
        )
        total = self._rows("SELECT count(*) AS scopes FROM controls WHERE paused")
        rows = tuple(Pause(r["scope"], r["changed_by"], as_moment(r["changed_at"])) for r in found)
        return Listed(rows, total[0]["scopes"] if total else 0)

    def running(self, states: Mapping[str, int], executors: Mapping[str, ExecutorFact]) -> Listed[Running]:
        first = (
            "SELECT task_id, status, attempt, owner, cancel_requested, workspace, assigned_to_agent,"
            f" substr(description, 1, 200) AS title FROM task_queue WHERE status IN {RUNS}"
            f" ORDER BY {_HERE_FIRST.format('')}, started_at, task_id LIMIT :limit"
        )
        sql = (
            "SELECT r.*, a.agent_name, a.started_at, a.pid, a.identity, a.simulated,"
            " (SELECT e.ts FROM events e WHERE e.task_id = r.task_id ORDER BY e.seq DESC LIMIT 1) AS last_ts"
            f" FROM ({first}) r LEFT JOIN attempts a ON a.task_id = r.task_id AND a.attempt = r.attempt"
            f" ORDER BY {_HERE_FIRST.format('r.')}, a.started_at, r.task_id"
        )
        total = sum(states.get(state, 0) for state in ("in_progress", "verifying"))
        return self._listed(sql, total, lambda row: _running(row, executors))

    def finished(self, states: Mapping[str, int]) -> Listed[Ended]:
        first = (
            "SELECT task_id, status, attempt, workspace, assigned_to_agent, substr(description, 1, 200) AS title,"
            " substr(error_log, 1, 300) AS error, coalesce(completed_at, created_at) AS ended_at"
            f" FROM task_queue WHERE status IN {ENDED}"
            f" ORDER BY {_HERE_FIRST.format('')}, coalesce(completed_at, created_at) DESC, task_id LIMIT :limit"
        )
        sql = (
            f"SELECT f.*, a.branch, a.simulated FROM ({first}) f"
            " LEFT JOIN attempts a ON a.task_id = f.task_id AND a.attempt = f.attempt"
            f" ORDER BY {_HERE_FIRST.format('f.')}, f.ended_at DESC, f.task_id"
        )
        return self._listed(sql, sum(states.get(s, 0) for s in ("completed", "failed", "cancelled")), _ended)


def _line(text: str | None) -> str:
    """The first line of a text, without what a terminal would obey."""
    first = next(iter((text or "").strip().splitlines()), "")
    return "".join(letter if letter.isprintable() else " " for letter in first)


def _approval(row: Mapping[str, Any]) -> Approval:
    return Approval(
        approval_id=row["approval_id"],
        task_id=row["task_id"],
        action=_line(row["action"]),
        tool_name=row["tool_name"],
        risk_level=row["risk_level"],
        requested_at=as_moment(row["requested_at"]),
        expires_at=as_moment(row["expires_at"]),
        workspace=row["workspace"],
    )


def _blocked(row: Mapping[str, Any]) -> Blocked:
    reason = _line(row["reason"]) or "no reason was written down"
    return Blocked(row["task_id"], _line(row["title"]), reason, row["workspace"])


def _cannot_work(row: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether it is known that nobody can take these tasks; an empty table means that nobody has looked yet."""
    if row["agent"] is None:
        return bool(known) and all(fact["offline_reason"] is not None for fact in known.values())
    fact = known.get(row["agent"].casefold())
    if fact is not None:
        return fact["offline_reason"] is not None
    oldest = as_moment(row["oldest"])
    looks = [as_moment(fact["checked_at"]) for fact in known.values()]
    return oldest is not None and any(look is not None and look > oldest for look in looks)


def _offline(row: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> OfflineAgent:
    if row["agent"] is None:
        reason = "no agent can work. See `proctor agents health`."
        return OfflineAgent(None, reason, row["tasks"], None)
    fact = known.get(row["agent"].casefold())
    if fact is None:
        reason = "no workspace used lately names such an agent. `proctor tasks cancel`, or name it in proctor.toml."
        return OfflineAgent(row["agent"], reason, row["tasks"], None)
    return OfflineAgent(
        row["agent"], _line(fact["offline_reason"]), row["tasks"], as_moment(fact["checked_at"])
    )


def _running(row: Mapping[str, Any], executors: Mapping[str, ExecutorFact]) -> Running:
    owner = executors.get(row["owner"] or "")
    micros = row["last_ts"]
    return Running(
        task_id=row["task_id"],
        title=_line(row["title"]),
        status=row["status"],
        agent=row["agent_name"] or row["assigned_to_agent"] or "-",
        attempt=row["attempt"],
        started_at=as_moment(row["started_at"]),
        last_event_at=None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC),
        pid=row["pid"],
        alive=process_alive(row["identity"]),
        simulated=bool(row["simulated"]),
        owner=row["owner"],
        owner_alive=owner.alive if owner is not None else False,
        host=owner.host if owner is not None else None,
        cancelling=bool(row["cancel_requested"]),
        workspace=row["workspace"],
    )


def _ended(row: Mapping[str, Any]) -> Ended:
    return Ended(
        task_id=row["task_id"],
        title=_line(row["title"]),
        status=row["status"],
        agent=row["assigned_to_agent"],
        attempt=row["attempt"],
        ended_at=as_moment(row["ended_at"]),
        error=_line(row["error"]) or None,
        branch=row["branch"],
        simulated=bool(row["simulated"]),
        workspace=row["workspace"],
    )
