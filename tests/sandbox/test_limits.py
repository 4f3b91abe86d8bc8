"""Memory, CPU, processes and output of a whole tree stay within their limits."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.sandbox import cgroup, nursery, prepare, process
from proctor.sandbox.spec import Level
from tests.sandbox.programs import BOMB, EATER, HOG, SPIN, SPINNER
from tests.sandbox.test_tree import tagged

Sh = Callable[..., Any]


async def test_memory_is_counted_for_the_whole_tree(py: Sh, level: Level) -> None:
    """Three children of 60 MB break a limit of 100 MB that none of them breaks alone."""
    result = await py(HOG, level, limits={"memory_mb": 100, "seconds": 20})
    assert result.killed_for == "memory"
    assert result.survivors == 0
    assert result.peak_bytes > 100 << 20


async def test_a_fast_allocator_meets_the_back_stop(py: Sh, level: Level) -> None:
    """Memory far beyond the limit cannot even be reserved: nobody outruns the watcher by much."""
    code = "import mmap\ntry:\n    mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE)\nexcept OSError:\n    print('REFUSED')"
    result = await py(code, level, limits={"memory_mb": 100})
    assert result.stdout.text == "REFUSED\n"


async def test_cpu_is_held_to_its_share(py: Sh, level: Level) -> None:
    """Two busy processes together get a tenth of one core, with room for the watcher's period."""
    result = await py(SPIN, level, limits={"cpu_percent": 10})
    assert result.exit_code == 0
    assert result.cpu_seconds < 0.25 * result.duration


async def test_a_stopped_command_still_ends(py: Sh, level: Level) -> None:
    """A command that is being held back hears its time-out all the same."""
    result = await py("while True: pass", level, limits={"cpu_percent": 5, "seconds": 1.0, "grace": 1.0})
    assert result.timed_out
    assert result.survivors == 0


async def test_a_fork_bomb_is_ended(py: Sh, level: Level, place: Path) -> None:
    """More processes than allowed end the command, root's too; nobody is left by a new scan."""
    result = await py(f"tag = {str(place)!r}{BOMB}", level, limits={"processes": 50, "seconds": 15})
    assert result.killed_for in {"processes", None}  # None: the kernel's own limit stopped it first
    assert result.killed_for or result.exit_code != 0
    assert result.survivors == 0
    assert tagged(str(place)) == []


CROWD = """
import _thread, os, time
n = 0
try:
    for n in range(200):
        _thread.start_new_thread(time.sleep, (20,))
    os.write(1, b"ALL")
except RuntimeError:
    os.write(1, b"REFUSED %d" % n)
os._exit(0)
"""


async def test_the_kernel_holds_the_number_where_the_result_says_so(py: Sh, level: Level) -> None:
    """Threads are not what is counted but what the kernel refuses: four for each process; watching alone lets them be."""
    result = await py(CROWD, level, limits={"processes": 20, "seconds": 15})
    held = result.sandbox.limits["processes"]
    if held == "polled":
        assert result.stdout.text == "ALL"
    else:
        word, _, count = result.stdout.text.partition(" ")
        assert (held in {"cgroup", "rlimit"}, word) == (True, "REFUSED")
        assert int(count) <= 96


# A keeper on a machine whose groups are not ours to write.
NO_GROUP = """
import sys; sys.path.insert(0, sys.argv.pop(1))
from proctor.sandbox import keeper; keeper.PidsGroup.make = classmethod(lambda cls: None)
keeper.main()
"""


async def test_a_fork_bomb_is_ended_where_nobody_but_us_counts(
    py: Sh, level: Level, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a group of ours the machine's population is glanced at, and the tree is gone soon after it grows."""
    process.close_idle_keepers()
    monkeypatch.setattr(nursery, "_BOOT", NO_GROUP)
    result = await py(f"tag = {str(place)!r}{BOMB}", level, limits={"processes": 50, "seconds": 15})
    assert result.sandbox.limits["processes"] in {"polled", "rlimit"}
    assert result.killed_for == "processes" or result.sandbox.limits["processes"] == "rlimit"
    assert result.duration < 14
    assert tagged(str(place)) == []


async def test_the_result_says_who_kept_each_limit(
    sh: Sh, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's group, or our own watch; and `missing` says that the latter is no cap."""
    monkeypatch.setattr(prepare, "make_group", lambda **_: None)
    watched = await sh("true", level, limits={"memory_mb": 500, "cpu_percent": 90})
    assert (watched.sandbox.limits["memory"], watched.sandbox.limits["cpu"]) == ("polled", "polled")
    assert any("not capped by the kernel" in line for line in watched.sandbox.missing)
    free = await sh("true", level, limits={"processes": None})
    assert free.sandbox.limits == {}
    assert not any("not capped" in line for line in free.sandbox.missing)


async def test_a_kept_group_is_named_in_the_result(
    sh: Sh, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a command joined a group with its limits, the result says so."""
    own = cgroup._own_group()
    if own is None or not os.access(own[0] / own[1], os.W_OK):
        assert cgroup.delegated()[1]
        return
    group = cgroup.Group(own[0] / own[1] / f"proctor-named-{os.getpid()}-{int(level)}")
    group.path.mkdir()
    monkeypatch.setattr(prepare, "make_group", lambda **_: group)
    result = await sh("true", level, limits={"memory_mb": 500})
    assert (result.sandbox.limits["memory"], result.sandbox.limits["processes"]) == ("cgroup", "cgroup")
    assert "cpu" not in result.sandbox.limits


async def test_a_daemon_that_eats_memory_is_counted_and_ended(py: Sh, level: Level, place: Path) -> None:
    """setsid and two forks hide nobody from the limit, and nobody of it is left by a new scan."""
    code = (
        f"tag = {str(place)!r}\nimport os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)"
        + EATER
    )
    result = await py(code, level, limits={"memory_mb": 100, "seconds": 20})
    assert result.killed_for == "memory"
    assert tagged(str(place)) == []


async def test_a_daemon_that_eats_cpu_is_counted_and_ended(py: Sh, level: Level, place: Path) -> None:
    """What setsid and two forks leave behind shares the same share, and ends with the command."""
    code = (
        f"tag = {str(place)!r}\nimport os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)"
        + SPINNER
    )
    result = await py(code, level, limits={"cpu_percent": 20})
    assert result.cpu_seconds < 0.45 * result.duration
    assert tagged(str(place)) == []


async def test_core_files_are_off(sh: Sh, level: Level) -> None:
    """A crash must not write the memory of a command into the workspace."""
    assert (await sh("ulimit -c", level)).stdout.text == "0\n"


@pytest.mark.slow
async def test_a_flood_of_output_is_bounded_in_memory(sh: Sh, level: Level) -> None:
    """Two gigabytes of output leave a beginning, an end, a count, and no growth of ours."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await sh("head -c 2000000000 /dev/zero; head -c 200000000 /dev/zero >&2", level)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (result.stdout.total_bytes, result.stdout.truncated) == (2_000_000_000, True)
    assert (result.stderr.total_bytes, result.stderr.truncated) == (200_000_000, True)
    assert len(result.stdout.text) < 300 << 10
    assert grown < 60 << 10
