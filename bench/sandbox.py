"""What confinement costs a short command: every level against a plain spawn, interleaved in one run.

Plain spawn is what any tool does without a sandbox: `subprocess.run` of the same words with both streams captured. Beside
it stands the barest spawn there is (`posix_spawn`, nothing captured), which no tool can use, and bwrap by itself. The
ratio that counts is that of `/bin/true`, at level 3 and at level 2: a command that does anything at all pays less.
Neighbours only ever add time, and to many processes more than to one: so everything here runs before them where we may
ask for that (`scheduling`: realtime, for both sides alike), ratios are of lower quartiles, and medians are given too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from proctor.sandbox import probe, process
from proctor.sandbox.run import run as run_confined
from proctor.sandbox.spec import Level, Spec
from proctor.testing.permits import permit_for_tests

__all__ = ["LIMITS", "run"]

LIMITS = {"confined_vs_plain_spawn": 8.0}
WARM = 3  # the first rounds start keepers and fill caches
_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_BWRAP = (
    *("bwrap", "--die-with-parent", "--new-session", "--unshare-user", "--unshare-all", "--disable-userns"),
    *("--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"),
    *("--tmpfs", "/tmp"),
)


def run(rounds: int = 50) -> dict[str, Any]:
    """Measure every command at every level beside its own plain spawns; milliseconds and ratios."""
    rounds = max(8, rounds)
    with _before_neighbours() as scheduling:
        found = {name: _command(words, rounds) for name, words in _commands().items()}
    ratios = {
        f"level_{level}": found["true"]["levels"][f"level_{level}"]["vs_plain_spawn"] for level in _levels()
    }
    counted = [ratio for name, ratio in ratios.items() if name in {"level_3", "level_2"}]
    return {
        "best_level": int(probe.probe().level),
        "scheduling": scheduling,
        "busy": os.getloadavg()[0] > (os.cpu_count() or 1),
        "confined_vs_plain_spawn": ratios,
        "met": bool(counted) and max(counted) <= LIMITS["confined_vs_plain_spawn"],
        "commands": found,
        "rounds": rounds,
        "limits": LIMITS,
    }


@contextlib.contextmanager
def _before_neighbours() -> Iterator[str]:
    """Run before ordinary processes, with all we start; where that is not allowed, among them."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):
        yield "shared"
        return
    try:
        yield "realtime"
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _commands() -> dict[str, tuple[str, ...]]:
    """Nothing at all, and two small real ones."""
    git = shutil.which("git", path=_ENV["PATH"])
    real = {"git --version": (git, "--version")} if git else {}
    return {"true": ("/bin/true",), **real, "python -c pass": (sys.executable, "-I", "-S", "-c", "pass")}


def _levels() -> list[int]:
    return [int(level) for level in (Level.BWRAP, Level.LANDLOCK, Level.LIMITS) if not probe.available(level)]


def _command(words: tuple[str, ...], rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        times = asyncio.run(_measure(words, place, rounds))
    process.close_idle_keepers()
    shown = {name: _summary(taken) for name, taken in times.items()}
    levels = {name: _ratios(one, shown) for name, one in shown.items() if name.startswith("level_")}
    return {
        **{name: one for name, one in shown.items() if name not in levels},
        "levels": {name: {**shown[name], **ratios} for name, ratios in levels.items()},
    }


def _summary(taken: list[float]) -> dict[str, float]:
    quartile = statistics.quantiles(taken, n=4)[0]
    return {"quartile_ms": round(quartile * 1000, 2), "median_ms": round(statistics.median(taken) * 1000, 2)}


def _ratios(one: dict[str, float], shown: dict[str, dict[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for other in ("plain_spawn", "bare_posix_spawn", "bwrap_alone"):
        if other in shown:
            found[f"vs_{other}"] = round(one["quartile_ms"] / shown[other]["quartile_ms"], 2)
            found[f"vs_{other}_median"] = round(one["median_ms"] / shown[other]["median_ms"], 2)
    return found


async def _measure(words: tuple[str, ...], place: str, rounds: int) -> dict[str, list[float]]:
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "plain_spawn": lambda: _plain(words),
        "bare_posix_spawn": lambda: _bare(words),
    }
    for level in _levels():
        ways[f"level_{level}"] = lambda level=level: _confined(words, place, Level(level))  # type: ignore[misc]
    if not probe.available(Level.BWRAP):
        ways["bwrap_alone"] = lambda: _plain((*_BWRAP, "--bind", place, place, "--", *words))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + WARM):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            if turn >= WARM:
                times[name].append(time.perf_counter() - began)
    return times


async def _plain(words: tuple[str, ...]) -> None:
    subprocess.run(words, capture_output=True, check=True, env=_ENV)  # noqa: ASYNC221 - the thing that is measured


async def _bare(words: tuple[str, ...]) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, null, 1)]
    pid = os.posix_spawn(words[0], words, _ENV, file_actions=actions)  # noqa: ASYNC221 - measured
    os.close(null)
    assert os.waitpid(pid, 0)[1] == 0  # noqa: ASYNC222 - measured


async def _confined(words: tuple[str, ...], place: str, level: Level) -> None:
    readable = (sys.base_prefix, sys.prefix)
    spec = Spec(words, place, _ENV, writable=(place,), readable=readable, level=level, level_required=level)
    result = await run_confined(spec, permit=permit_for_tests())
    assert result.ok, result.stderr.text
    assert result.survivors == 0
