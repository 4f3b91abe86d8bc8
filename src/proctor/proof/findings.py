"""What the lints find: a stable code, how bad it is, where, one sentence, and the cure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LintFinding", "Weight", "has_errors"]


class Weight(StrEnum):
    """How bad a finding is: an error keeps a file from being good, a warning wants a look."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding of a lint."""

    code: str
    weight: Weight
    place: str
    sentence: str
    cure: str
    line: int = 0
    fixable: bool = False

    def as_dict(self) -> dict[str, object]:
        """As JSON shows it."""
        return {
            "code": self.code,
            "severity": self.weight.value,
            "place": self.place,
            "line": self.line,
            "sentence": self.sentence,
            "cure": self.cure,
            "fixable": self.fixable,
        }

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{self.weight.value}: {where}{self.place}: {self.sentence} {self.cure} [{self.code}]"


def has_errors(findings: list[LintFinding]) -> bool:
    """Whether any finding is an error."""
    return any(one.weight is Weight.ERROR for one in findings)
