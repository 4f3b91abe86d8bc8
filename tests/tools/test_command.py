"""Commands: confined, bounded, their whole tree gone; long ones in the background with a name to ask by."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.protocol.errors import NotFoundError, ProctorError, RefusedError, UnavailableError
from proctor.protocol.tools import CallState, Runs
from proctor.sandbox import procfs
from proctor.sandbox.probe import by_host
from proctor.store.database import Database
from proctor.store.tables import command_jobs, events
from proctor.tools.catalog import standard_registry
from proctor.tools.jobs import MOST_RUNNING
from tests.support.requirements import require
from tests.support.rows import insert, rows_of
from tests.tools.conftest import AGENT, Desk, MakeDesk

# A command that ends when the test has made the file `go`; by itself after a minute.
HELD = "n=0; while [ ! -e go ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n+1)); done"


def living(mark: str) -> list[int]:
    """Processes whose command line holds a mark, by a new scan."""
    found = []
    for pid in procfs.processes():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in line and b"proctor.tools" not in line:
            found.append(pid)
    return found


@pytest.fixture
def nap() -> str:
    """A number of seconds to sleep that no other process on this machine sleeps."""
    return f"471.{secrets.randbelow(10**9):09}"


@pytest.mark.parametrize("name", ["proctor.toml", "proctor.local.toml"])
async def test_no_program_of_an_agent_loosens_its_own_rules(desk: Desk, name: str) -> None:
    """A script that policy lets run cannot write the file that decides what the next call may do; a person's can."""
    before = (desk.root / name).read_text() if (desk.root / name).exists() else None
    script = f"open('{name}', 'w').write('[policy]\\nallow = [\"git push\"]\\n')\n"
    (desk.root / "setup.py").write_text(script)
    await desk.result("execute_command", actor=AGENT, command="python3 setup.py")
    assert ((desk.root / name).read_text() if (desk.root / name).exists() else None) == before
    await desk.call("execute_command", command="python3 setup.py")
    assert "git push" in (desk.root / name).read_text()


async def test_command_gives_the_words_of_both_dialects(desk: Desk) -> None:
    """{stdout, stderr, exit_code} and {command, output, exit_code, success}."""
    got = await desk.call(
        "execute_command", command="echo out; echo err >&2; exit 3", working_directory="src"
    )
    assert (got["stdout"], got["stderr"], got["exit_code"]) == ("out\n", "err\n", 3)
    assert (got["command"][:8], got["output"], got["success"]) == ("echo out", "out\nerr\n", False)
    assert got["sandbox"]["level"] >= 2
    assert got["sandbox"]["net"] == "off"
    assert (await desk.call("execute_command", command="pwd", cwd="src"))["stdout"].strip().endswith("/src")


@pytest.mark.parametrize("cwd", ["..", "/", "/etc", "link", "missing", "README.md", "nul\0", "\ud800"])
async def test_command_runs_only_inside_the_workspace(desk: Desk, cwd: str) -> None:
    """The working directory is one of the workspace, also through links."""
    (desk.root / "link").symlink_to("/etc")
    with pytest.raises(ProctorError):
        await desk.call("execute_command", command="pwd", cwd=cwd)


async def test_secrets_and_state_are_hidden(desk: Desk) -> None:
    """A command sees neither keys nor tokens, and writes nowhere else."""
    home = desk.root.parent
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("KEY")
    token = desk.settings.paths.token_file
    token.parent.mkdir(parents=True, exist_ok=True)
    token.write_text("TOKEN")
    line = f"cat {home}/.ssh/id {token}; echo x > {home}/outside; env"
    got = await desk.call("execute_command", command=line)
    assert "KEY" not in got["output"]
    assert "TOKEN" not in got["output"]
    assert not (home / "outside").exists()


async def test_environment_is_an_allow_list(
    sqlite_database: Database, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token in the user's environment does not reach a command."""
    monkeypatch.setenv("MY_API_TOKEN", "tok-123")
    desk = make_desk(sqlite_database)
    assert desk.settings.environ["MY_API_TOKEN"] == "tok-123"
    got = await desk.call("execute_command", command="env")
    assert "tok-123" not in got["stdout"]


async def test_bug_5_time_out_ends_the_whole_tree(desk: Desk, nap: str) -> None:
    """Children that left the group and the session are gone too."""
    line = f"setsid sleep {nap} & (sleep {nap} &) ; sleep {nap}"
    got = await desk.call("execute_command", command=line, timeout_seconds=0.5)
    assert (got["timed_out"], got["success"], got["survivors"]) == (True, False, 0)
    assert living(nap) == []


async def test_bug_46_nothing_outlives_a_command_that_ended(desk: Desk, nap: str) -> None:
    """A double fork does not survive its command."""
    got = await desk.call("execute_command", command=f"(setsid sleep {nap} >/dev/null 2>&1 &) ; echo done")
    assert (got["stdout"], got["exit_code"]) == ("done\n", 0)
    assert living(nap) == []


async def test_bug_6_one_slow_command_blocks_nobody(desk: Desk) -> None:
    """While one sleeps, another ends and the loop goes on turning."""
    turns = 0

    async def turning() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        ticker = group.create_task(turning())
        slow = group.create_task(desk.call("execute_command", command=f"touch begun; {HELD}"))
        while not (desk.root / "begun").exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
        before = turns
        quick = await desk.call("execute_command", command="echo quick")
        while turns < before + 20:  # noqa: ASYNC110 - the loop itself is what is looked at
            await asyncio.sleep(0)
        assert not slow.done()
        (desk.root / "go").touch()
        await slow
        ticker.cancel()
    assert quick["stdout"] == "quick\n"


async def test_a_protected_file_that_stays_changed_is_not_called_put_back(desk: Desk) -> None:
    """`git init` is honest work: its hooks and configuration stay, and the answer says so of each."""
    got = await desk.call("execute_command", command="git init -q .")
    assert (desk.root / ".git" / "config").is_file()
    assert got["altered"]
    assert all(line.endswith(" (not put back)") for line in got["altered"])


async def test_bug_7_output_is_bounded_and_says_so(desk: Desk) -> None:
    """Endless output neither fills memory nor hides its end."""
    got = await desk.call("execute_command", command="seq 1 300000; echo THE-END")
    assert got["truncated"] is True
    assert "truncated" in got["stdout"]
    assert got["stdout"].startswith("1\n2\n")
    assert got["stdout"].endswith("THE-END\n")
    assert len(got["stdout"]) < 300_000


async def test_cancel_ends_the_command(desk: Desk, nap: str) -> None:
    """The caller's wish is passed on and the result says so."""
    cancel = asyncio.Event()

    def hear(what: str, _share: float | None) -> None:
        if what:
            cancel.set()

    got = await desk.call("execute_command", command=f"echo up; sleep {nap}", cancel=cancel, progress=hear)
    assert got["killed_for"] == "cancelled"
    assert living(nap) == []


async def test_output_is_reported_while_it_comes(desk: Desk) -> None:
    """Progress tells the last line."""
    told: list[str] = []

    def hear(what: str, _share: float | None) -> None:
        told.append(what)
        if what:
            (desk.root / "go").touch()

    await desk.call("execute_command", command=f"echo one; {HELD}; echo two", progress=hear)
    assert [line for line in told if line] == ["one", "two"]


async def test_powershell_is_judged_as_the_program_it_is(desk: Desk) -> None:
    """Where it is configured but not installed the answer is a sentence; the policy sees one program with one word."""
    tool = standard_registry("pwsh").find("execute_command")
    assert tool.touches is not None
    (touch,) = tool.touches(tool.input(command="Remove-Item 'a b'"))
    assert isinstance(touch, Runs)
    assert touch.command.startswith("pwsh -NoProfile -NonInteractive -Command '")
    with pytest.raises(UnavailableError, match=r"proctor\.toml"):
        await desk.call("execute_command", command="Get-Date", shell="pwsh")


async def test_powershell_runs_where_it_is_installed(
    sqlite_database: Database, make_desk: MakeDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for pwsh shows the words it gets: no profile, nothing interactive, the whole text as one word."""
    fake = tmp_path / "bin" / "pwsh"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    desk = make_desk(sqlite_database)
    got = await desk.call("execute_command", command="Get-Date; 'a b'", shell="pwsh")
    assert got["stdout"] == "-NoLogo|-NoProfile|-NonInteractive|-Command|Get-Date; 'a b'|"
    assert got["sandbox"]["level"] >= 2


ASK = (
    "import urllib.request,sys\n"
    "for url in sys.argv[1:]:\n"
    "    try: print(urllib.request.urlopen(url, timeout=5).status)\n"
    "    except OSError as error: print(type(error).__name__, error)\n"
)


async def test_command_reaches_only_the_hosts_it_names(desk: Desk) -> None:
    """Hosts of the call go through the proxy; what was refused stands in the result and in the trace."""
    require(not by_host(), f"network by host: {by_host()}", "Install bubblewrap and allow user namespaces.")
    (desk.root / "ask.py").write_text(ASK)
    command = "python3 ask.py http://evil.test/ http://192.0.2.7/ http://localhost:9/"
    got = await desk.call("execute_command", command=command, hosts=["good.test"])
    assert got["stdout"].splitlines()[:2] == ["HTTPError HTTP Error 403: Refused"] * 2
    assert got["sandbox"]["net"] == "hosts"
    assert [line.split(" ")[0] for line in got["sandbox"]["refused"]] == ["evil.test:80", "192.0.2.7:80"]
    (row,) = rows_of(desk.database, sa.select(events).where(events.c.event == "network_refused"))
    assert "evil.test:80" in row["details"]
    job = await desk.call("start_command", command=command, hosts=["good.test"])
    done = await until(desk, job["job_id"])
    assert len(done["sandbox"]["refused"]) == 2
    assert len(rows_of(desk.database, sa.select(events).where(events.c.event == "network_refused"))) == 2


async def test_agents_command_with_a_new_host_asks(desk: Desk) -> None:
    """Leaving the sandbox is a question; nonsense is refused."""
    waiting = await desk.result("execute_command", actor=AGENT, command="pytest -q", hosts=["good.test"])
    assert waiting.state is CallState.WAITING
    with pytest.raises(RefusedError, match="is no host"):
        await desk.call("execute_command", actor=AGENT, command="pytest -q", hosts=["http://good.test/"])


async def until(desk: Desk, job_id: str, seconds: float = 60.0) -> dict[str, Any]:
    """Wait for a background command's end."""
    deadline = time.monotonic() + seconds
    while (got := await desk.call("command_status", job_id=job_id, wait_seconds=5))["running"]:
        assert time.monotonic() < deadline
    return got


async def test_background_command_has_an_id_progress_and_an_end(each_desk: Desk) -> None:
    """Started at once, looked at while it runs, ended with its output; row and trace agree."""
    desk = each_desk
    job = await desk.call("start_command", command=f"echo begun; {HELD}; echo over; exit 4")
    assert (job["state"], job["running"], job["exit_code"]) == ("running", True, None)
    early = await desk.call("command_status", job_id=job["job_id"])
    assert early["running"] is True
    (desk.root / "go").touch()
    done = await until(desk, job["job_id"])
    assert (done["state"], done["exit_code"], done["success"]) == ("failed", 4, False)
    assert (done["stdout"], done["progress"]) == ("begun\nover\n", "over")
    (row,) = rows_of(desk.database, sa.select(command_jobs))
    assert (row["outcome"], row["exit_code"]) == ("failed", 4)
    every = [one["event"] for one in rows_of(desk.database, sa.select(events).order_by(events.c.seq))]
    told = [event for event in every if event.startswith("command_")]
    assert [told[0], told[-1]] == ["command_started", "command_ended"]


async def test_background_command_is_stopped_with_its_tree(desk: Desk, nap: str) -> None:
    """Stopping waits for the end, and nothing of the tree is left; stopping again changes nothing."""
    job = await desk.call("start_command", command=f"(setsid sleep {nap} &) ; sleep {nap}")
    done = await desk.call("stop_command", job_id=job["job_id"])
    assert (done["state"], done["running"]) == ("stopped", False)
    assert living(nap) == []
    assert (await desk.call("stop_command", job_id=job["job_id"]))["state"] == "stopped"


async def test_background_command_ends_at_its_time_limit(desk: Desk, nap: str) -> None:
    """A limit of its own, and the state says so."""
    job = await desk.call("start_command", command=f"sleep {nap}", timeout_seconds=0.5)
    assert (await until(desk, job["job_id"]))["state"] == "timed_out"


async def test_background_command_ends_in_its_row_whatever_went_wrong(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect in what runs it is no command that seems to run for ever."""

    async def broken(*_given: Any, **_more: Any) -> None:
        raise LookupError("a defect")

    monkeypatch.setattr("proctor.tools.jobs.run", broken)
    with pytest.raises(ProctorError, match="a defect"):
        await desk.call("start_command", command="true")
    (row,) = rows_of(desk.database, sa.select(command_jobs))
    assert (row["outcome"], row["ended_at"] is None) == ("not_started", False)


async def test_background_command_that_cannot_start_says_so_at_once(desk: Desk) -> None:
    """No job id for something that never ran."""
    with pytest.raises(UnavailableError):
        await desk.call("start_command", command="Get-Date", shell="pwsh")
    with pytest.raises(ProctorError):
        await desk.call("start_command", command="pwd", cwd="missing")
    assert rows_of(desk.database, sa.select(command_jobs)) == []


HOLDER = """
import asyncio, sys
from pathlib import Path
import proctor.tools.jobs
from proctor.config import load_settings
from proctor.gate.context import Context
from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Actor, Call
from proctor.store.schema import open_database
from proctor.testing.permits import permit_for_tests
from proctor.tools.catalog import standard_registry
from proctor.trace.writer import TraceWriter
from proctor.trace.redact import Redactor

async def main():
    key = b"k" * 32
    database = open_database(sys.argv[1])
    writer = TraceWriter(database, key=key, redactor=Redactor(key=key))
    tool = standard_registry().find("start_command")
    call = Call(tool=tool.name, inputs={}, actor=Actor(ActorKind.HUMAN, "x"), workspace=Path(sys.argv[2]))
    context = Context(call=call, permit=permit_for_tests(), settings=load_settings(call.workspace),
                      database=database, writer=writer)
    job = await tool.handlers["real"](context, tool.input(command=sys.argv[3]))
    print(job.job_id, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def elsewhere(desk: Desk) -> Any:
    """Another process that holds a background command."""
    url = desk.database.url.render_as_string(hide_password=False)
    children: list[subprocess.Popen[str]] = []

    def hold(command: str) -> tuple[subprocess.Popen[str], str]:
        words = [sys.executable, "-c", HOLDER, url, str(desk.root), command]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout is not None
        return child, child.stdout.readline().strip()

    yield hold
    for child in children:
        child.kill()
        child.wait(10)
        assert child.stdout is not None
        child.stdout.close()


@pytest.mark.slow
async def test_background_command_of_another_process_is_seen_and_stopped(
    desk: Desk, elsewhere: Any, nap: str
) -> None:
    """Status and stop work across processes, by row and trace alone."""
    command = f"echo hello; touch begun; sleep {nap}"
    _child, job_id = elsewhere(command)
    assert (await desk.call("command_status", job_id=job_id))["state"] == "running"
    async with asyncio.timeout(60):
        while not (desk.root / "begun").exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.02)
    done = await desk.call("stop_command", job_id=job_id)
    assert (done["state"], done["stdout"], done["command"]) == ("stopped", "hello\n", command)
    assert living(nap) == []


@pytest.mark.slow
async def test_background_command_of_a_killed_process_is_interrupted_and_gone(
    desk: Desk, elsewhere: Any, nap: str
) -> None:
    """kill -9 of the holder ends the tree, and nobody calls it running."""
    child, job_id = elsewhere(f"(setsid sleep {nap} &) ; sleep {nap}")
    assert (await desk.call("command_status", job_id=job_id))["running"] is True
    child.kill()
    child.wait(10)
    got = await desk.call("command_status", job_id=job_id)
    assert (got["state"], got["running"], got["success"]) == ("interrupted", False, False)
    async with asyncio.timeout(60):
        while living(nap):  # noqa: ASYNC110 - processes have no event
            await asyncio.sleep(0.1)


async def test_agent_sees_only_commands_of_its_own_workspace(desk: Desk, tmp_path: Path) -> None:
    """A job of another workspace does not exist for an agent."""
    job = await desk.call("start_command", command="true")
    await until(desk, job["job_id"])
    assert (await desk.call("command_status", actor=AGENT, job_id=job["job_id"]))["state"] == "completed"
    with pytest.raises(NotFoundError):
        await desk.call("command_status", actor=AGENT, root=tmp_path, job_id=job["job_id"])
    with pytest.raises(NotFoundError):
        await desk.call("stop_command", job_id="job_unknown")


async def test_number_of_background_commands_is_bounded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, nap: str
) -> None:
    """One more than the most is refused with the cure."""
    monkeypatch.setattr("proctor.tools.jobs.MOST_RUNNING", 1)
    job = await desk.call("start_command", command=f"sleep {nap}")
    with pytest.raises(RefusedError, match="stop_command"):
        await desk.call("start_command", command="true")
    assert (await desk.call("stop_command", job_id=job["job_id"]))["state"] == "stopped"
    assert MOST_RUNNING > 1


async def test_job_of_another_machine_is_believed_until_its_limit(desk: Desk) -> None:
    """We cannot look there, so it runs until it must have ended."""
    from datetime import timedelta

    from proctor.tools.models import now

    holder = json.dumps({"pid": 1, "start_time": 1, "boot": "another", "mark": ""})
    common: dict[str, Any] = {
        "call_id": "c",
        "trace_id": "t",
        "workspace": str(desk.root),
        "holder": holder,
        "seconds": 10.0,
    }
    insert(desk.database, command_jobs, job_id="job_new", started_at=now(), **common)
    insert(desk.database, command_jobs, job_id="job_old", started_at=now() - timedelta(hours=1), **common)
    assert (await desk.call("command_status", job_id="job_new"))["state"] == "running"
    assert (await desk.call("command_status", job_id="job_old"))["state"] == "interrupted"


async def test_mock_runs_nothing_and_says_so(desk: Desk) -> None:
    """No file appears and every answer is marked."""
    ran = await desk.call("execute_command", adapter="mock", command="touch made")
    job = await desk.call("start_command", adapter="mock", command="touch made")
    assert (ran["simulated"], job["simulated"]) == (True, True)
    assert "SIMULATED" in ran["stdout"]
    assert "SIMULATED" in job["stdout"]
    assert not (desk.root / "made").exists()
