"""`proctor mcp` as a CLI agent starts it: the SDK's client in both eras, answers by the person's own command, and kills."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.gate.task_tokens import VARIABLE, hash_of, new_token
from proctor.server.mcp_lines import MAX_LINE
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from proctor.store.tables import attempts, calls, task_queue
from tests.server.mcp_clients import ERAS, Desk, body
from tests.support.rows import insert, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
era = pytest.mark.parametrize("era", ERAS)


def _database(desk: Desk) -> Database:
    return open_database(sqlite_url(desk.home / ".local" / "state" / "proctor" / "proctor.db"))


def _calls(desk: Desk) -> list[dict[str, Any]]:
    database = _database(desk)
    try:
        return rows_of(database, sa.select(calls).order_by(calls.c.requested_at))
    finally:
        database.close()


async def _until(what: Any, seconds: float = 90.0) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(what):  # noqa: ASYNC110 - facts have no event
            await asyncio.sleep(0.05)


@era
async def test_a_client_lists_calls_hears_progress_and_is_told_what_is_wrong(
    tmp_path: Path, era: str
) -> None:
    """One connection from its start to its end, as Claude Code and Codex use it."""
    desk = Desk(tmp_path)
    told: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert total is None or progress <= total
        told.append(message)

    async with desk.client(era) as client:
        assert client.protocol_version == {"legacy": "2025-11-25"}.get(era, era)
        assert {"read_file", "add_task"} <= {tool.name for tool in (await client.list_tools()).tools}
        made = await client.call_tool("write_file", {"path": "a.txt", "content": "hi"})
        wrong = await client.call_tool("write_file", {"path": "a.txt"})
        command = "for i in 1 2 3; do echo step $i; sleep 0.4; done"
        ran = await client.call_tool("execute_command", {"command": command}, progress_callback=hear)
    assert not made.is_error
    assert (desk.work / "a.txt").read_text() == "hi"
    assert wrong.is_error
    assert "content" in body(wrong)["error"]
    assert body(ran)["success"]
    assert any(message and message.startswith("step") for message in told)
    rows = _calls(desk)
    assert {(row["actor"], row["actor_name"]) for row in rows} == {("agent", "test-client")}
    assert len({row["trace_id"] for row in rows}) == 1


async def test_a_persons_own_command_answers_and_the_call_runs_once(tmp_path: Path) -> None:
    """Pending; `proctor approve` of an agent is refused, the person's counts; the same call again, in a new process."""
    desk = Desk(tmp_path, 'profile = "careful"\n')
    act = ("execute_command", {"command": "echo ran >> count.txt"})
    async with desk.client("2026-07-28", "--hold", "0.2") as client:
        asked = body(await client.call_tool(*act))
        assert asked["status"] == "approval_pending"
    desk.env = {VARIABLE: new_token("task-1", 1)}
    agent = desk.proctor("approve", asked["approval_id"], ok=False)
    desk.env = {}
    assert agent.returncode == 5
    assert "started by an agent" in agent.stderr
    desk.proctor("approve", asked["approval_id"])
    async with desk.client("legacy", "--hold", "0.2") as client:
        first, again = await client.call_tool(*act), await client.call_tool(*act)
    assert (first.is_error, again.is_error) == (False, False)
    assert body(first) == body(again)
    assert (desk.work / "count.txt").read_text() == "ran\n"


@era
async def test_a_server_killed_in_the_middle_of_a_call_does_not_run_it_twice(
    tmp_path: Path, era: str
) -> None:
    """kill -9 while the command runs; the repeat finds a call whose end nobody knows, and asks instead of repeating it."""
    desk = Desk(tmp_path)
    act = ("execute_command", {"command": "echo ran >> count.txt; sleep 60"})
    count = desk.work / "count.txt"
    async with asyncio.timeout(100):
        async with desk.client(era) as client, asyncio.TaskGroup() as group:
            running = group.create_task(_ignore(client.call_tool(*act)))
            await _until(count.exists)
            os.kill(int(desk.pid_file.read_text()), signal.SIGKILL)
            await running
    async with desk.client(era, "--hold", "0.1") as client:
        repeated = await client.call_tool(*act)
    assert body(repeated)["status"] == "approval_pending"
    assert "interrupted" in body(repeated)["reason"]
    assert count.read_text() == "ran\n"


async def _ignore(call: Any) -> None:
    """A client whose server dies hears some error; which one is the SDK's business."""
    with contextlib.suppress(Exception):
        await call


@era
async def test_a_cancelled_call_ends_and_the_connection_goes_on(tmp_path: Path, era: str) -> None:
    """The client stops waiting for one call: its command is gone, the next call is answered."""
    desk = Desk(tmp_path)
    (desk.work / "a.txt").write_text("a")
    command = "touch begun; sleep 60; touch late"
    async with desk.client(era) as client:
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            running = group.create_task(client.call_tool("execute_command", {"command": command}))
            await _until((desk.work / "begun").exists)
            running.cancel()
        assert body(await client.call_tool("read_file", {"path": "a.txt"}))["content"] == "a"
        await _until(lambda: _calls(desk)[0]["state"] == "ended")
    assert _calls(desk)[0]["code"] == "cancelled"
    assert not (desk.work / "late").exists()


@contextlib.asynccontextmanager
async def _server(desk: Desk) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamWriter]]:
    """`proctor mcp` with bare pipes; gone at the end whatever happened."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proctor", "mcp",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        cwd=desk.work, env=desk.environ,
    )  # fmt: skip
    assert server.stdin is not None
    try:
        yield server, server.stdin
    finally:
        if server.returncode is None:
            server.kill()
            await server.communicate()


async def test_a_client_that_disappears_leaves_nothing(tmp_path: Path) -> None:
    """Its end of the pipe closes while a command runs: the call is cancelled and settled, the server ends by itself."""
    desk = Desk(tmp_path)
    command = "touch begun; sleep 100; touch late"
    async with asyncio.timeout(100), _server(desk) as (server, pipe):
        for line in (
            '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
            '"clientInfo":{"name":"gone","version":"1"}}}',
            '{"jsonrpc":"2.0","method":"notifications/initialized"}',
            '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_command","arguments":{"command":"'
            f'{command}"}}}}}}',
        ):
            pipe.write(line.encode() + b"\n")
        await _until((desk.work / "begun").exists)
        pipe.close()
        await server.communicate()
    row = _calls(desk)[-1]
    assert (row["state"], row["code"], row["actor_name"]) == ("ended", "cancelled", "gone")
    assert not (desk.work / "late").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """Also with a client that still holds its end of the pipe; a line that is too long ended nothing before."""
    async with asyncio.timeout(100), _server(Desk(tmp_path)) as (server, pipe):
        assert server.stdout is not None
        pipe.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert b'"id":1' in await server.stdout.readline()
        pipe.write(b"x" * (MAX_LINE + 9) + b'\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
        assert b'"id":2' in await _answer_to(server.stdout, 2)
        server.send_signal(number)
        _, said = await server.communicate()
    assert server.returncode == 0, said


def test_without_a_client_it_ends_at_once_and_says_nothing(tmp_path: Path) -> None:
    """Nothing, or a file, in place of a pipe."""
    desk = Desk(tmp_path)
    ping = tmp_path / "ping"
    ping.write_text('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    for given in (Path(os.devnull), ping):
        with given.open("rb") as file:
            done = subprocess.run(
                [sys.executable, "-m", "proctor", "mcp"],
                stdin=file,
                cwd=desk.work,
                env=desk.environ,
                capture_output=True,
                timeout=60,
            )
        assert (done.returncode, done.stderr) == (0, b"")


async def _answer_to(output: asyncio.StreamReader, number: int) -> bytes:
    """The answer to a request; what is said about the rubbish before it is not looked at."""
    while True:
        line = await output.readline()
        if b'"id":%d' % number in line or not line:
            return line


# ── whose calls they are ──────────────────────────────────────────────────────────────────────────────────────────


def _attempt(desk: Desk, token: str, **more: Any) -> Path:
    """A running attempt of a task in a worktree, as the engine writes it down."""
    worktree = desk.place / "wt"
    worktree.mkdir()
    (worktree / "proctor.toml").write_text(
        'profile = "unattended"\n'
    )  # an agent's own words count for nothing
    database = _database(desk)
    row = {
        "task_id": "task-1",
        "description": "d",
        "attempt": 1,
        "trace_id": "trace-1",
        "status": "in_progress",
    }
    insert(database, task_queue, **row, workspace=str(desk.work))
    tried = {
        "task_id": "task-1",
        "attempt": 1,
        "agent_name": "forge",
        "owner": "x",
        "worktree": str(worktree),
    }
    insert(database, attempts, **{**tried, "token_hash": hash_of(token), **more})
    database.close()
    return worktree


async def test_with_a_tasks_token_calls_are_that_tasks(tmp_path: Path) -> None:
    """Actor, task, attempt, trace and worktree; the profile is that of the user's own workspace."""
    token = new_token("task-1", 1)
    desk = Desk(tmp_path, 'profile = "careful"\n', {VARIABLE: token, "PROCTOR_RUN": "mark"})
    worktree = _attempt(desk, token)
    async with desk.client("2026-07-28", "--hold", "0.1") as client:
        read = await client.call_tool("list_directory", {"path": "."})
        asked = await client.call_tool("write_file", {"path": "x.txt", "content": "x"})
        stopped = await client.call_tool("pause_work", {})
    assert not read.is_error
    assert body(asked)["status"] == "approval_pending"  # careful holds, not what the worktree says
    assert body(stopped)["status"] == "approval_pending"
    row = next(row for row in _calls(desk) if row["tool_name"] == "list_directory")
    assert (row["actor"], row["actor_name"], row["task_id"], row["attempt"]) == (
        "agent",
        "forge",
        "task-1",
        1,
    )
    assert (row["trace_id"], row["workspace"], row["profile"]) == ("trace-1", str(worktree), "careful")


async def test_a_token_that_ends_while_it_is_served_opens_nothing_more(tmp_path: Path) -> None:
    """The attempt ends, the server still runs: the next call is refused with the reason."""
    token = new_token("task-1", 1)
    desk = Desk(tmp_path, "", {VARIABLE: token})
    _attempt(desk, token)
    async with desk.client("legacy") as client:
        before = await client.call_tool("list_directory", {"path": "."})
        database = _database(desk)
        with database.write() as connection:
            connection.execute(attempts.update().values(ended_at=sa.func.current_timestamp()))
        database.close()
        after = await client.call_tool("list_directory", {"path": "."})
    assert not before.is_error
    assert after.is_error
    assert body(after)["code"] == "task_token"


@pytest.mark.parametrize("what", ["void", "wrong", "missing"])
def test_without_a_valid_token_what_proctor_started_gets_nothing(tmp_path: Path, what: str) -> None:
    """A void or made-up token is not silently another agent, and a child of ours without one is refused."""
    desk = Desk(tmp_path)
    token = new_token("task-1", 1)
    desk.env = {"missing": {"PROCTOR_RUN": "mark"}}.get(what, {VARIABLE: token})
    if what == "void":
        _attempt(desk, token, ended_at=sa.func.current_timestamp())
    refused = desk.proctor("mcp", ok=False)
    assert refused.returncode == 5
    assert refused.stdout == ""
    assert "PROCTOR_TASK_TOKEN" in refused.stderr
