"""Two runs of the same tests side by side."""

from __future__ import annotations

from proctor.proof.results.model import Outcome, TestRun

__all__ = ["newly_red", "turned_green"]


def newly_red(before: TestRun, after: TestRun) -> tuple[str, ...]:
    """Tests that fail after and did not fail before; known by name, so both runs must come from the same runner."""
    return tuple(sorted(after.failing() - before.failing()))


def turned_green(before: TestRun, after: TestRun) -> tuple[str, ...]:
    """Tests that failed before and do not fail after; where only failures are named, the whole run must have passed."""
    candidates = before.failing() - after.failing()
    named = {name for name in candidates if after.tests.get(name) is Outcome.PASSED}
    return tuple(sorted(candidates if after.passed and not after.names_all else named))
