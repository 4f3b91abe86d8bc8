"""What a leg's commands said, in one form: tests by name with outcome and reason, and the whole run's reason.

A red run counts as "failed before" only for the right reason: an assertion or the named check failing. A missing name
is weak; a missing file, a wrong command or a time-out is a broken environment and says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from proctor.proof.results import Context, Outcome, Reason, read_results
from proctor.proof.runner import Run
from proctor.proof.surroundings import SERVICE_FAILED

__all__ = ["RIGHT", "Reading", "merge_readings", "read_run"]

#: Reasons for which a red run says something about the code.
RIGHT = frozenset({Reason.ASSERTION, Reason.MISSING_SYMBOL})
#: Runners that always name their tests or say how many ran; a red one without that never came to the tests.
_RUNNERS: Final = re.compile(
    r"(?:^|&&|;)\s*(?:\w+=\S* )*(?:\S*/)?(?:cargo (?:\S+ )*?(?:test|nextest)|go test|(?:python[\d.]* -m )?pytest"
    r"|python[\d.]* -m unittest|node --test|(?:npx )?(?:jest|vitest))\b[^|>]*$"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Results of one leg. Without tests by name the exit code is all there is: `reason` None means it passed."""

    format: str
    passed: frozenset[str] = frozenset()
    failed: Mapping[str, Reason] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()
    reason: Reason | None = None
    detail: str = ""
    whole: bool = False  # every test that was counted is named

    @property
    def green(self) -> bool:
        """Nothing failed."""
        return self.reason is None and not self.failed

    @property
    def sound(self) -> bool:
        """The commands ran as they should, whatever they said."""
        return self.reason is None or self.reason in RIGHT

    @property
    def named(self) -> bool:
        """Whether single tests are known."""
        return bool(self.passed or self.failed or self.skipped)

    def turned_green(self, after: Reading) -> dict[str, Reason]:
        """Tests that failed here for a reason that counts and do not fail after; "" stands for the command as a whole."""
        gone = {name: why for name, why in self.failed.items() if why in RIGHT and name not in after.failed}
        if after.whole:
            # A file that could not be loaded before has no name after; its tests have.
            loads = {n: w for n, w in gone.items() if w is Reason.MISSING_SYMBOL and after.green}
            gone = {n: w for n, w in gone.items() if n in after.passed} | loads
        elif not after.green:
            gone = {}
        if not gone and not self.failed and self.reason in RIGHT and after.green:
            return {"": self.reason}
        return gone

    def disagreements(self, other: Reading) -> set[str]:
        """What two runs of one tree judged differently; "the command" when only exit codes are known."""
        if (self.reason is None) != (other.reason is None) and not (self.named and other.named):
            return {"the command"}
        mine, theirs = set(self.failed), set(other.failed)
        return (mine & other.passed) | (theirs & self.passed) | _only(mine, other) | _only(theirs, self)

    def as_dict(self) -> dict[str, Any]:
        """As it is stored and shown."""
        return {
            "format": self.format,
            "passed": sorted(self.passed),
            "failed": {name: self.failed[name].value for name in sorted(self.failed)},
            "skipped": sorted(self.skipped),
            "reason": self.reason.value if self.reason else None,
            "detail": self.detail,
            "whole": self.whole,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reading:
        """Read what `as_dict` gave."""
        return cls(
            format=str(data["format"]),
            passed=frozenset(data["passed"]),
            failed={str(name): Reason(reason) for name, reason in data["failed"].items()},
            skipped=frozenset(data["skipped"]),
            reason=Reason(data["reason"]) if data["reason"] else None,
            detail=str(data["detail"]),
            whole=bool(data["whole"]),
        )


def _only(failed: set[str], other: Reading) -> set[str]:
    """Failures that the other run does not know of although it was green: it must have been luck."""
    return failed if other.green and not failed & (other.passed | other.skipped) else set()


def read_run(run: Run, context: Context) -> Reading:
    """Read one command's run."""
    if run.stage != "command":
        return Reading(
            "none", reason=Reason.INFRASTRUCTURE, detail=f"the set-up failed (exit code {run.exit_code})"
        )
    if run.killed_for not in {None, "timeout"}:
        return Reading("none", reason=Reason.INFRASTRUCTURE, detail=f"it was ended for {run.killed_for}")
    if run.exit_code == SERVICE_FAILED and "proctor: a service ended" in run.stderr.text:
        return Reading("none", reason=Reason.INFRASTRUCTURE, detail="a service ended at once")
    report = run.files.get("junit.xml", b"").decode("utf-8", "replace") or None
    timed_out = run.killed_for == "timeout"
    found = read_results(
        run.exit_code, run.stdout.text, run.stderr.text, report=report, timed_out=timed_out, context=context
    )
    if found.form == "exit code" and found.reason is Reason.ASSERTION and _never_began(run):
        words = f"the test runner never came to the tests: {found.evidence}"
        found = replace(found, reason=Reason.INFRASTRUCTURE, evidence=words)
    elif found.form == "exit code" and found.passed and _RUNNERS.search(run.command):
        words = "the test runner ended with 0 and named no test: something ended it before its tests"
        found = replace(found, passed=False, reason=Reason.INFRASTRUCTURE, evidence=words)
    return Reading(
        format=found.form,
        passed=frozenset(name for name, outcome in found.tests.items() if outcome is Outcome.PASSED),
        failed={failure.test: failure.reason for failure in found.failures},
        skipped=frozenset(name for name, outcome in found.tests.items() if outcome is Outcome.SKIPPED),
        reason=None if found.passed else found.reason,
        detail=found.evidence,
        whole=bool(found.tests) and found.names_all,
    )


def _never_began(run: Run) -> bool:
    return bool(_RUNNERS.search(run.command)) and bool((run.stdout.text + run.stderr.text).strip())


def merge_readings(readings: Sequence[Reading]) -> Reading:
    """Several commands as one; their tests keep apart by the command's number."""
    if len(readings) == 1:
        return readings[0]
    if not readings:
        return Reading("none", reason=Reason.INFRASTRUCTURE, detail="there is no command")
    failed = {f"[{n}] {name}": why for n, one in enumerate(readings, 1) for name, why in one.failed.items()}
    red = sorted((one for one in readings if one.reason is not None), key=lambda one: one.sound)
    return Reading(
        format="+".join(dict.fromkeys(one.format for one in readings)),
        passed=frozenset(f"[{n}] {name}" for n, one in enumerate(readings, 1) for name in one.passed),
        failed=failed,
        skipped=frozenset(f"[{n}] {name}" for n, one in enumerate(readings, 1) for name in one.skipped),
        reason=red[0].reason if red else None,
        detail="; ".join(one.detail for one in red),
        whole=all(one.whole for one in readings),
    )
