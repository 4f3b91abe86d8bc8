"""The overview on both databases: what needs a person, evidence of life, caps, and the current workspace first."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from proctor.agents.identity import ProcessIdentity, boot, start_time
from proctor.engine.overview import Overview, overview
from proctor.protocol.events import Draft
from proctor.store.database import Database
from proctor.store.glance import Glance, glance
from proctor.store.tables import agents, approvals, attempts, controls, executors
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter
from tests.support.rows import add_task, insert

KEY = b"k" * 32
NOW = datetime.now(UTC)


@contextmanager
def _look(database: Database) -> Iterator[Glance]:
    with glance(database.url.render_as_string(hide_password=False)) as found:
        assert found is not None
        yield found


def _overview(database: Database, *, here: str | None = None, limit: int = 10) -> Overview:
    with _look(database) as look:
        return overview(look, workspace=here, limit=limit)


def _executor(database: Database, **values: object) -> None:
    row = {
        "executor_id": "exec_1",
        "kind": "supervisor",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_started": start_time(os.getpid()),
        "boot_id": boot()[:64],
        "version": "1",
        "expires_at": NOW + timedelta(hours=1),
    }
    insert(database, executors, **{**row, **values})


def _running(database: Database, task_id: str, **values: object) -> None:
    add_task(database, task_id=task_id, status="in_progress", owner="exec_1", attempt=1)
    row = {"task_id": task_id, "attempt": 1, "agent_name": "claude", "owner": "exec_1"}
    insert(database, attempts, **{**row, **values})


def test_nothing_is_empty_without_and_with_a_database(database: Database) -> None:
    """A missing file and fresh tables look alike."""
    for found in (overview(None), _overview(database)):
        assert found.tasks == 0
        assert not found.abandoned
        assert found.finished.rows == ()


def test_running_shows_the_last_event_and_the_living_process(database: Database) -> None:
    """Evidence: the newest event of that task, and whether that very process runs."""
    _executor(database)
    me = ProcessIdentity.of(os.getpid(), "mark")
    gone = ProcessIdentity(me.pid, me.start_time - 1, me.boot, "mark")
    _running(database, "lives", pid=me.pid, identity=me.encode())
    _running(database, "died", pid=gone.pid, identity=gone.encode())
    _running(database, "elsewhere", pid=7, identity=ProcessIdentity(7, 7, "another boot", "mark").encode())
    with TraceWriter(database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        for minutes in (5, 2):
            at = NOW - timedelta(minutes=minutes)
            writer.append([Draft("trace-1", "note", task_id="lives", ts=at)])
        writer.append([Draft("trace-1", "note", task_id="died", ts=NOW - timedelta(hours=1))])
    found = {one.task_id: one for one in _overview(database).running.rows}
    assert {name: one.alive for name, one in found.items()} == {
        "lives": True,
        "died": False,
        "elsewhere": None,
    }
    assert found["lives"].last_event_at == NOW - timedelta(minutes=2)
    assert found["elsewhere"].last_event_at is None
    assert all(one.owner_alive for one in found.values())


@pytest.mark.parametrize(
    ("row", "abandoned"),
    [({}, False), ({"pid_started": 1}, True), (None, True)],
    ids=["alive", "reused pid", "no executor"],
)
def test_work_that_nobody_executes_is_told(
    database: Database, row: dict[str, object] | None, abandoned: bool
) -> None:
    """A lease of a process that is gone counts as none."""
    if row is not None:
        _executor(database, **row)
    add_task(database)
    assert _overview(database).abandoned is abandoned


def test_lease_of_another_machine_lives_until_it_ends(database: Database) -> None:
    """What cannot be seen in the process table is judged by its end time."""
    add_task(database)
    _executor(database, host="other", boot_id="other", expires_at=NOW + timedelta(hours=1))
    assert not _overview(database).abandoned
    _executor(database, executor_id="exec_2", host="o", boot_id="o", expires_at=NOW - timedelta(minutes=1))
    assert [one.alive for one in _overview(database).executors] == [True, False]


def test_offline_agents_are_told_only_while_tasks_wait_for_them(database: Database) -> None:
    """The reason comes with how many tasks wait; an agent nobody waits for is not the user's problem here."""
    reason = "claude is not on PATH. Install it."
    insert(database, agents, agent_name="claude", agent_type="claude", offline_reason=reason)
    insert(database, agents, agent_name="codex", agent_type="codex", offline_reason="gone")
    insert(database, agents, agent_name="gemini", agent_type="gemini")
    for number in range(2):
        add_task(database, task_id=f"t{number}", assigned_to_agent="claude")
    add_task(database, task_id="free")
    add_task(database, task_id="fine", assigned_to_agent="gemini")
    (found,) = _overview(database).offline
    assert (found.agent, found.reason, found.tasks) == ("claude", reason, 2)
    with database.write() as connection:
        connection.execute(agents.update().values(offline_reason="away"))
    assert [(one.agent, one.tasks) for one in _overview(database).offline if one.agent is None] == [(None, 1)]


def test_an_agent_that_nobody_names_is_told_once_somebody_has_looked(database: Database) -> None:
    """A row put in by SQL may name anybody: it would wait in silence. Names are found whatever their case."""
    insert(database, agents, agent_name="FORGE", agent_type="claude", checked_at=NOW - timedelta(hours=1))
    add_task(database, task_id="lost", assigned_to_agent="NOBODY", created_at=NOW)
    add_task(database, task_id="fine", assigned_to_agent="forge", created_at=NOW)
    assert _overview(database).offline == ()
    with database.write() as connection:
        connection.execute(agents.update().values(checked_at=NOW + timedelta(seconds=1)))
    (found,) = _overview(database).offline
    assert (found.agent, found.tasks) == ("NOBODY", 1)


def test_lists_are_capped_and_the_current_workspace_comes_first(database: Database) -> None:
    """Ten of twelve are shown, ours before the newer ones of others, and the rest is counted."""
    for number in range(12):
        ended = NOW + timedelta(minutes=number)
        place = "/ours" if number < 2 else "/theirs"
        values = {"task_id": f"t{number}", "status": "completed", "completed_at": ended, "workspace": place}
        add_task(database, **values)
    found = _overview(database, here="/ours").finished
    assert [one.task_id for one in found.rows[:3]] == ["t1", "t0", "t11"]
    assert (len(found.rows), found.total, found.more) == (10, 12, 2)


def test_everything_that_needs_a_person_is_there(database: Database) -> None:
    """Approvals with their end, blocked tasks with their reason, paused scopes with who did it."""
    add_task(database, task_id="b", status="blocked", error_log="it depends on x\nmore", workspace="/w")
    add_task(database, task_id="a", status="awaiting_approval", workspace="/w")
    row = {"trace_id": "t", "task_id": "a", "action": "push \x1b[31m", "tool_name": "Bash"}
    insert(database, approvals, **row, approval_id="q", risk_level="high", expires_at=NOW)
    insert(database, approvals, **row, approval_id="old", risk_level="low", expires_at=NOW, status="timeout")
    insert(database, controls, scope="agent:claude", paused=True, changed_by="ann")
    insert(database, controls, scope="all", paused=False, changed_by="ann")
    found = _overview(database)
    assert [(one.approval_id, one.action, one.workspace) for one in found.approvals.rows] == [
        ("q", "push  [31m", "/w")
    ]
    assert [(one.task_id, one.reason) for one in found.blocked.rows] == [("b", "it depends on x")]
    assert [(one.scope, one.changed_by) for one in found.paused.rows] == [("agent:claude", "ann")]
    assert found.waiting == {"awaiting_approval": 1, "blocked": 1}
