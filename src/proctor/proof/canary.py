"""The canary: a break planted in every changed source file, which the command must notice.

A command that stays green then tests something else: another checkout, an installed copy, nothing at all. Its word
about the change is worth nothing either way.
"""

from __future__ import annotations

import posixpath
from typing import Final

from proctor.workspace.trees import Trees

__all__ = ["BREAK", "broken", "plant"]

#: No language of those we know can read a file with this in it; JSON, YAML and TOML cannot either.
BREAK: Final = b")(proctor-canary\n"
_SHELL: Final = (".sh", ".bash", ".zsh", ".bats")


def broken(path: str, data: bytes) -> bytes:
    """The file with a break that stops whoever reads it, at its very beginning."""
    first, rest = b"", data
    if data.startswith(b"#!"):
        line, _, rest = data.partition(b"\n")
        first = line + b"\n"
    if posixpath.splitext(path)[1] in _SHELL or b"sh" in first:
        # Shells run line by line: a syntax error later on would come after the first commands.
        return first + b"echo proctor-canary >&2; exit 97\n" + rest
    return first + BREAK + rest


def plant(trees: Trees, tree: str, paths: list[str]) -> str | None:
    """The tree with all these files broken; None when none of them is there to be broken."""
    found = {path: broken(path, data) for path, data in trees.blobs(tree, paths).items()}
    return trees.edited(tree, found) if found else None
