"""The mark that stands where a secret stood: `[REDACTED:<rule>:<6 hex>]`.

The six digits are an HMAC-SHA-256 of what was there, so equal values stay comparable and short ones cannot be
guessed without the key. A mark is never redacted again.
"""

from __future__ import annotations

import hmac
import re
from bisect import bisect_left, bisect_right

__all__ = ["MARKER", "Marker", "Marks"]

MARKER = re.compile(r"\[REDACTED:[a-z0-9-]{1,24}:[0-9a-f]{6}\]")
_START = "[REDACTED:"

Span = tuple[int, int]


class Marker:
    """Makes marks with one key."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if not key:
            raise ValueError("The redaction key is empty; give the key that lies outside the database.")
        self._key = key

    def of(self, rule: str, value: str) -> str:
        """The mark for a value that a rule found."""
        digest = hmac.digest(self._key, value.encode("utf-8", "surrogatepass"), "sha256")
        return f"[REDACTED:{rule}:{digest[:3].hex()}]"


class Marks:
    """Where marks stand in one text."""

    __slots__ = ("_ends", "_starts", "_text")

    def __init__(self, text: str) -> None:
        spans = [match.span() for match in MARKER.finditer(text)] if _START in text else []
        self._text = text
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def touch(self, start: int, end: int) -> bool:
        """Whether any mark overlaps the span."""
        return bisect_right(self._ends, start) < bisect_left(self._starts, end)

    def grow(self, start: int, end: int) -> Span:
        """The span, widened so that it cuts no mark in two."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first >= last:
            return start, end
        return min(start, self._starts[first]), max(end, self._ends[last - 1])

    def only(self, start: int, end: int) -> bool:
        """Whether the span holds marks and nothing else."""
        return self.touch(start, end) and not MARKER.sub("", self._text[start:end]).strip()
