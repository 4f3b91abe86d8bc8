"""What the hollow-change checks speak of: findings with a weight, and tests with the strength of their assertions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Assertion", "HollowFinding", "HollowKind", "HollowWeight", "TestCase", "graded", "plain_literal"]


class HollowWeight(StrEnum):
    """What follows from a finding."""

    REFUTES = "refutes"
    SUSPICIOUS = "suspicious"  # no proof until a person has looked
    NOTE = "note"  # shown; changes nothing


class HollowKind(StrEnum):
    """What a change did instead of, or besides, its work."""

    TEST_DELETED = "test deleted"
    TEST_SKIPPED = "test skipped"
    TEST_WEAKENED = "test weakened"
    CASES_REMOVED = "cases removed"
    TRIVIAL_ASSERTION = "trivial assertion"
    SWALLOWED_ASSERTION = "swallowed assertion"
    EXPECTATION_CHANGED = "expectation changed"
    TOLERANCE_RAISED = "tolerance raised"
    CHECK_EDITED = "check edited"
    VERIFICATION_EDITED = "verification edited"
    HARD_CODED = "hard-coded"
    KNOWS_IT_IS_TESTED = "knows it is tested"
    SNAPSHOT_REPLACED = "snapshot replaced"
    TEST_RUN_STALE = "test run older than edit"
    STAGED = "staged test"
    INERT = "inert change"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class HollowFinding:
    """One finding: what, where, why, and what follows from it."""

    kind: HollowKind
    weight: HollowWeight
    file: str
    line: int
    why: str

    def as_dict(self) -> dict[str, object]:
        """As JSON shows it."""
        return {
            "kind": self.kind.value,
            "weight": self.weight.value,
            "file": self.file,
            "line": self.line,
            "why": self.why,
        }

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind.value}: {self.why}"


@dataclass(frozen=True, slots=True)
class Assertion:
    """One assertion: its text, how much it demands (0 nothing, 3 an exact value), and the values it names."""

    text: str
    strength: float
    line: int
    literals: frozenset[str] = frozenset()
    swallowed: bool = False
    #: How often it runs in one run of its test: elements of a literal list that is looped over.
    times: int = 1


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test of a file."""

    __test__ = False  # not a class for pytest to collect

    file: str
    name: str
    line: int
    assertions: tuple[Assertion, ...] = ()
    #: Why it does not run, or empty; `maybe_skipped` for a condition.
    skipped: str = ""
    maybe_skipped: bool = False
    cases: int = 1
    words: frozenset[str] = frozenset()
    literals: frozenset[str] = frozenset()
    body: str = field(default="", repr=False)

    @property
    def short(self) -> str:
        """The name without its class or group."""
        return self.name.rsplit("::", 1)[-1]

    @property
    def strength(self) -> float:
        """What the test demands in all."""
        return sum(one.strength * one.times for one in self.assertions) * self.cases


def graded(*rows: tuple[float, str]) -> dict[str, float]:
    """A table of strengths, given as rows of names that demand the same."""
    return {name: strength for strength, names in rows for name in names.split()}


def plain_literal(literal: str) -> str:
    """A value of JavaScript or shell text in one spelling; a number in quotes is the number."""
    inner = literal[1:-1] if literal[:1] in "\"'`" else literal
    return inner if re.fullmatch(r"-?\d+(?:\.\d+)?", inner) or inner is literal else repr(inner)
