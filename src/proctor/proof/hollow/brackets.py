"""Finding matching brackets in JavaScript-like text: strings and comments are blanked out first, places stay the same."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["blanked", "closing", "elements"]

_PIECE: Final = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`"
    r"|(?<=[=(,:!&|?{};\s])/(?![/*\s])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*",
    re.DOTALL,
)
_PAIRS: Final = {"(": ")", "[": "]", "{": "}"}


def blanked(text: str) -> str:
    """The text with the inside of strings, comments and patterns replaced by blanks; line ends stay."""
    return _PIECE.sub(lambda found: _blank(found[0]), text)


def _blank(piece: str) -> str:
    inner = re.sub(r"[^\n]", " ", piece)
    if piece[0] in "\"'`" and len(piece) > 1:
        return piece[0] + inner[1:-1] + piece[-1]
    return inner


def closing(masked: str, start: int) -> int:
    """The place after the bracket that closes the one at `start`; the end of the text if none does."""
    depth = 0
    for place in range(start, len(masked)):
        letter = masked[place]
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth == 0:
                return place + 1
    return len(masked)


def elements(masked: str, start: int) -> int:
    """How many elements the list at `start` has."""
    end = closing(masked, start)
    depth, commas, filled = 0, 0, False
    for letter in masked[start + 1 : end - 1]:
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            commas += 1
            filled = False
            continue
        filled = filled or not letter.isspace()
    return commas + filled
