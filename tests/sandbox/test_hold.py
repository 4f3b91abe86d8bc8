"""A held tree: its identity is known before anything runs, and nothing of it ever runs unasked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.sandbox import nursery, procfs
from proctor.sandbox.identity import MARK, ProcessIdentity, find_and_kill, survivors
from proctor.sandbox.process import (
    Ending,
    Job,
    KeeperLostError,
    NotStartedError,
    Tree,
    close_idle_keepers,
    hold,
)
from proctor.sandbox.process import start as start_now
from tests.support.requirements import require

NAP = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)")
# A keeper on a system without /proc, subreaper and close-on-exec for received descriptors.
ELSEWHERE = """
import sys; sys.path.insert(0, sys.argv.pop(1))
import socket; del socket.MSG_CMSG_CLOEXEC
from proctor.sandbox import procfs; procfs.LINUX = procfs._CHILDREN_KNOWN = False
from proctor.sandbox.keeper import main; main()
"""


def job(*argv: str, **env: str) -> Job:
    """A program with a mark of its own."""
    return Job(argv, "/", {"PATH": os.defpath, **env})


@contextlib.contextmanager
def nothing() -> Iterator[int]:
    """A stream for a program that reads and writes nothing."""
    with open(os.devnull, "r+b") as file:
        yield file.fileno()


async def released(tree: Tree, wanted: Job) -> None:
    """Start it on nothing."""
    with nothing() as null:
        await tree.start(wanted, stdin=null, stdout=null, stderr=null)


async def test_what_is_ended_before_its_start_never_runs(tmp_path: Path) -> None:
    """Stop and signal hold for a tree that is only held."""
    for number in (0, signal.SIGINT):
        tree, note = await hold("m"), tmp_path / str(number)
        if number:
            tree.signal(number)
        else:
            tree.ask_to_end("not wanted")
        await released(tree, job("/usr/bin/touch", str(note)))
        assert (await tree.wait()).exit_code is None
        await tree.gone()
        assert not note.exists()


async def test_a_keeper_whose_identity_was_given_away_is_never_used_again() -> None:
    """Whoever reads the identity later may kill that process, so it must not serve anybody else by then."""
    close_idle_keepers()
    tree = await hold("m")
    await released(tree, job("/bin/true"))
    assert (await tree.wait()).exit_code == 0
    await tree.gone()
    assert not tree.identity.alive()
    with nothing() as null:
        other = await start_now(job("/bin/true"), stdin=null, stdout=null, stderr=null)
    assert not find_and_kill(tree.identity)
    assert (await other.wait()).exit_code == 0


async def test_a_stop_that_comes_together_with_its_start_is_heard() -> None:
    """The keeper reads both at once: it starts the program and ends it."""
    tree = await hold("m")
    os.kill(tree.identity.pid, signal.SIGSTOP)
    async with asyncio.TaskGroup() as group:
        group.create_task(released(tree, job(*NAP, LONG="x" * 100_000)))
        await asyncio.sleep(0)
        tree.ask_to_end("at once", grace=0.0)
        os.kill(tree.identity.pid, signal.SIGCONT)
    async with asyncio.timeout(20):
        ending = await tree.wait()
    assert (ending.killed_for, ending.exit_code, ending.survivors) == ("at once", -signal.SIGKILL, 0)
    await tree.gone()


async def test_an_order_too_long_to_be_sent_is_told() -> None:
    """Nothing runs, and the error says what to do."""
    tree = await hold("m")
    with pytest.raises(NotStartedError, match="shorter"):
        await released(tree, job("/bin/true", LONG="x" * (9 << 20)))
    await tree.gone()


async def test_a_keeper_killed_while_it_held_is_told() -> None:
    """A start on a dead keeper is lost, not a program that could not be started."""
    tree = await hold("m")
    os.kill(tree.identity.pid, signal.SIGKILL)
    await asyncio.to_thread(tree._keeper.process.wait)
    with pytest.raises(KeeperLostError):
        await released(tree, job("/bin/true"))
    await tree.gone()


async def test_find_and_kill_counts_whom_it_ends() -> None:
    """Keeper and program are found by the identity alone, and after that nobody."""
    tree = await hold("mark-of-find")
    await released(tree, job(*NAP, **{MARK: "mark-of-find"}))
    again = ProcessIdentity.decode(tree.identity.encode())
    assert len(survivors(again)) == 2
    assert await asyncio.to_thread(find_and_kill, again) == 2
    assert survivors(again) == []
    with pytest.raises(KeeperLostError):
        await tree.wait()
    await tree.gone()


def test_an_identity_outlives_no_process() -> None:
    """Pid, start time and boot name one process for good; a dead one that is not buried does not live."""
    child = subprocess.Popen(NAP)
    identity = ProcessIdentity.of(child.pid, "m")
    assert identity.alive()
    assert not ProcessIdentity(child.pid, identity.start_time + 1, identity.boot, "m").alive()
    assert not ProcessIdentity(child.pid, identity.start_time, "another boot", "m").alive()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.alive()
    child.wait()
    assert not identity.alive()


def test_ps_tells_what_the_kernel_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no /proc, parents and start times come from ps, and the dead are not listed."""
    require(os.access("/bin/ps", os.X_OK), "ps is not installed", "Install procps.")
    child = subprocess.Popen(NAP)
    monkeypatch.setattr(procfs, "LINUX", False)
    monkeypatch.setattr(procfs, "_CHILDREN_KNOWN", False)
    try:
        assert procfs.processes()[child.pid] == os.getpid()
        assert child.pid in procfs.tree(os.getpid())
        began = procfs.start_time(child.pid)
        assert began is not None
        assert procfs.start_time(child.pid) == began
    finally:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.start_time(child.pid) is None
        child.wait()


async def test_elsewhere_children_and_group_are_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a subreaper the keeper still ends what hangs on it by parent link or by the leader's group."""
    require(os.access("/bin/ps", os.X_OK), "ps is not installed", "Install procps.")
    close_idle_keepers()
    monkeypatch.setattr(nursery, "_BOOT", ELSEWHERE)
    code = "import os,sys,time; os.fork(); os.fork(); open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(60)"
    note = tmp_path / "pids"
    tree = await hold("m")
    await released(tree, job(*NAP[:-1], code, str(note)))
    async with asyncio.timeout(20):
        while not note.exists() or len(note.read_text().split()) < 4:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
    tree.ask_to_end("enough", grace=0.0)
    ending: Ending = await tree.wait()
    await tree.gone()
    assert (ending.killed_for, ending.exit_code) == ("enough", -signal.SIGKILL)
    assert [pid for pid in note.read_text().split() if procfs.start_time(int(pid)) is not None] == []
