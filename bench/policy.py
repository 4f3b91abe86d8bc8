"""The command policy: time for one line over the ordinary and the hostile corpus, and for the worst texts within the cap."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proctor.gate.policy import judge_command

__all__ = ["LIMITS", "run"]

LIMITS = {"median_ms": 0.3, "worst_ms": 1000.0}
CORPUS = Path(__file__).resolve().parent.parent / "tests" / "gate" / "corpus"
WORST = ("|", "a|", "]]", "]]{", ";!\\\n", "a=(", "<<E ", "$((a", "<=[", "sh|", "}")


def run(repeats: int = 3) -> dict[str, Any]:
    """Measure; the median of all lines is what counts."""
    lines = [line.replace("⏎", "\n") for name in ("ordinary", "hostile") for line in _lines(name)]
    judge_command("ls")
    times = sorted(_seconds(lines * max(1, repeats)))
    worst = max(_seconds([(unit * 32_000)[:32_000] for unit in WORST]))
    measured = {
        "median_ms": round(statistics.median(times) * 1000, 4),
        "worst_ms": round(worst * 1000, 1),
    }
    return {
        **measured,
        "p99_ms": round(times[int(len(times) * 0.99)] * 1000, 4),
        "lines": len(lines),
        "lines_per_s": round(len(times) / sum(times)),
        "limits": LIMITS,
        "met": all(measured[name] <= limit for name, limit in LIMITS.items()),
    }


def _lines(name: str) -> list[str]:
    return (CORPUS / f"{name}.txt").read_text(encoding="utf-8").splitlines()[1:]


def _seconds(lines: Sequence[str]) -> list[float]:
    times = []
    for line in lines:
        began = time.perf_counter()
        judge_command(line)
        times.append(time.perf_counter() - began)
    return times
