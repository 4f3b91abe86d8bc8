"""Background commands and the budget: their time is charged when they end, whoever held them; old rows leave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Actor
from proctor.sandbox.identity import ProcessIdentity
from proctor.store.tables import budget_nodes, command_jobs, events
from proctor.tools.job_rows import close_dead_jobs, prune_jobs
from proctor.tools.models import now
from tests.support.rows import insert, rows_of
from tests.tools.conftest import Desk, MakeDesk
from tests.tools.test_command import HELD, until

AGENT = Actor(ActorKind.AGENT, "ada")


def used_millis(desk: Desk) -> int:
    """What the direct request's own node has used of its time."""
    found = rows_of(desk.database, sa.select(budget_nodes).where(budget_nodes.c.bucket == ""))
    return max(int(row["used_millis"]) for row in found)


def told(desk: Desk, event: str) -> list[dict[str, Any]]:
    """The details of all events of a name."""
    query = sa.select(events.c.details).where(events.c.event == event).order_by(events.c.seq)
    return [json.loads(row["details"]) for row in rows_of(desk.database, query)]


async def test_a_background_commands_time_is_charged_when_it_ends(each_desk: Desk) -> None:
    """Its call ended long before; the same rows of the budget get its seconds, and the event says how many."""
    desk = each_desk
    job = await desk.call(
        "start_command", command="sleep 1.2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    )
    before = used_millis(desk)
    done = await until(desk, job["job_id"])
    assert used_millis(desk) - before >= 1200
    (ended,) = told(desk, "command_ended")
    assert ended["charged_seconds"] >= 1.2
    assert ended["cpu_seconds"] > 0
    assert (done["cpu_seconds"], done["sandbox"]["level"]) == (
        ended["cpu_seconds"],
        ended["sandbox"]["level"],
    )


async def test_a_background_command_gets_no_more_time_than_is_left(
    workspace: Path, sqlite_database: Any, make_desk: MakeDesk
) -> None:
    """Its own limit is cut to the budget's rest; with nothing left it is refused."""
    (workspace / "proctor.local.toml").write_text("[limits]\nseconds = 62\n")
    desk = make_desk(sqlite_database)
    job = await desk.call("start_command", command="sleep 30", timeout_seconds=3000)
    (row,) = rows_of(desk.database, sa.select(command_jobs))
    assert 0 < row["seconds"] < 62
    await desk.call("stop_command", job_id=job["job_id"])


async def test_an_overrun_by_a_background_command_is_told(each_desk: Desk) -> None:
    """Whoever is past the limit by what a command really used reads so in the trace."""
    desk = each_desk
    await desk.call("start_command", command=f"sleep 0.8; {HELD}")
    with desk.database.write() as connection:
        connection.execute(budget_nodes.update().where(budget_nodes.c.bucket == "").values(limit_millis=700))
    (desk.root / "go").touch()
    ended = sa.select(command_jobs).where(command_jobs.c.ended_at.is_not(None))
    async with asyncio.timeout(60):
        # A call of ours would write the limits of the settings again, so the row is looked at.
        while not rows_of(desk.database, ended):  # noqa: ASYNC110 - another thread writes it
            await asyncio.sleep(0.1)
    over = told(desk, "budget_exceeded")
    assert over
    assert {one["reason"] for one in over} == {"budget_exceeded:seconds"}


def dead_holder() -> str:
    """The identity of a process that has lived and died."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    identity = ProcessIdentity.of(child.pid, "")
    child.send_signal(signal.SIGKILL)
    child.wait()
    return identity.encode()


async def test_a_dead_holders_command_is_ended_once_and_charged(each_desk: Desk) -> None:
    """Whoever looks first writes the end; a second look changes nothing; the charge is bounded by its limit."""
    desk = each_desk
    job = await desk.call("start_command", command="true", timeout_seconds=5)
    await until(desk, job["job_id"])
    before = used_millis(desk)
    reopened = {
        "holder": dead_holder(),
        "ended_at": None,
        "outcome": None,
        "started_at": now() - timedelta(hours=2),
    }
    with desk.database.write() as connection:
        connection.execute(command_jobs.update().values(**reopened))
    desk_jobs_forget(job["job_id"])
    got = await desk.call("command_status", job_id=job["job_id"])
    assert (got["state"], got["running"], got["ended_at"] is not None) == ("interrupted", False, True)
    again = await desk.call("stop_command", job_id=job["job_id"])
    assert again["state"] == "interrupted"
    assert 5000 <= used_millis(desk) - before < 8000
    assert [one["outcome"] for one in told(desk, "command_ended")] == ["completed", "interrupted"]


def desk_jobs_forget(job_id: str) -> None:
    """Let this process know nothing of a job, as another one would."""
    from proctor.tools import jobs

    jobs._jobs.pop(job_id)


async def test_dead_holders_are_found_without_anybody_asking(each_desk: Desk) -> None:
    """The supervisor's round ends them; those of living holders and of other machines in time stay."""
    desk = each_desk
    common: dict[str, Any] = {
        "call_id": "c",
        "trace_id": "t",
        "workspace": "/w",
        "seconds": 60.0,
        "started_at": now(),
    }
    living = ProcessIdentity.of(os.getpid(), "").encode()
    elsewhere = ProcessIdentity(1, 1, "another machine", "").encode()
    holders = {"dead": dead_holder(), "living": living, "elsewhere": elsewhere}
    for name, holder in holders.items():
        insert(desk.database, command_jobs, job_id=f"job_{name}", holder=holder, **common)
    count = await desk.writer.transact_async(lambda connection: close_dead_jobs(connection, now()))
    assert count == 1
    later = now() + timedelta(seconds=130)
    count = await desk.writer.transact_async(lambda connection: close_dead_jobs(connection, later))
    assert count == 1
    open_ = sa.select(command_jobs.c.job_id).where(command_jobs.c.ended_at.is_(None))
    assert [row["job_id"] for row in rows_of(desk.database, open_)] == ["job_living"]


async def test_old_and_many_ended_rows_leave_and_running_ones_stay(each_desk: Desk) -> None:
    """By age and by count, the same with a dry run before."""
    desk = each_desk
    common: dict[str, Any] = {
        "call_id": "c",
        "trace_id": "t",
        "workspace": "/w",
        "holder": dead_holder(),
        "seconds": 1.0,
    }
    ages = {"old": 40, "older": 50, "new": 1, "newer": 0.5}
    for name, days in ages.items():
        at = now() - timedelta(days=days)
        row = {"started_at": at, "ended_at": at, "outcome": "completed"}
        insert(desk.database, command_jobs, job_id=f"job_{name}", **common, **row)
    insert(desk.database, command_jobs, job_id="job_open", started_at=now() - timedelta(days=99), **common)
    month = now() - timedelta(days=30)
    assert prune_jobs(desk.database, older_than=month, dry_run=True) == 2
    assert prune_jobs(desk.database, older_than=month) == 2
    assert prune_jobs(desk.database, older_than=month, most=1) == 1
    left = {row["job_id"] for row in rows_of(desk.database, sa.select(command_jobs))}
    assert left == {"job_newer", "job_open"}
