"""Exact values that Proctor holds itself (keys, tokens, passwords), in the forms in which they travel.

No pattern is needed and nothing is guessed: the value, its URL-encoded, base64 and JSON-escaped forms are found.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote, quote_plus

from proctor.trace.redact_marker import Marker, Marks

__all__ = ["SHORTEST_KNOWN", "KnownValues"]

SHORTEST_KNOWN = 8  # a shorter value would be found by chance all over the place
_BASE64_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-=")
_PERCENT = re.compile(r"%[0-9A-F]{2}")

Found = tuple[int, int, str]


class KnownValues:
    """The known values and the search for them; immutable."""

    def __init__(self, values: Sequence[str], marker: Marker) -> None:
        self.values = tuple(dict.fromkeys(v for v in map(str.strip, values) if len(v) >= SHORTEST_KNOWN))
        self._marker = marker
        self._plain = {form: value for value in self.values for form in _plain_forms(value)}
        self._base64 = {form: value for value in self.values for form in _base64_forms(value)}
        self._longest = max((len(form) for form in self._plain if "\n" in form), default=0)

    @property
    def literals(self) -> tuple[str, ...]:
        """Every string whose absence means that no known value is there."""
        return tuple(dict.fromkeys((*self._plain, *self._base64)))

    def replace(self, text: str) -> str:
        """The text with every known value replaced; equal values get equal marks in every form."""
        out: list[str] = []
        position = 0
        for start, end, value in self.spans(text):
            out += [text[position:start], self._marker.of("known", value)]
            position = end
        return "".join((*out, text[position:])) if out else text

    def spans(self, text: str) -> list[Found]:
        """Where known values are, in order and apart; marks already in the text are left alone."""
        found = [*_occurrences(text, self._plain), *_base64_occurrences(text, self._base64)]
        if not found:
            return []
        marks = Marks(text)
        return _apart(sorted(f for f in found if not marks.touch(f[0], f[1])), text)

    def safe_cut(self, text: str, cut: int) -> int:
        """The last line start up to `cut` over which no known value of several lines reaches or could reach."""
        if not self._longest:
            return cut
        cut = text.rfind("\n", 0, max(0, min(cut, len(text) - self._longest + 1))) + 1
        for start, end, _ in reversed(self.spans(text)):
            if start < cut < end:
                cut = text.rfind("\n", 0, start) + 1
        return cut


def _plain_forms(value: str) -> Iterator[str]:
    yield value
    for quoted in (quote(value, safe="", errors="surrogatepass"), quote_plus(value, errors="surrogatepass")):
        yield quoted
        yield _PERCENT.sub(lambda match: match[0].lower(), quoted)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]


def _base64_forms(value: str) -> Iterator[str]:
    """The part of the base64 text that does not depend on what stands before and after, for the three alignments."""
    data = value.encode("utf-8", "surrogatepass")
    for shift, skip in ((0, 0), (1, 2), (2, 3)):
        padded = bytes(shift) + data
        whole = len(padded) * 8 // 6
        yield base64.b64encode(padded).decode("ascii")[skip:whole]
        yield base64.urlsafe_b64encode(padded).decode("ascii")[skip:whole]


def _occurrences(text: str, forms: dict[str, str]) -> Iterator[Found]:
    for form, value in forms.items():
        start = text.find(form)
        while start >= 0:
            yield start, start + len(form), value
            start = text.find(form, start + len(form))


def _base64_occurrences(text: str, forms: dict[str, str]) -> Iterator[Found]:
    """As above, but each one grown to the whole base64 word, which holds the rest of the value."""
    for form, value in forms.items():
        end = 0
        while (hit := text.find(form, end)) >= 0:
            start, floor, end = hit, end, hit + len(form)
            while start > floor and text[start - 1] in _BASE64_CHARS:
                start -= 1
            while end < len(text) and text[end] in _BASE64_CHARS:
                end += 1
            yield start, end, value


def _apart(found: list[Found], text: str) -> list[Found]:
    """Overlapping finds become one; it stands for the value if they agree on it, else for its own text."""
    merged: list[Found] = []
    for start, end, value in found:
        if merged and start < merged[-1][1]:
            first, last, other = merged[-1]
            last = max(last, end)
            merged[-1] = (first, last, value if value == other else text[first:last])
        else:
            merged.append((start, end, value))
    return merged
