"""Fixes drafted from something else (a judgement, a review), and what a person must still fill in. Pure.

What is not known is never invented: its place holds a mark that `fixes lint` refuses, and a sentence names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from proctor.protocol.errors import UsageError

__all__ = ["MAX_DRAFTS", "UNKNOWN", "Drafted", "SourceError", "severity_of"]

MAX_DRAFTS: Final = 500
UNKNOWN: Final = "TODO: say how to test it"
_SHOWN: Final = 20
_SEVERITIES: Final = {
    "critical": "critical blocker fatal severe high security p0",
    "major": "major concern concerns medium moderate warning error important bug p1",
    "minor": "minor nit low info note suggestion style trivial p2 p3",
}
_WORDS: Final = {word: severity for severity, words in _SEVERITIES.items() for word in words.split()}


class SourceError(UsageError):
    """{name} cannot be made into fixes, nothing was written: {listed}"""

    code = "fix_source"

    def __init__(self, *, name: str, problems: Iterable[str]) -> None:
        found = list(problems)
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        super().__init__(name=name, listed="; ".join([*found[:_SHOWN], *more]).rstrip(".") + ".")


@dataclass
class Drafted:
    """Fixes without numbers yet, and what is missing in them."""

    fixes: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    def add(self, **members: Any) -> None:
        """Take one fix in; members that are None are left out, and the number is its place."""
        number = len(self.fixes) + 1
        if not members.get("verification"):
            members["verification"] = UNKNOWN
            self.gaps.append(f"fix {number}: verification: say how to test it, and what must be seen")
        if members.get("line") is None:
            members["line"] = 1
            self.gaps.append(f"fix {number}: line: the source names none; set the line where the problem is")
        kept = {name: value for name, value in members.items() if value is not None}
        self.fixes.append({"id": number, **kept})


def severity_of(word: object, default: str) -> str | None:
    """The severity that a word of others means; None when it is no word we know."""
    if word is None or word == "":
        return default
    return _WORDS.get(str(word).strip().lower()) if isinstance(word, str) else None
