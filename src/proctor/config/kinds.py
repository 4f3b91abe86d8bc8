"""The kinds of value a setting can have: each knows what it accepts, in a file and in a variable.

A kind never repeats what it was given unless it is one of a few allowed words: the value may be a secret.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Argv",
    "Choice",
    "Commands",
    "Kind",
    "NotAllowedError",
    "Number",
    "Prose",
    "Text",
    "Whole",
    "Words",
    "near",
    "type_name",
]

TYPE_NAMES = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


class NotAllowedError(ValueError):
    """A value is not what the setting takes: what is wrong, and what is allowed."""

    def __init__(self, problem: str, allowed: str) -> None:
        super().__init__(problem)
        self.problem, self.allowed = problem, allowed


def type_name(value: object) -> str:
    """Name the type of a TOML value in plain words."""
    return TYPE_NAMES.get(type(value), "a date or time")


def near(word: str, known: Iterable[str]) -> str:
    """Offer the known words that look like this one, as a sentence, or nothing."""
    by_lower = {each.lower(): each for each in sorted(known)}
    found = difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(by_lower[each]) for each in found)}?" if found else ""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a setting takes; the subclasses say it exactly."""

    @property
    def word(self) -> str:
        """How the documentation names this kind."""
        raise NotImplementedError

    def check(self, value: object) -> Any:
        """Give the value as the program wants it, or raise NotAllowedError."""
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """Read the value from a variable of the environment."""
        return self.check(text)

    def wrong_type(self, value: object) -> NotAllowedError:
        """Say which type came and which is wanted."""
        return NotAllowedError(f"must be {self.word}, not {type_name(value)}", "")


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """One line of text that is not empty."""

    @property
    def word(self) -> str:
        """How the documentation names this kind."""
        return "text"

    def check(self, value: object) -> str:
        """Take a text with something in it and without control characters."""
        if not isinstance(value, str):
            raise self.wrong_type(value)
        if not value.strip() or any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
            raise NotAllowedError(
                "must be one line of text that is not empty", "Leave the setting out for its default."
            )
        return value


@dataclass(frozen=True, slots=True)
class Prose(Kind):
    """Text of any number of lines."""

    @property
    def word(self) -> str:
        """How the documentation names this kind."""
        return "text, also of several lines"

    def check(self, value: object) -> str:
        """Take a text with something in it; a terminal's control characters are none."""
        if not isinstance(value, str):
            raise self.wrong_type(value)
        if not value.strip() or any(ord(letter) < 32 and letter not in "\n\t\r" for letter in value):
            raise NotAllowedError(
                "must be a text that is not empty", "Leave the setting out for its default."
            )
        return value


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of a few words, in any case."""

    words: tuple[str, ...]

    @property
    def word(self) -> str:
        """How the documentation names this kind."""
        return "one of " + ", ".join(self.words)

    def check(self, value: object) -> str:
        """Take one of the words; offer the nearest ones otherwise."""
        if not isinstance(value, str):
            raise self.wrong_type(value)
        for known in self.words:
            if known.lower() == value.strip().lower():
                return known
        raise NotAllowedError(
            f"cannot be {value[:40]!r}", f"Allowed: {', '.join(self.words)}.{near(value, self.words)}"
        )


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number within bounds."""

    minimum: int = 1
    maximum: int = 2**53

    @property
    def word(self) -> str:
        """How the documentation names this kind."""
        top = f" and at most {self.maximum}" if self.maximum < 2**53 else ""
        return f"whole number, at least {self.minimum}{top}"

    def check(self, value: object) -> int:
        """Take a whole number; true and false are none."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong_type(value)
        if not self.minimum <= value <= self.maximum:
            raise NotAllowedError(f"must be a {self.word}", "")
        return value

    def parse(self, text: str) -> int:
        """Read decimal digits."""
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
            raise NotAllowedError(f"must be a {self.word}", "")
        return self.check(int(text))


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A finite number that is not negative."""

    @property
    def word(self) -> str:
        """How the documentation names this kind."""
        return "number, at least 0"

    def check(self, value: object) -> float:
        """Take a number; TOML's inf and nan would be a limit that limits nothing."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.wrong_type(value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or number < 0:
            raise NotAllowedError(f"must be a {self.word}", "")
        return number

    def parse(self, text: str) -> float:
        """Read a decimal number."""
        try:
            return self.check(float(text))
        except ValueError:
            raise NotAllowedError(f"must be a {self.word}", "") from None


@dataclass(frozen=True, slots=True)
class Words(Kind):
    """A list of texts."""

    @property
    def word(self) -> str:
        """How the documentation names this kind."""
        return "list of texts"

    def check(self, value: object) -> tuple[str, ...]:
        """Take a list in which every element is a text."""
        if not isinstance(value, list | tuple):
            raise self.wrong_type(value)
        for element in value:
            if not isinstance(element, str) or not element.strip() or "\0" in element:
                raise NotAllowedError(f"must be a {self.word}, none of them empty", "")
        return tuple(value)


@dataclass(frozen=True, slots=True)
class Commands(Words):
    """Shell commands that run one after the other: a text, or a list of texts."""

    @property
    def word(self) -> str:
        """How the documentation names this kind."""
        return "command, or list of commands"

    def check(self, value: object) -> tuple[str, ...]:
        """Take one command or several."""
        # Not super(): a dataclass with slots is a new class that the closure of super() does not know.
        return Words.check(self, [value] if isinstance(value, str) else value)


@dataclass(frozen=True, slots=True)
class Argv(Words):
    """One program with its arguments: a text that is split as a shell would, or a list."""

    @property
    def word(self) -> str:
        """How the documentation names this kind."""
        return "program with arguments, as text or list"

    def check(self, value: object) -> tuple[str, ...]:
        """Take a program with its arguments; empty arguments are allowed, an empty program is not."""
        words = self._split(value) if isinstance(value, str) else value
        if not isinstance(words, list):
            raise self.wrong_type(value)
        if not words or not all(isinstance(word, str) and "\0" not in word for word in words) or not words[0]:
            raise NotAllowedError(f"must be a {self.word}", "")
        return tuple(words)

    def _split(self, value: str) -> list[str]:
        try:
            return shlex.split(value)
        except ValueError as error:
            raise NotAllowedError(f"cannot be split into words: {error}", "Write it as a list.") from None
