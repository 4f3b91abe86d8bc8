"""The shape of a test run: outcomes by test, and why it failed in one of a few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Context", "Failure", "Outcome", "Parsed", "Reason", "TestRun"]


class Outcome(StrEnum):
    """What became of one test; an expected failure counts as skipped, an unexpected pass as failed."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


class Reason(StrEnum):
    """Why a run did not pass."""

    NONE = "none"
    ASSERTION = "assertion"
    MISSING_SYMBOL = "missing_symbol"
    INFRASTRUCTURE = "infrastructure"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of the change whose tests ran: the names it brings into being and the files it touches."""

    added_symbols: frozenset[str] = frozenset()
    changed_files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Failure:
    """One test that did not pass, and why."""

    test: str
    outcome: Outcome
    reason: Reason
    evidence: str


@dataclass(slots=True)
class Parsed:
    """What one parser found; `problem` says why there are no results to speak of."""

    form: str
    tests: dict[str, Outcome] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    counts: dict[Outcome, int] = field(default_factory=dict)
    problem: tuple[Reason, str] | None = None
    #: Failed before any test ran: the text of the collection or compilation.
    collecting: dict[str, str] = field(default_factory=dict)

    def add(self, test: str, outcome: Outcome, text: str = "") -> None:
        """Note one test; a worse outcome of the same test (teardown, subtest, repetition) wins."""
        rank = (Outcome.SKIPPED, Outcome.PASSED, Outcome.FAILED, Outcome.ERROR).index
        if test not in self.tests or rank(outcome) > rank(self.tests[test]):
            self.tests[test] = outcome
        if text:
            self.texts[test] = f"{self.texts.get(test, '')}\n{text}".strip()


@dataclass(frozen=True, slots=True)
class TestRun:
    """One run of a command: passed or not, why not, and every test that was named."""

    __test__ = False  # not a class for pytest to collect

    form: str
    exit_code: int
    passed: bool
    reason: Reason
    evidence: str
    tests: Mapping[str, Outcome] = field(default_factory=dict)
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()

    @property
    def weak(self) -> bool:
        """Whether it failed only because something did not exist yet."""
        return self.reason is Reason.MISSING_SYMBOL

    @property
    def names_all(self) -> bool:
        """Whether every test that was counted is named, so that two runs can be compared test by test."""
        return len(self.tests) == sum(self.counts.values())

    def failing(self) -> frozenset[str]:
        """The tests that did not pass."""
        return frozenset(
            name for name, outcome in self.tests.items() if outcome in {Outcome.FAILED, Outcome.ERROR}
        )
