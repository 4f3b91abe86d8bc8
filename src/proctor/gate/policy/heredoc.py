"""Where a here-document really ends: found by hand, because that is where parsers and shells come apart.

Invariant: clear means that the first line equal to the delimiter is where the parser ended the text, and that the
shell expands nothing in it but plain variables.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["heredoc_is_clear"]

_DELIMITER: Final = re.compile(r"(['\"]?)([A-Za-z_]\w*)\1")
_EXPANDED: Final = (b"\\", b"`", b"$(", b"${", b"$[")


def heredoc_is_clear(source: bytes, start: tuple[int, int], end: int) -> bool:
    """Check one here-document: `start` is the place of its delimiter word, `end` where the parser ended its text."""
    found = _DELIMITER.fullmatch(source[slice(*start)].decode(errors="replace"))
    line_end = source.find(b"\n", start[1])
    if not found or line_end < 0 or source.count(b"<<", start[1], line_end):
        return False
    strip = source[start[0] - 3 : start[0]].endswith(b"-")
    place = _end_of_text(source, line_end + 1, found[2].encode(), strip=strip)
    if not place <= end <= place + (8 if strip else 0):
        return False
    text = source[line_end + 1 : place]
    return bool(found[1]) or not any(mark in text for mark in _EXPANDED)


def _end_of_text(source: bytes, place: int, delimiter: bytes, *, strip: bool) -> int:
    while place < len(source):
        stop = source.find(b"\n", place)
        line = source[place : stop if stop >= 0 else None]
        if (line.lstrip(b"\t") if strip else line) == delimiter:
            break
        place += len(line) + 1
    return place
