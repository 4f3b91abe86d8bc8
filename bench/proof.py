"""What a proof costs beyond the commands it must run: on 3,000 files, with cold and with warm checkouts.

The bound is the design's: at most 1.15 times the commands plus half a second when warm.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.proof.repos import PATH, commit, new_repo, permits_for_proofs

from proctor.config import load_settings
from proctor.proof.kinds import Kind
from proctor.proof.workbench import Wish, Workbench
from proctor.sandbox import process

__all__ = ["run"]

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
