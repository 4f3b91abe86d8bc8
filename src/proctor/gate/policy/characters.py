"""The characters a command may hold at all, checked before anything is parsed.

Invariant: what a person sees is what runs: no control, invisible or direction-changing characters, no broken encoding.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MAX_BYTES", "has_odd_blanks", "refused_text"]

MAX_BYTES: Final = 32 * 1024

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ODD_BLANK: Final = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")


def refused_text(text: str) -> str | None:
    """Name the finding that keeps the text from being read at all."""
    if text.isascii():
        if len(text) > MAX_BYTES:
            return "text.long"
    elif _SURROGATE.search(text):
        return "text.encoding"
    elif len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        return "text.long"
    return "text.control" if _CONTROL.search(text) else None


def has_odd_blanks(text: str) -> bool:
    """Whether there are blanks that the shell does not take for blanks."""
    return not text.isascii() and _ODD_BLANK.search(text) is not None
