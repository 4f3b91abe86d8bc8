"""What confinement costs a short command: every level against a plain spawn, interleaved in one run.

Plain spawn is what a program does without a sandbox: asyncio's own subprocess with both streams captured. The
bare `subprocess.run` without capture and bwrap by itself are given too, so that nobody has to guess.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from proctor.sandbox import probe, process
from proctor.sandbox.run import run as run_confined
from proctor.sandbox.spec import Level, Spec
from proctor.testing.permits import permit_for_tests

__all__ = ["LIMITS", "run"]

LIMITS = {"confined_vs_plain_spawn": 8.0}
COMMAND = "/bin/true"


def run(rounds: int = 50) -> dict[str, Any]:
    """Measure and give milliseconds (medians) and ratios; each level beside its own plain spawns."""
    rounds = max(5, rounds)
    levels = {f"level_{level}": _beside(Level(level), rounds) for level in _levels()}
    best = int(probe.probe().level)
    ratio = levels[f"level_{best}"]["vs_plain_spawn"]
    return {
        "best_level": best,
        "confined_vs_plain_spawn": ratio,
        "met": ratio <= LIMITS["confined_vs_plain_spawn"],
        "confined_vs_bare_spawn": levels[f"level_{best}"]["vs_bare_spawn"],
        "levels": levels,
        "rounds": rounds,
        "limits": LIMITS,
    }


def _levels() -> list[int]:
    return [int(level) for level in (Level.BWRAP, Level.LANDLOCK, Level.LIMITS) if not probe.available(level)]


def _beside(level: Level, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place:
        times = asyncio.run(_measure(place, level, rounds))
    process.close_idle_keepers()
    medians = {name: statistics.median(taken) * 1000 for name, taken in times.items()}
    ratios = {
        f"vs_{name}": medians["confined"] / value for name, value in medians.items() if name != "confined"
    }
    return {name: round(value, 2) for name, value in {**medians, **ratios}.items()}


async def _measure(place: str, level: Level, rounds: int) -> dict[str, list[float]]:
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "plain_spawn": _plain,
        "bare_spawn": _bare,
        "confined": lambda: _confined(place, level),
    }
    if level is Level.BWRAP:
        ways["bwrap_alone"] = lambda: _bwrap(place)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 3):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            if turn >= 3:  # the first ones start keepers and fill caches
                times[name].append(time.perf_counter() - began)
    return times


async def _plain() -> None:
    child = await asyncio.create_subprocess_exec(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    await child.communicate()


async def _bare() -> None:
    subprocess.run([COMMAND], check=True)  # noqa: ASYNC221 - the thing that is measured


async def _bwrap(place: str) -> None:
    words = (
        "bwrap --die-with-parent --new-session --unshare-user --unshare-all --disable-userns --cap-drop ALL"
    )
    words += " --ro-bind / / --dev /dev --proc /proc --tmpfs /run --tmpfs /tmp --bind"
    subprocess.run([*words.split(), place, place, "--", COMMAND], check=True)  # noqa: ASYNC221 - measured


async def _confined(place: str, level: Level) -> None:
    spec = Spec((COMMAND,), place, {}, writable=(place,), level=level, level_required=level)
    result = await run_confined(spec, permit=permit_for_tests())
    assert result.ok
    assert result.survivors == 0
