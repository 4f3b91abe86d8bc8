"""Finding matching brackets in JavaScript-like text: strings and comments are blanked out first, places stay the same."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Brackets", "blanked"]

_PIECE: Final = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`"
    r"|(?<=[=(,:!&|?{};\s])/(?![/*\s])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*",
    re.DOTALL,
)


def blanked(text: str) -> str:
    """The text with the inside of strings, comments and patterns replaced by blanks; line ends stay."""
    return _PIECE.sub(lambda found: _blank(found[0]), text)


def _blank(piece: str) -> str:
    inner = re.sub(r"[^\n]", " ", piece)
    if piece[0] in "\"'`" and len(piece) > 1:
        return piece[0] + inner[1:-1] + piece[-1]
    return inner


class Brackets:
    """All pairs of brackets of a blanked text, found in one pass."""

    def __init__(self, masked: str) -> None:
        self.masked = masked
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        open_places: list[int] = []
        for found in re.finditer(r"[][(){}]", masked):
            place = found.start()
            if found[0] in "([{":
                open_places.append(place)
            elif open_places:
                start = open_places.pop()
                self._ends[start] = place + 1
                self._starts[place] = start

    def closing(self, start: int) -> int:
        """The place after the bracket that closes the one at `start`; just after it if none does."""
        return self._ends.get(start, start + 1)

    def opening(self, end: int) -> int:
        """The bracket that the one at `end` closes; -1 if none does."""
        return self._starts.get(end, -1)

    def elements(self, start: int) -> int:
        """How many elements the list at `start` has."""
        end, place = self.closing(start) - 1, start + 1
        commas, filled = 0, False
        while place < end:
            letter = self.masked[place]
            if letter == ",":
                commas, filled = commas + 1, False
            else:
                filled = filled or not letter.isspace()
            place = self.closing(place) if letter in "([{" else place + 1
        return commas + filled
