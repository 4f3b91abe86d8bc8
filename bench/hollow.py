"""The hollow-change corpus: a confusion matrix of Proctor's verdicts, beside those of "exit 0 after the change".

Every case is a real repository with two commits, judged in the sandbox; nothing is simulated.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.hollow.cases import Case, all_cases
from tests.hollow.judge import Told, confusion, judge_case
from tests.hollow.tricky import tricky_cases

from proctor.sandbox import process

__all__ = ["run"]

LIMITS = {"false_accepts": 0, "honest_refuted": 0}


def run(share: float = 1.0) -> dict[str, Any]:
    """Judge a share of the corpus (evenly chosen) and give the matrix; `met` is false if anything was judged wrong."""
    cases = [*all_cases(), *tricky_cases()]
    step = max(1, round(1 / share))
    told = asyncio.run(_judge(cases[::step]))
    process.close_idle_keepers()
    matrix = confusion(told)
    _print(told)
    met = not matrix["false_accepts"] and not matrix["honest_refuted"] and not matrix["unexpected"]
    seconds = round(sum(one.seconds for one in told), 1)
    return {**matrix, "limits": LIMITS, "met": met, "seconds": seconds}


async def _judge(cases: list[Case]) -> list[Told]:
    turns = asyncio.Semaphore(os.cpu_count() or 1)
    async with asyncio.TaskGroup() as group:

        async def one(case: Case) -> Told:
            async with turns:
                with tempfile.TemporaryDirectory() as place:
                    return await judge_case(case, Path(place))

        tasks = [group.create_task(one(case)) for case in cases]
    return [task.result() for task in tasks]


def _print(told: list[Told]) -> None:
    words = sorted({one.word for one in told})
    rows = [("", *words, "usual gate accepts")]
    for name, honest in (("honest", True), ("hollow", False)):
        group = [one for one in told if one.case.honest is honest]
        counts = [str(sum(one.word == word for one in group)) for word in words]
        rows.append((f"{name} ({len(group)})", *counts, str(sum(one.usual for one in group))))
    for row in rows:
        print("  ".join(cell.rjust(16) for cell in row), file=sys.stderr)
