"""The naming rule of exchanged files: `{SEQUENCE}_{FOCUS_AREA}_{TYPE}.{ext}`.

Focus area and type may both hold underscores, so the type is found by the known suffixes, the longest first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proctor.protocol.errors import UsageError

__all__ = ["LAST_SEQUENCE", "TYPES", "FileName", "FileNameError", "parse_name", "sequence_of", "snake_case"]

TYPES: Final = ("review_request", "review_feedback", "implementation", "test_results", "fixes")
LAST_SEQUENCE: Final = 999

_BY_LENGTH: Final = tuple(sorted(TYPES, key=len, reverse=True))
_SNAKE: Final = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_EXTENSION: Final = re.compile(r"[a-z0-9]{1,8}")


class FileNameError(UsageError):
    """{name!r} is not named like an exchanged file: {problem}. The rule is SEQUENCE_FOCUS_AREA_TYPE.ext, for example
    005_stress_test_system_fixes.json.
    """

    code = "file_name"


@dataclass(frozen=True, slots=True)
class FileName:
    """The four parts of a name."""

    sequence: int
    focus: str
    kind: str
    extension: str = "json"

    def __str__(self) -> str:
        return f"{self.sequence:03d}_{self.focus}_{self.kind}.{self.extension}"

    @property
    def review_id(self) -> str:
        """What the first file of a cycle calls the cycle."""
        return f"{self.sequence:03d}_{self.focus}"


def parse_name(name: str) -> FileName:
    """Take a name apart, or say which part is wrong."""
    stem, dot, extension = name.rpartition(".")
    if not dot or not _EXTENSION.fullmatch(extension):
        raise FileNameError(name=name[:120], problem="it has no plain extension")
    digits, _, rest = stem.partition("_")
    if not re.fullmatch(r"[0-9]{3}", digits):
        seen = f"the sequence {digits[:12]!r} is not three digits" + _shorter(digits)
        raise FileNameError(name=name[:120], problem=seen)
    kind = next((each for each in _BY_LENGTH if rest == each or rest.endswith(f"_{each}")), None)
    if kind is None:
        raise FileNameError(name=name[:120], problem=f"it does not end in one of {', '.join(TYPES)}")
    focus = rest.removesuffix(kind).removesuffix("_")
    if not _SNAKE.fullmatch(focus):
        problem = (
            f"the focus area {focus[:40]!r} is not snake_case (small letters, digits, single underscores)"
        )
        raise FileNameError(name=name[:120], problem=problem)
    return FileName(int(digits), focus, kind, extension)


def _shorter(digits: str) -> str:
    if digits.isdigit() and digits.isascii() and len(digits) < 12 and int(digits) <= LAST_SEQUENCE:
        return f"; write {int(digits):03d}"
    return ""


def sequence_of(name: str) -> int | None:
    """The sequence any name takes up, also of a file that breaks the rest of the rule."""
    found = re.match(r"([0-9]{3,4})_", name)
    return int(found[1]) if found else None


def snake_case(text: str) -> str:
    """Make a focus area of any text."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())
    return "_".join(words)[:60].strip("_") or "general"
