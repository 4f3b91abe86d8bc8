"""Tests that cannot run on this machine: skipped, but never in silence.

`require` skips with a reason that the end of the run lists by test name with its cure; with CI=true that
fails the run.
"""

from __future__ import annotations

import pytest

__all__ = ["MARK", "missing", "require"]

MARK = "cannot run here: "


def require(condition: object, what: str, cure: str) -> None:
    """Go on when the condition holds; otherwise skip, and the run's end says what is missing and its cure."""
    if not condition:
        pytest.skip(f"{MARK}{what}. {cure}")


def missing(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Give what a skipped test lacked, or None when it was skipped for another reason or ran."""
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return None
    reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    return reason.removeprefix(MARK) if reason.startswith(MARK) else None
