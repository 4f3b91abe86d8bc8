"""JSON text with positions: every value knows where it stands, so that errors name a line and edits touch nothing else.

Invariants: what the strict grammar does not allow is refused with line and column (double keys and NaN too); depth is
limited; an edit leaves every byte outside the edited value as it was.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

from proctor.protocol.errors import UsageError

__all__ = ["MAX_DEPTH", "MAX_VALUES", "JsonText", "JsonTextError", "Path", "Span", "path_name", "scan_json"]

MAX_DEPTH: Final = 40
MAX_VALUES: Final = 200_000

Path = tuple[str | int, ...]

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_MAX_DIGITS: Final = 400
_DECODER: Final = json.JSONDecoder()


class JsonTextError(UsageError):
    """{where}: {problem}."""

    code = "json"


class Span(NamedTuple):
    """Where a value stands, and where the member or element it belongs to begins."""

    start: int
    end: int
    begin: int


@dataclass(frozen=True, slots=True)
class JsonText:
    """A JSON document: its text, its value, and the place of every value in it."""

    text: str
    value: Any
    spans: dict[Path, Span]
    starts: list[int] = field(repr=False)

    def line(self, path: Path) -> int:
        """The line on which the value stands; the nearest value above it if there is none."""
        while path and path not in self.spans:
            path = path[:-1]
        span = self.spans.get(path)
        return _line(self.starts, span.begin if span else 0)

    def replaced(self, path: Path, value: object) -> str:
        """The text with one value replaced; nothing else changes."""
        span = self.spans[path]
        return self.text[: span.start] + self._render(value, span.begin) + self.text[span.end :]

    def with_member(self, path: Path, name: str, value: object) -> str:
        """The text with a member of an object set: replaced where it stands, else added as the last one."""
        if (*path, name) in self.spans:
            return self.replaced((*path, name), value)
        last = [self.spans[p] for p in self.spans if len(p) == len(path) + 1 and p[:-1] == path]
        if not last:
            return self.replaced(path, {name: value})
        latest = max(last, key=lambda span: span.end)
        between = self._between(latest.begin)
        member = f"{json.dumps(name)}: {self._render(value, latest.begin)}"
        return f"{self.text[: latest.end]},{between}{member}{self.text[latest.end :]}"

    def _between(self, begin: int) -> str:
        """What stands before a member on its line: a line end and its indent, or one blank."""
        lead = _lead(self.text, begin)
        return " " if lead is None else self._line_end() + lead

    def _line_end(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def _render(self, value: object, begin: int) -> str:
        lead = _lead(self.text, begin)
        if lead is None:
            return json.dumps(value, ensure_ascii=False)
        unit = "\t" if "\t" in lead else "  " if len(lead) % 4 or len(lead) < 8 else "    "
        rendered = json.dumps(value, ensure_ascii=False, indent=unit)
        return rendered.replace("\n", self._line_end() + lead)


def path_name(path: Path) -> str:
    """Write a path as people do: fixes[2].result.status."""
    name = ""
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name or "the file"


def scan_json(text: str, name: str = "text") -> JsonText:
    """Read a JSON document with the place of every value."""
    return _Scanner(text, name).run()


def _lead(text: str, begin: int) -> str | None:
    """The blanks before a place if it is the first thing on its line."""
    start = text.rfind("\n", 0, begin) + 1
    lead = text[start:begin]
    return lead if start and not lead.strip(" \t") else None


def _starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


def _line(starts: list[int], place: int) -> int:
    return bisect_right(starts, place)


class _Scanner:
    """One pass over one text."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._starts = _starts(text)
        self._spans: dict[Path, Span] = {}

    def run(self) -> JsonText:
        first = self._skip(1 if self._text.startswith("\ufeff") else 0)
        value, end = self._value(first, first, ())
        rest = self._skip(end)
        if rest != len(self._text):
            self._fail(rest, "there is more text after the end of the JSON value")
        return JsonText(self._text, value, self._spans, self._starts)

    def _fail(self, place: int, problem: str) -> NoReturn:
        place = min(place, len(self._text))
        line = _line(self._starts, place)
        column = place - self._starts[line - 1] + 1
        raise JsonTextError(where=f"{self._name}:{line}", problem=f"column {column}: {problem}", line=line)

    def _skip(self, place: int) -> int:
        found = _BLANK.match(self._text, place)
        assert found is not None
        return found.end()

    def _value(self, place: int, begin: int, path: Path) -> tuple[Any, int]:
        if len(path) > MAX_DEPTH:
            self._fail(place, f"values are nested deeper than {MAX_DEPTH}")
        if len(self._spans) >= MAX_VALUES:
            self._fail(place, f"there are more than {MAX_VALUES:,} values")
        letter = self._text[place : place + 1]
        value: Any
        if letter == "{":
            value, end = self._object(place, path)
        elif letter == "[":
            value, end = self._array(place, path)
        elif letter == '"':
            value, end = self._string(place)
        else:
            value, end = self._plain(place)
        self._spans[path] = Span(place, end, begin)
        return value, end

    def _string(self, place: int) -> tuple[str, int]:
        try:
            text, end = _DECODER.raw_decode(self._text, place)
        except json.JSONDecodeError as error:
            self._fail(error.pos, error.msg.lower().removesuffix(" at"))
        return str(text), end

    def _plain(self, place: int) -> tuple[Any, int]:
        for word, value in _WORDS.items():
            if self._text.startswith(word, place):
                return value, place + len(word)
        found = _NUMBER.match(self._text, place)
        if found is None:
            seen = self._text[place : place + 1]
            self._fail(place, f"a value was expected, not {seen!r}" if seen else "the text ends too early")
        if len(found[0]) > _MAX_DIGITS:
            self._fail(place, "the number is too long")
        number: int | float = float(found[0]) if found[1] or found[2] else int(found[0])
        return number, found.end()

    def _object(self, place: int, path: Path) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        place = self._skip(place + 1)
        if self._text.startswith("}", place):
            return members, place + 1
        while True:
            begin = place
            if not self._text.startswith('"', place):
                self._fail(place, "a name in double quotes was expected")
            name, place = self._string(place)
            if name in members:
                self._fail(begin, f"the name {name[:60]!r} stands twice in one object")
            place = self._skip(place)
            if not self._text.startswith(":", place):
                self._fail(place, f"a colon was expected after {name[:60]!r}")
            members[name], place = self._value(self._skip(place + 1), begin, (*path, name))
            place, ended = self._next(place, "}")
            if ended:
                return members, place

    def _array(self, place: int, path: Path) -> tuple[list[Any], int]:
        elements: list[Any] = []
        place = self._skip(place + 1)
        if self._text.startswith("]", place):
            return elements, place + 1
        while True:
            value, place = self._value(place, place, (*path, len(elements)))
            elements.append(value)
            place, ended = self._next(place, "]")
            if ended:
                return elements, place

    def _next(self, place: int, close: str) -> tuple[int, bool]:
        place = self._skip(place)
        if self._text.startswith(close, place):
            return place + 1, True
        if not self._text.startswith(",", place):
            self._fail(place, f"a comma or {close!r} was expected")
        return self._skip(place + 1), False
