"""Runs the parser, which cannot be stopped, in a bounded time.

Invariant: a text that is made to be slow to read is given up, never waited for.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Final

from tree_sitter import Language, Node, Parser

__all__ = ["parse"]

PORTION: Final = 2 * 1024
PORTION_SECONDS: Final = 0.05


def parse(source: bytes) -> Node | None:
    """Parse, giving up on texts that are made to be slow: the parser cannot be stopped, so long ones come in portions.

    Mending errors costs the square of the length; a portion that took too long says that the whole would take longer.
    """
    for end in range(PORTION, len(source), PORTION):
        began = time.thread_time()
        _parser().parse(source[:end])
        if time.thread_time() - began > PORTION_SECONDS:
            return None
    return _parser().parse(source).root_node


@cache
def _parser() -> Parser:
    import tree_sitter_bash

    return Parser(Language(tree_sitter_bash.language()))
