"""Nobody of a command's tree outlives it: looked up again in /proc, by mark and by name of the program."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.sandbox import process, procfs
from proctor.sandbox.run import run
from proctor.sandbox.spec import Level, Spec
from proctor.testing.permits import permit_for_tests
from tests.sandbox.conftest import SRC
from tests.sandbox.programs import CHAIN, DAEMONS, STUBBORN

Sh = Callable[..., Any]
# On a busy machine a program may not have begun when its time is over: then it gets more of it.
PATIENCE = (0.5, 3.0, 15.0)


def tagged(tag: str) -> list[int]:
    """Every live process that names the tag in its words or environment; our own search, not the product's."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = Path(entry.path, "cmdline").read_bytes() + Path(entry.path, "environ").read_bytes()
            state = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if tag.encode() in text and state not in "ZX":
            found.append(int(entry.name))
    return found


@pytest.fixture
def tag(place: Path) -> str:
    """Something that only this test's processes carry: the path of its workspace."""
    return str(place)


async def test_daemons_die_with_their_command(py: Sh, level: Level, tag: str) -> None:
    """setsid, double fork, cleared environment and closed files do not help."""
    nap = f"60.{os.getpid()}{int(level)}"  # the barest daemon keeps nothing else by which to find it
    result = await py(f"tag, nap = {tag!r}, {nap!r}{DAEMONS}", level)
    assert "ready" in result.stdout.text
    assert result.survivors == 0
    assert tagged(tag) == []
    assert tagged(nap) == []


async def test_a_chain_of_forks_is_caught(py: Sh, level: Level, tag: str) -> None:
    """A process that is another one every 2 ms is ended all the same."""
    result = await py(f"tag = {tag!r}{CHAIN}", level, limits={"seconds": 1.0, "grace": 0.1})
    assert result.survivors == 0
    assert tagged(tag) == []


async def test_a_timeout_ends_the_tree(py: Sh, level: Level, tag: str) -> None:
    """What ignores TERM is killed after the grace."""
    for seconds in PATIENCE:
        result = await py(f"tag = {tag!r}{STUBBORN}", level, limits={"seconds": seconds, "grace": 0.3})
        if "ready" in result.stdout.text:
            break
    assert (result.timed_out, result.killed_for, result.exit_code) == (True, "timeout", 137)
    assert tagged(tag) == []


async def test_term_lets_a_command_tidy_up(sh: Sh, level: Level) -> None:
    """At its time-out a command hears TERM, also inside the namespace, and its last words are kept."""
    command = "trap 'echo tidy; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    for seconds in PATIENCE:
        result = await sh(command, level, limits={"seconds": seconds})
        if result.stdout.text:
            break
    assert result.stdout.text == "ready\ntidy\n"
    assert result.timed_out


async def test_cancel_ends_the_tree_and_gives_a_result(py: Sh, level: Level, tag: str) -> None:
    """A set event stops a command with a result that says so."""
    cancel = asyncio.Event()
    result = await py(
        f"tag = {tag!r}{STUBBORN}",
        level,
        cancel=cancel,
        limits={"grace": 0.2},
        on_output=lambda *_: cancel.set(),
    )
    assert result.killed_for == "cancelled"
    assert not result.timed_out
    assert tagged(tag) == []


async def test_cancelling_the_task_ends_the_tree_first(
    spec: Callable[..., Spec], level: Level, tag: str
) -> None:
    """When the caller's task is cancelled, the tree is gone before the cancellation goes on."""
    ready = asyncio.Event()
    wanted = spec((sys.executable, "-I", "-S", "-c", f"tag = {tag!r}{DAEMONS}time.sleep(60)"), level)

    async def go() -> None:
        await run(wanted, permit=permit_for_tests(), on_output=lambda *_: ready.set())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(go())
        await asyncio.wait_for(ready.wait(), 30)
        task.cancel()
    assert task.cancelled()
    assert tagged(tag) == []


async def test_a_reader_that_raises_ends_the_tree(py: Sh, level: Level, tag: str) -> None:
    """An error in the caller's own callback comes back as it is, and nothing runs on."""

    def broken(_stream: str, _text: str) -> None:
        raise ZeroDivisionError("the reader's own")

    with pytest.raises(ZeroDivisionError, match="the reader's own"):
        await py(f"tag = {tag!r}{STUBBORN}", level, on_output=broken)
    assert tagged(tag) == []


async def test_a_killed_keeper_is_noticed(spec: Callable[..., Spec], level: Level, tag: str) -> None:
    """When the keeper itself is killed, the marked children are found, ended and told of."""
    ready = asyncio.Event()
    wanted = spec((sys.executable, "-I", "-S", "-c", f"tag = {tag!r}{STUBBORN}"), level)

    async def go() -> None:
        with pytest.raises(process.KeeperLostError):
            await run(wanted, permit=permit_for_tests(), on_output=lambda *_: ready.set())

    async with asyncio.TaskGroup() as group:
        group.create_task(go())
        await asyncio.wait_for(ready.wait(), 30)
        for pid in procfs.children(os.getpid()):
            if b"proctor.sandbox.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    assert _eventually(lambda: tagged(tag) == [])


OWNER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from proctor.sandbox.run import run
from proctor.sandbox.spec import Level, Spec
from proctor.testing.permits import permit_for_tests
level = Level(int(sys.argv[2]))
spec = Spec(tuple(sys.argv[4:]), sys.argv[3], {"PATH": "/usr/bin:/bin"}, writable=(sys.argv[3],),
            readable=(sys.base_prefix, sys.prefix), level=level, level_required=level)
asyncio.run(run(spec, permit=permit_for_tests(), on_output=lambda *_: print("ready", flush=True)))
"""


def test_the_tree_dies_when_its_owner_is_killed(place: Path, level: Level, tag: str) -> None:
    """kill -9 of the process that asked leaves nothing behind: no daemon, no keeper, no directory."""
    words = [sys.executable, "-c", OWNER, SRC, str(int(level)), str(place / "ws")]
    words += [sys.executable, "-I", "-S", "-c", f"tag = {tag!r}{DAEMONS}time.sleep(60)"]
    (place / "tmp").mkdir()
    owner = subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(place / "tmp")})
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"ready\n"
    assert _eventually(lambda: len(tagged(tag)) > 3)
    keepers = procfs.children(owner.pid)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert _eventually(lambda: tagged(tag) == [])
    assert _eventually(lambda: not any(procfs.start_time(pid) for pid in keepers))
    assert list((place / "tmp").iterdir()) == []


def _eventually(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.05)
    return False


async def test_twenty_commands_at_once_do_not_mix(sh: Sh, level: Level) -> None:
    """Each run has its own keeper, output and end."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sh(f"echo {n}; setsid sleep 30 & exit {n}", level)) for n in range(20)]
    for number, task in enumerate(tasks):
        result = task.result()
        assert (result.stdout.text, result.exit_code, result.survivors) == (f"{number}\n", number, 0)


async def test_a_daemon_that_holds_the_pipe_does_not_hold_the_run(sh: Sh, level: Level) -> None:
    """The end is the command's exit and a short grace, not the end of the file."""
    began = time.monotonic()
    result = await sh("(sleep 50; echo late) & echo done", level)
    assert result.stdout.text == "done\n"
    assert result.killed_for is None
    assert time.monotonic() - began < 40
    if level is not Level.BWRAP:
        assert result.leftovers > 0


async def test_a_program_that_is_not_there_is_an_error_and_no_exit_code(sh: Sh, level: Level) -> None:
    """ "Could not be started" is never mistaken for "ran and failed"."""
    with pytest.raises(process.NotStartedError, match="nowhere"):
        await sh(("/nowhere/to/be/found",), level)


async def test_a_used_keeper_works_again(sh: Sh, level: Level) -> None:
    """After a failure, a kill and a success the same keeper serves on."""
    with pytest.raises(process.NotStartedError):
        await sh(("/nowhere",), level)
    await sh("sleep 20", level, limits={"seconds": 0.1, "grace": 0.1})
    assert (await sh("echo again", level)).stdout.text == "again\n"
