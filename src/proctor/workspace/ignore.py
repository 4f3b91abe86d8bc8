"""Ignore rules where there is no git: `.gitignore` files on the way down, and a list for every place.

Most lines are plain names or `*.suffix`; those are looked up in sets. Only what is left goes to pathspec,
which costs ten times as much per file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pathspec

__all__ = ["SEED_IGNORES", "IgnoreRules"]

SEED_IGNORES = (
    ".git/",
    "node_modules/",
    "bin/",
    "obj/",
    "__pycache__/",
    "*.pyc",
    "*.pyo",
    "*.exe",
    "*.dll",
    ".vs/",
    ".vscode/",
)
_PLAIN = re.compile(r"[^*?\[\]\\!/#]+\Z")


class IgnoreRules:
    """The rules of one directory, on top of those above it."""

    def __init__(self, lines: Iterable[str], *, depth: int = 0, above: IgnoreRules | None = None) -> None:
        wanted = [line.rstrip("\n") for line in lines]
        wanted = [line for line in wanted if line.strip() and not line.startswith("#")]
        self._above = above
        self._depth = depth  # length of the prefix that paths carry before this directory
        self._names: set[str] = set()
        self._folders: set[str] = set()
        self._suffixes: set[str] = set()
        simple = all(self._simple(line) for line in wanted)
        self._spec = None if simple else pathspec.GitIgnoreSpec.from_lines(wanted)

    def _simple(self, line: str) -> bool:
        """Take a line into the sets if it is plain; order matters only where there is more."""
        name = line.rstrip()
        if name.endswith("/") and _PLAIN.match(name[:-1]):
            self._folders.add(name[:-1])
        elif _PLAIN.match(name):
            self._names.add(name)
        elif name.startswith("*.") and _PLAIN.match(name[2:]) and "." not in name[2:]:
            self._suffixes.add(name[2:])
        else:
            return False
        return True

    def ignores(self, path: str, name: str, folder: bool) -> bool:
        """Tell whether a path (relative to the root) is left out; the nearest rule decides."""
        rules: IgnoreRules | None = self
        while rules is not None:
            answer = rules._answer(path, name, folder)
            if answer is not None:
                return answer
            rules = rules._above
        return False

    def _answer(self, path: str, name: str, folder: bool) -> bool | None:
        if self._spec is None:
            hit = name in self._names or (folder and name in self._folders)
            if not hit and self._suffixes and "." in name:
                hit = name.rpartition(".")[2] in self._suffixes
            return True if hit else None
        inside = path[self._depth :] + ("/" if folder else "")
        try:
            return self._spec.check_file(inside).include
        except UnicodeEncodeError:  # a name that is not UTF-8: its odd bytes match as any character
            return self._spec.check_file(inside.encode("utf-8", "replace").decode()).include
