"""Ignore rules where there is no git: `.gitignore` files on the way down, and a list for every place.

pathspec decides, at some microseconds a name; its "simple" backend, for the others compile for 20 ms. So a
directory is first asked for suspects: the names that the last part of some rule could hit.
Invariant: a name that is no suspect is hit by no rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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
_SPECIAL = re.compile(r"[*?\[\]\\]")


class IgnoreRules:
    """The rules of one directory (`base`, empty or with a slash at its end), on top of those above it."""

    def __init__(self, lines: Iterable[str], *, base: str = "", above: IgnoreRules | None = None) -> None:
        wanted = [line.rstrip("\n") for line in lines]
        wanted = [line for line in wanted if line.strip() and not line.startswith("#")]
        self._above = above
        self._depth = len(base)
        self._spec = _compiled(wanted)
        self._names: set[str] = set(above._names) if above else set()
        self._suffixes: tuple[str, ...] = above._suffixes if above else ()
        self._globs: tuple[str, ...] = above._globs if above else ()
        self._wide: tuple[str, ...] = above._wide if above else ()
        for line in wanted:
            self._suspect(line.removeprefix("!").rstrip().rstrip("/"), base)
        self._glob = re.compile("|".join(self._globs), re.DOTALL) if self._globs else None

    def _suspect(self, rule: str, base: str) -> None:
        """Take in what a rule's last part can hit; too much is only slow, too little would be wrong."""
        folders, _, last = rule.rpartition("/")
        if last.strip("*") == "" and last:
            first = folders.lstrip("/").partition("/")[0]
            self._wide += (f"{base}{first}/" if first and not _SPECIAL.search(first) else base,)
        elif not _SPECIAL.search(last):
            self._names.add(last)
        elif last.startswith("*") and not _SPECIAL.search(last[1:]):
            self._suffixes += (last[1:],)
        else:
            self._globs += (_loose(last),)

    def suspects(self, names: Sequence[str], prefix: str) -> Iterable[str]:
        """Give the names of one directory that some rule might hit."""
        if self._wide and prefix.startswith(self._wide):
            return names
        found = self._names.intersection(names)
        if self._suffixes:
            ends = self._suffixes
            found.update([name for name in names if name.endswith(ends)])
        if self._glob is not None:
            match = self._glob.match
            found.update([name for name in names if match(name)])
        return found

    def ignores(self, path: str, folder: bool) -> bool:
        """Tell whether a path (relative to the root) is left out; the nearest rule decides."""
        rules: IgnoreRules | None = self
        while rules is not None:
            answer = rules._answer(path, folder)
            if answer is not None:
                return answer
            rules = rules._above
        return False

    def _answer(self, path: str, folder: bool) -> bool | None:
        return self._spec.check_file(path[self._depth :] + ("/" if folder else "")).include


def _compiled(lines: Sequence[str]) -> pathspec.GitIgnoreSpec:
    """Compile the lines; one that is no pattern hits nothing, as with git."""
    try:
        return pathspec.GitIgnoreSpec.from_lines(lines, backend="simple")
    except (ValueError, re.error):
        return pathspec.GitIgnoreSpec.from_lines(filter(_compiles, lines), backend="simple")


def _compiles(line: str) -> bool:
    try:
        pathspec.GitIgnoreSpec.from_lines([line], backend="simple")
    except (ValueError, re.error):
        return False
    return True


def _loose(glob: str) -> str:
    """A regular expression that matches at least what the glob does; sets and escapes count as anything."""
    plain = re.match(r"[^\[\\]*", glob)
    known = plain.group() if plain else ""
    end = r"\Z" if len(known) == len(glob) else ""
    return re.sub(r"(?:\\\*)+", ".*", re.escape(known)).replace(r"\?", ".") + end
