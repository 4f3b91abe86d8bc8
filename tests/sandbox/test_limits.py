"""Memory, CPU, processes and output of a whole tree stay within their limits."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import pytest

from proctor.sandbox.spec import Level
from tests.sandbox.programs import BOMB, HOG, SPIN

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


async def test_a_fork_bomb_is_ended(py: Sh, level: Level) -> None:
    """More processes than allowed end the command; nobody is left."""
    result = await py(BOMB, level, limits={"processes": 50, "seconds": 15})
    assert result.killed_for in {"processes", None}  # None: the kernel's own limit stopped it first
    assert result.killed_for or result.exit_code != 0
    assert result.survivors == 0


async def test_core_files_are_off(sh: Sh, level: Level) -> None:
    """A crash must not write the memory of a command into the workspace."""
    assert (await sh("ulimit -c", level)).stdout.text == "0\n"


@pytest.mark.slow
async def test_a_flood_of_output_is_bounded_in_memory(sh: Sh, level: Level) -> None:
    """300 MB of output leave a beginning, an end, a count, and no growth of ours."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await sh("head -c 300000000 /dev/zero | tr '\\0' x", level)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (result.stdout.total_bytes, result.stdout.truncated) == (300_000_000, True)
    assert len(result.stdout.text) < 300 << 10
    assert grown < 60 << 10
