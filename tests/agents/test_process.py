"""A kept process: its end is told truly, its output is whole, and its tree never outlives it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.agents import process
from proctor.agents.identity import ProcessIdentity, find_and_kill, survivors
from proctor.agents.process import Command, Exit, Kept, keep
from proctor.sandbox import procfs
from proctor.sandbox.process import close_idle_keepers
from tests.agents.trees import DAEMON, PYTHON, REFORK, alive, living, noted, wait_for, wait_gone

linux = pytest.mark.usefixtures("on_linux")
PARENT = """
import asyncio, sys
from pathlib import Path
from proctor.agents.process import Command, keep

async def main():
    async with keep() as kept:
        argv = (sys.executable, "-I", "-S", "-c", sys.argv[1], sys.argv[2])
        await kept.start(Command(argv, Path("/"), {}))
        Path(sys.argv[3]).write_text(kept.identity.encode())
        await asyncio.sleep(300)

asyncio.run(main())
"""


def python(code: str, *args: str, cwd: Path, stdin: bytes = b"") -> Command:
    """Make a command that runs a piece of Python."""
    return Command((*PYTHON, "-c", code, *args), cwd, {"PATH": os.defpath}, stdin)


async def output(kept: Kept) -> bytes:
    """Read everything."""
    data = b""
    while chunk := await kept.read():
        data += chunk
    return data


async def test_normal_exit_gives_code_and_all_output(tmp_path: Path) -> None:
    """Exit code, stdout, stderr and stdin arrive as they were."""
    code = "import sys; print(sys.stdin.read()*2); print('no', file=sys.stderr); sys.exit(3)"
    async with keep() as kept:
        assert await kept.start(python(code, cwd=tmp_path, stdin=b"ab")) == ""
        assert await output(kept) == b"abab\n"
        assert await kept.wait() == Exit(3)
        assert kept.stderr.text == "no\n"
    assert survivors(kept.identity) == []


async def test_nothing_runs_before_start(tmp_path: Path) -> None:
    """A held process has an identity but no effect, so that the identity can be written down first."""
    async with keep() as kept:
        assert kept.identity.alive()
        await asyncio.sleep(0.2)
        assert len(survivors(kept.identity)) == 1
    assert survivors(kept.identity) == []


async def test_stopped_before_its_start_it_never_runs(tmp_path: Path) -> None:
    """A cancel that comes while the identity is being written down holds."""
    async with keep() as kept:
        kept.stop(5)
        assert await kept.start(python("open('ran', 'w')", cwd=tmp_path)) == ""
        assert await output(kept) == b""
        assert await kept.wait() == Exit(None)
    assert not (tmp_path / "ran").exists()


async def test_started_twice_it_runs_once(tmp_path: Path) -> None:
    """Asking again releases nothing again and tells the same."""
    async with keep() as kept:
        command = python("import sys; print(sys.stdin.read())", cwd=tmp_path, stdin=b"once")
        assert await kept.start(command) == await kept.start(command) == ""
        assert await output(kept) == b"once\n"
    async with keep() as kept:
        missing = Command(("no-such-program",), tmp_path)
        assert await kept.start(missing) == await kept.start(missing) != ""


async def test_slow_reader_gets_all_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in buffer and pipe when the process has ended is not lost however late it is read."""
    monkeypatch.setattr(process, "DRAIN_S", 0.1)
    size = 2 * process.BUFFER + 50_000  # more than our own buffer takes, so that some stays in the pipe
    code = f"import sys; sys.stdout.write('x' * {size})"
    async with keep() as kept:
        await kept.start(python(code, cwd=tmp_path))
        assert await kept.wait() == Exit(0)
        await asyncio.sleep(0.5)
        assert len(await output(kept)) == size


async def test_missing_program_is_an_error_not_an_exit(tmp_path: Path) -> None:
    """A program that cannot be started says why."""
    async with keep() as kept:
        assert "FileNotFoundError" in await kept.start(Command(("no-such-program",), tmp_path))
        assert (await kept.wait()).code is None


async def test_crash_is_told_as_the_signal(tmp_path: Path) -> None:
    """A process that dies by a signal has a negative code."""
    async with keep() as kept:
        await kept.start(python("import os; os.kill(os.getpid(), 11)", cwd=tmp_path))
        assert await kept.wait() == Exit(-11)


async def test_stop_is_polite_first(tmp_path: Path) -> None:
    """A process that handles SIGTERM may end by itself."""
    code = (
        "import signal,sys,time; signal.signal(15, lambda *a: sys.exit(7)); print(1, flush=1); time.sleep(60)"
    )
    async with keep() as kept:
        await kept.start(python(code, cwd=tmp_path))
        assert await kept.read() == b"1\n"
        kept.stop(20)
        assert await kept.wait() == Exit(7)


async def test_stop_kills_what_ignores_it(tmp_path: Path) -> None:
    """A process that ignores SIGTERM is killed after the grace."""
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    async with keep() as kept:
        await kept.start(python(code, cwd=tmp_path))
        assert await kept.read() == b"up\n"
        kept.stop(0.1)
        assert await kept.wait() == Exit(-signal.SIGKILL)


@linux
@pytest.mark.parametrize("program", [DAEMON, REFORK], ids=["daemon", "refork"])
async def test_tree_ends_with_the_agent(tmp_path: Path, program: str) -> None:
    """Daemons and re-forking chains end when the agent has ended by itself."""
    note = tmp_path / "pid"
    async with keep() as kept:
        await kept.start(python(program, str(note), cwd=tmp_path))
        exit_ = await kept.wait()
        assert exit_ == Exit(0)
        assert not alive(noted(note))
    assert living(str(note)) == []


@linux
async def test_grandchild_holding_the_pipe_does_not_hold_the_end(tmp_path: Path) -> None:
    """The output ends shortly after the agent although a daemon still has the pipe."""
    note = tmp_path / "pid"
    began = time.monotonic()
    async with keep() as kept:
        await kept.start(python(DAEMON, str(note), cwd=tmp_path))
        assert await output(kept) == b""
        await kept.wait()
    assert time.monotonic() - began < 60  # the daemon itself would sleep 300 s


@linux
async def test_cancellation_ends_the_tree(tmp_path: Path) -> None:
    """Leaving the block by cancellation leaves no process behind."""
    note = tmp_path / "pid"
    identity: list[ProcessIdentity] = []

    async def body() -> None:
        async with keep() as kept:
            identity.append(kept.identity)
            await kept.start(python(DAEMON + "\ntime.sleep(300)", str(note), cwd=tmp_path))
            await kept.wait()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(body())
        await asyncio.to_thread(wait_for, note)
        running.cancel()
    assert running.cancelled()
    assert not alive(int(note.read_text()))
    assert survivors(identity[0]) == []


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [DAEMON + "\ntime.sleep(300)", REFORK + "\ntime.sleep(300)"], ids=["daemon", "refork"]
)
def test_tree_ends_when_the_supervisor_is_killed(tmp_path: Path, program: str) -> None:
    """kill -9 of the parent leaves no process 5 s later."""
    note, who = tmp_path / "pid", tmp_path / "identity"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, program, str(note), str(who)])
    identity = ProcessIdentity.decode(wait_for(who))
    wait_for(note)
    parent.kill()
    parent.wait()
    assert wait_gone(identity.pid)
    assert survivors(identity) == []
    assert living(str(note)) == []
    assert not alive(noted(note))


@linux
async def test_killed_keeper_takes_the_agent_with_it(tmp_path: Path) -> None:
    """Even SIGKILL of the keeper itself leaves nothing that carries its mark."""
    code = "import os,time; os.fork(); print('up', flush=True); time.sleep(300)"
    async with keep() as kept:
        await kept.start(python(code, cwd=tmp_path))
        await kept.read()
        os.kill(kept.identity.pid, signal.SIGKILL)
        assert await kept.wait() == Exit(None)
    assert survivors(kept.identity) == []


@linux
async def test_find_and_kill_ends_an_earlier_attempt_once(tmp_path: Path) -> None:
    """What another supervisor left is ended by its identity; the second time there is nothing."""
    async with keep() as kept:
        await kept.start(python("import time; time.sleep(300)", cwd=tmp_path))
        again = ProcessIdentity.decode(kept.identity.encode())
        assert await asyncio.to_thread(find_and_kill, again)
        assert survivors(again) == []
        assert not await asyncio.to_thread(find_and_kill, again)


def test_reused_pid_is_never_killed() -> None:
    """A process with the same pid but another start time, or of another boot, is left alone."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    try:
        real = ProcessIdentity.of(child.pid, "m")
        assert real.alive()
        for other in (
            ProcessIdentity(real.pid, real.start_time - 1, real.boot, "m"),
            ProcessIdentity(real.pid, real.start_time, "another boot", "m"),
        ):
            assert not find_and_kill(other)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


async def test_many_at_once_leave_nothing(tmp_path: Path) -> None:
    """Ten processes at once each get their own end and output."""
    results: dict[int, tuple[bytes, Exit]] = {}

    async def one(number: int) -> None:
        async with keep() as kept:
            await kept.start(python(f"import sys; print({number}); sys.exit({number})", cwd=tmp_path))
            results[number] = (await output(kept), await kept.wait())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number)) for number in range(10)]
    assert len(tasks) == len(results)
    assert all(results[n] == (f"{n}\n".encode(), Exit(n)) for n in range(10))


@linux
async def test_cancellation_while_spawning_leaves_nothing() -> None:
    """A caller that gives up before the keeper runs leaves no descriptor, and no process but idle keepers."""
    close_idle_keepers()
    before = _open_files()
    for delay in (0.0, 0.0005, 0.002, 0.01, 0.03):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay), keep():
                await asyncio.sleep(0)
                raise TimeoutError
    deadline = time.monotonic() + 60
    while (_keepers() or _open_files() != before) and time.monotonic() < deadline:
        close_idle_keepers()  # those whose order was given up came too late and are idle
        await asyncio.sleep(0.05)
    assert _keepers() == []
    assert _open_files() == before


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _keepers() -> list[int]:
    """Keepers of this very process; other test processes have their own."""
    return sorted(set(living("proctor.sandbox.keeper")) & set(procfs.children(os.getpid())))
