"""Seed 000's `AgentCoordinator`: its sixteen methods over the real queue, roster, gate, REST and trace.

It executes nothing and writes no row itself: the supervisor does, whoever asks. `run` keeps one alive; `execute_…` hands a
task over and waits for its end.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from loguru import logger

from proctor.agents.health import health
from proctor.agents.roster import Roster
from proctor.compat.connection import ReadConnection
from proctor.compat.desk import call_tool, workspace_here
from proctor.compat.house import House, users_house
from proctor.compat.queue import Queue
from proctor.compat.rest import RestTools
from proctor.config import environment, load_settings
from proctor.engine import client
from proctor.engine.tasks import Task
from proctor.protocol.states import TASK, TaskState, translate

__all__ = ["AGENTS", "AgentCoordinator"]

AGENTS: Final = ("SOLACE", "FORGE", "ARCHITECT", "SENTINEL")
INTERVAL: Final = 10.0
TASK_SECONDS: Final = 3600.0
_VARIABLES: Final = {
    "host": "DB_HOST",
    "port": "DB_PORT",
    "user": "DB_USER",
    "password": "DB_PASSWORD",
    "database": "DB_NAME",
    "dbname": "DB_NAME",
}


def house_of(db_config: Mapping[str, Any] | None) -> House:
    """The user's own state; with a `db_config` the same on that PostgreSQL. There is no default password."""
    if not db_config:
        return users_house()
    unknown = sorted(set(db_config) - set(_VARIABLES))
    if unknown:
        raise ValueError(f"db_config does not know {', '.join(unknown)}; known: {', '.join(_VARIABLES)}")
    given = {_VARIABLES[name]: str(value) for name, value in db_config.items() if value is not None}
    return House(settings=load_settings(environ={**environment(), **given}))


class AgentCoordinator:
    """The queue's coordinator in the seed's words; `close_db` when done."""

    def __init__(
        self,
        db_config: Mapping[str, Any] | None = None,
        *,
        house: House | None = None,
        workspace: Path | None = None,
        base_url: str | None = None,
        task_seconds: float = TASK_SECONDS,
    ) -> None:
        self.db_config = dict(db_config or {})
        self.house = house or house_of(db_config)
        self._own = house is None and bool(db_config)
        self.workspace = (workspace or workspace_here()).resolve()
        self.task_seconds = task_seconds
        self.conn: ReadConnection | None = None
        self._queue = Queue(self.house, self.workspace)
        self._rest = RestTools(self.house.app, base_url, workspace=self.workspace)
        self._stopping = threading.Event()

    def _init_api_clients(self) -> dict[str, dict[str, Any]]:
        """Who of the four can work and, if not, why and what to do; one that cannot takes nobody with it."""
        settings = self.house.app.settings_for(self.workspace)
        roster = Roster(settings.agents)
        found = {}
        for name in AGENTS:
            agent = roster.get(name)
            state = health(agent, settings.environ)
            words = f"{state.reason}. {state.cure}".strip() if not state.online else state.reason
            provider = agent.provider or agent.driver
            found[name] = {
                "available": state.online,
                "provider": provider,
                "model": agent.model,
                "message": words,
            }
        return found

    # ── database ──────────────────────────────────────────────────────────────────────────────────────────────────

    def connect_db(self) -> ReadConnection:
        """Open the database; the connection reads, changes go through the methods here."""
        self.conn = ReadConnection(self.house.app.database)
        return self.conn

    def close_db(self) -> None:
        """Close the connection, and the house if it was opened for a `db_config`."""
        if self.conn is not None:
            self.conn.close()
            self.conn = None
        if self._own:
            self.house.close()

    def get_pending_tasks(self) -> list[dict[str, Any]]:
        """The next ten tasks that wait, by priority, then age; rows of `task_queue` as dictionaries."""
        return self._queue.pending()

    def update_task_status(
        self, task_id: str, status: str, result: Any = None, error: str | None = None
    ) -> dict[str, Any]:
        """Give a task up (`failed`) or open it again (`pending`, `assigned`); gives the row as it is now.

        That it runs or is completed is a fact of its attempts: asking for it where it is not so is refused.
        """
        row = self._queue.set_status(task_id, status, error=error)
        if result is not None:
            self._queue.note("", task_id, {"status": status, "result": result})
        return row

    def update_agent_status(self, agent_name: str, status: str, task_id: str | None = None) -> dict[str, Any]:
        """Take an agent out (`offline`) or back in (`idle`); gives how it is now. What it works on is a fact."""
        return self._queue.set_agent(agent_name, status)

    def log_task_history(
        self,
        agent_name: str,
        task_id: str,
        task_type: str = "",
        success: bool = False,
        duration_ms: int | None = None,
        error_msg: str | None = None,
        tokens_used: int | None = None,
    ) -> dict[str, Any] | None:
        """Note a claim about a task in its trace; gives what its attempt itself wrote into the history, if anything."""
        claim = {
            "task_type": task_type,
            "success": success,
            "duration_ms": duration_ms,
            "error_message": error_msg,
            "cost_tokens": tokens_used,
        }
        self._queue.note(agent_name, task_id, claim)
        return self._queue.history(agent_name, task_id)

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def query_architecture_rules(self, feature_type: str | None = None) -> list[dict[str, Any]]:
        """The rules, ordered by feature type."""
        given = {"feature_type": feature_type}
        found = call_tool(self.house, "get_architecture_rules", given, workspace=self.workspace)
        return list(found["rules"])

    def _execute_tool(self, function_name: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One of the fourteen functions over REST; gives the body, or `{error, hint, code}`."""
        return self._rest.call(function_name, args or {})

    # ── executing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def execute_with_solace(self, task: Mapping[str, Any] | str) -> dict[str, Any]:
        """Have SOLACE do it or hand it on: `{decision, delegate_to, reasoning, guidance, estimated_complexity, …}`."""
        done = self._done(task, "SOLACE")
        onward = self._queue.delegated(done)
        said = _said(done)
        return {
            "decision": "handle" if onward is None else "delegate",
            "delegate_to": None if onward is None else onward.agent,
            "delegated_task_id": None if onward is None else onward.task_id,
            "reasoning": said.get("reasoning", _text(done)),
            "guidance": said.get("guidance", "") if onward is None else onward.context.get("guidance", ""),
            "estimated_complexity": said.get("estimated_complexity"),
            **self._facts(done),
        }

    def execute_with_forge(self, task: Mapping[str, Any] | str) -> dict[str, Any]:
        """Have FORGE build it: `{implementation, agent, tokens_used, …}`."""
        done = self._done(task, "FORGE")
        return {"implementation": _text(done), **self._facts(done)}

    def execute_with_architect(self, task: Mapping[str, Any] | str) -> dict[str, Any]:
        """Have ARCHITECT plan it: `{plan, agent, …}`."""
        done = self._done(task, "ARCHITECT")
        return {"plan": _text(done), **self._facts(done)}

    def execute_with_sentinel(self, task: Mapping[str, Any] | str) -> dict[str, Any]:
        """Have SENTINEL look at it: `{analysis, agent, …}`."""
        done = self._done(task, "SENTINEL")
        return {"analysis": _text(done), **self._facts(done)}

    def execute_task(self, task: Mapping[str, Any] | str) -> dict[str, Any]:
        """Have a task done by its agent, or by whoever fits when it names none, and wait for its end."""
        known = task if isinstance(task, str) else task.get("task_id")
        named = None if isinstance(task, str) else task.get("assigned_to_agent")
        agent = named or (self.house.app.tasks.get(str(known)).agent if known else None)
        ways = {
            "SOLACE": self.execute_with_solace,
            "FORGE": self.execute_with_forge,
            "ARCHITECT": self.execute_with_architect,
            "SENTINEL": self.execute_with_sentinel,
        }
        if agent in ways:
            return ways[agent](task)
        done = self._done(task, agent)
        return {"result": _text(done), **self._facts(done)}

    def run(self, interval: float = INTERVAL) -> None:
        """Keep the queue executed until `stop` or Ctrl-C: every `interval` seconds a supervisor is made sure of.

        It begins tasks when they come, not when this looks.
        """
        if interval <= 0:
            raise ValueError("interval must be above 0 seconds")
        try:
            while not self._stopping.is_set():
                if self.house.app.tasks.list(limit=1):  # open ones, also those that a dead supervisor left
                    client.ensure(self.house.app.settings)
                self._stopping.wait(interval)
        except KeyboardInterrupt:
            logger.info("stopped watching the queue; what runs goes on")

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def _done(self, task: Mapping[str, Any] | str, agent: str | None) -> Task:
        return self._queue.wait(self._queue.hand_over(task, agent), self.task_seconds)

    def _facts(self, done: Task) -> dict[str, Any]:
        found = done.result or {}
        past = self._queue.history(done.agent or "", done.task_id) or {}
        return {
            "agent": done.agent,
            "tokens_used": past.get("cost_tokens"),
            "success": done.status is TaskState.COMPLETED,
            "task_id": done.task_id,
            "status": translate(done.status, "queue"),
            "state": done.status.value,
            "simulated": bool(found.get("simulated")),
            "branch": found.get("branch"),
            "error": _trouble(done),
            "trace_id": done.trace_id,
        }


def _text(done: Task) -> str:
    return str((done.result or {}).get("text") or "")


def _said(done: Task) -> dict[str, Any]:
    """What the agent itself said as JSON, if it did."""
    text = _text(done)
    try:
        found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _trouble(done: Task) -> str | None:
    if done.status is TaskState.AWAITING_APPROVAL:
        return "It waits for an answer: see `proctor inbox`."
    if done.status not in TASK.terminal:
        return done.error or f"It has not ended: it is {done.status.value}."
    return done.error
