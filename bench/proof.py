"""What a proof costs beyond the commands it must run: on 3,000 files, with cold and with warm checkouts.

The bound is the design's: at most 1.15 times the commands plus half a second when warm.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.proof.many import bench_of, expected, many_fixes
from tests.proof.repos import PATH, commit, new_repo, permits_for_proofs

from proctor.config import load_settings
from proctor.proof.kinds import Kind
from proctor.proof.workbench import Wish, Workbench
from proctor.sandbox import process

__all__ = ["fixes", "run"]

WAIT = "timeout 0.5 tail -f /dev/null"
SETTINGS = '[project]\ntest = "bash tests/test_all.sh"\n'


def run(files: int = 3000) -> dict[str, Any]:
    """Judge one fix cold and then five times warm."""
    with tempfile.TemporaryDirectory() as place:
        rows = asyncio.run(_measure(Path(place), files))
    process.close_idle_keepers()
    warm = rows[1:]
    over = [total - commands for total, commands in warm]
    allowed = [0.15 * commands + 0.5 for _total, commands in warm]
    return {
        "files": files,
        "cold": {"total_s": round(rows[0][0], 2), "commands_s": round(rows[0][1], 2)},
        "warm_overhead_s": round(statistics.median(over), 2),
        "allowed_overhead_s": round(statistics.median(allowed), 2),
        "met": statistics.median(over) <= statistics.median(allowed),
    }


async def _measure(place: Path, files: int) -> list[tuple[float, float]]:
    base: dict[str, str | None] = {f"src/p{n // 100}/m{n}.txt": f"file {n}\n" * 20 for n in range(files)}
    base |= {
        "calc.sh": "echo old\n",
        "tests/test_all.sh": f"{WAIT}\nbash calc.sh | grep -q .\n",
        "proctor.toml": SETTINGS,
    }
    repo = new_repo(place / "repo", base)
    check = f"{WAIT}\nset -e\nbash calc.sh | grep -q .\nbash calc.sh | grep -q new\n"
    commit(repo, "change", {"calc.sh": "echo new\n", "tests/test_all.sh": check})
    (place / "home").mkdir()
    settings = load_settings(repo, {"HOME": str(place / "home"), "PATH": PATH})
    rows = []
    for _ in range(6):
        began = time.monotonic()
        bench = Workbench(settings, repo, permits_for_proofs, slots=2)
        found = await bench.check(Wish("HEAD", base="HEAD~1", kind=Kind.FIX))
        total = time.monotonic() - began
        assert found.word == "proven", found.reasons
        rows.append((total, sum(leg.seconds for leg in found.legs)))
    return rows


def fixes(count: int = 200) -> dict[str, Any]:
    """Judge one file of so many fixes with one checkout, and with one per core; wrong verdicts must be none."""
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as place:
        alone = asyncio.run(_judged(Path(place) / "a", max(10, count // 5), 1))
        beside = asyncio.run(_judged(Path(place) / "b", max(10, count // 5), cores))
        whole = asyncio.run(_judged(Path(place) / "c", count, cores))
    process.close_idle_keepers()
    return {
        "fixes": count,
        "cores": cores,
        "seconds": round(whole[0], 2),
        "commands": whole[1],
        "ms_per_command": round(1000 * whole[0] / whole[1], 1),
        "time_of_one_checkout_to_all_cores": round(alone[0] / beside[0], 2),
        "wrong_verdicts": whole[2],
        "met": not (alone[2] or beside[2] or whole[2]),
    }


async def _judged(place: Path, count: int, slots: int) -> tuple[float, int, int]:
    repo, document = many_fixes(place, count)
    bench = bench_of(repo, place / "home", slots)
    began = time.monotonic()
    found = await bench.verify(document, base="HEAD~1")
    seconds = time.monotonic() - began
    wanted = expected(count)
    wrong = sum(one.judgement.word.value != wanted[int(one.fix.id)] for one in found)
    return seconds, sum(len(leg.ran) for one in found for leg in one.judgement.legs), wrong
