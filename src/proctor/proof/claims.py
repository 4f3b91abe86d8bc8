"""Claims against the diff: every `changes_made` line looked up in what was really changed.

A claim is found, absent, or unclear when it names nothing that could be looked up. Line numbers drift, so code words
decide where there are any; a word that stands in the file but not in a changed line is no change.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proctor.proof.diff import Diff, FileDiff

__all__ = ["Claim", "ClaimReport", "ClaimState", "Unclaimed", "check_claims"]

NEAR_LINES: Final = 8
_LONG: Final = 2000
_MANY: Final = 300


class ClaimState(StrEnum):
    """What became of a claim."""

    FOUND = "found"
    ABSENT = "absent"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim, looked up: where it was found (path and line), or why it was not."""

    text: str
    state: ClaimState
    reason: str
    places: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A changed part that no claim speaks of."""

    path: str
    first: int
    last: int
    sample: str


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """All claims, and what was changed beside them."""

    claims: tuple[Claim, ...]
    unclaimed: tuple[Unclaimed, ...]

    @property
    def absent(self) -> tuple[Claim, ...]:
        """Claims the diff does not bear out."""
        return tuple(claim for claim in self.claims if claim.state is ClaimState.ABSENT)

    @property
    def found(self) -> tuple[Claim, ...]:
        """Claims the diff bears out."""
        return tuple(claim for claim in self.claims if claim.state is ClaimState.FOUND)


_LINES: Final = re.compile(
    r"\b(?:lines?|L)\s*#?\s*(\d{1,7})(?:\s*(?:-|\u2013|to|and|,)\s*(\d{1,7}))?", re.IGNORECASE
)
_AT: Final = re.compile(r"([\w./-]+\.\w{1,8}):(\d{1,7})(?:-(\d{1,7}))?")
_FILE: Final = re.compile(
    r"(?<![\w/])((?:[\w.@-]+/)+(?:[\w@-]+(?:\.\w+)+|Makefile|Dockerfile)|[\w@-]+\.(?:py|pyi|js|jsx|ts|tsx|mjs|cjs|sh|bash|go|rs|rb|java|c|h|cpp|md|toml|yaml|yml|json|css|html|sql|cfg|ini|txt))(?![\w(])"
)
_TICKS: Final = re.compile(r"`([^`]{1,200})`")
_QUOTES: Final = re.compile(r"(?<!\w)[\"']([^\"']{2,120})[\"'](?!\w)")
_CALL: Final = re.compile(r"[A-Za-z_][\w.]*\(")
_CODE: Final = re.compile(
    r"\b(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z]+_\w+|_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|[A-Z][A-Z0-9_]{2,})\b"
)
_KEYWORDS: Final = frozenset(
    re.findall(r"\w+", "try except finally raise with await async yield assert lambda import catch throw return while break "
               "continue isinstance None null undefined const let static lock timeout retry logger else elif")
)  # fmt: skip
_SOFT: Final = frozenset(
    {
        "return",
        "with",
        "import",
        "else",
        "let",
        "lock",
        "timeout",
        "retry",
        "static",
        "break",
        "continue",
        "while",
        "None",
    }
)
_REMOVES: Final = re.compile(r"\b(remov\w+|delet\w+|dropp\w+|drop|eliminat\w+|strip\w*)\b", re.IGNORECASE)
_ADDS: Final = re.compile(
    r"\b(add\w*|insert\w*|introduc\w+|creat\w+|implement\w*|wrap\w*|import\w*|set)\b", re.IGNORECASE
)
_SWAPS: Final = re.compile(
    r"\b(replac\w+|renam\w+|chang\w+|mov\w+|convert\w*|switch\w*|from .+ to)\b", re.IGNORECASE
)


def check_claims(changes: Sequence[str], diff: Diff, file: str | None = None) -> ClaimReport:
    """Look every claim up; `file` is where the fix was to be made, for claims that name none."""
    claims = tuple(_checked(text[:_LONG], diff, file) for text in changes[:_MANY])
    if len(changes) > _MANY:
        rest = f"{len(changes) - _MANY} more claims were not looked up"
        claims = (*claims, Claim(rest, ClaimState.UNCLEAR, f"at most {_MANY} are looked up"))
    return ClaimReport(claims, tuple(_unclaimed(claims, diff)))


def _checked(text: str, diff: Diff, file: str | None) -> Claim:
    if not diff.files:
        return Claim(text, ClaimState.ABSENT, "nothing was changed at all")
    named = _named_files(text)
    files = _matching(diff, named) if named else []
    if named and not files:
        return Claim(text, ClaimState.ABSENT, f"{named[0]} was not changed")
    if not named:
        home = diff.of(posixpath.normpath(file)) if file else None
        files = [home] if home is not None else list(diff.files)
        if file and home is None and _LINES.search(text):
            return Claim(text, ClaimState.ABSENT, f"{file} was not changed")
    words, lines = _code_words(text, named), _line_numbers(text)
    if words:
        return _by_words(text, words, lines, files, diff)
    if lines:
        return _by_lines(text, lines, files)
    if named:
        return Claim(text, ClaimState.FOUND, f"{files[0].path} was changed", ((files[0].path, 0),))
    return Claim(text, ClaimState.UNCLEAR, "it names no file, line or code that could be looked up")


def _named_files(text: str) -> list[str]:
    bare = _TICKS.sub(lambda found: f" {found[1]} ", text)
    return [found for found in dict.fromkeys(_FILE.findall(bare)) if not found.startswith(("http", "www."))]


def _matching(diff: Diff, names: list[str]) -> list[FileDiff]:
    found = []
    for file in diff.files:
        paths = {path for path in (file.old_path, file.new_path) if path}
        if any(
            path == name.lstrip("./") or path.endswith("/" + name.lstrip("./")) or name.endswith("/" + path)
            for path in paths
            for name in names
        ):
            found.append(file)
    return found


def _line_numbers(text: str) -> list[tuple[int, int]]:
    pairs = [(int(first), int(last or first)) for first, last in _LINES.findall(text)]
    return pairs + [(int(first), int(last or first)) for _, first, last in _AT.findall(text)]


def _code_words(text: str, named: list[str]) -> list[str]:
    """Words of the claim that are code: in ticks, called, or spelled like identifiers; keywords of languages last."""
    plain = text
    for name in named:
        plain = plain.replace(name, " ")
    plain = _LINES.sub(" ", plain)
    words = [word for found in _TICKS.findall(plain) for word in _parts(found)]
    rest = _TICKS.sub(" ", plain)
    words += [word for found in _QUOTES.findall(rest) for word in _parts(found)]
    words += [call.rstrip("(") for call in _CALL.findall(rest)] + _CODE.findall(rest)
    words += [word for word in re.findall(r"\w+", rest) if word in _KEYWORDS]
    return list(dict.fromkeys(word for word in words if len(word) > 1))[:20]


def _parts(code: str) -> list[str]:
    found = re.findall(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|\d+(?:\.\d+)?", code)
    return [word for word in found if len(word) > 1 or word.isdigit()]


def _by_words(
    text: str, words: list[str], lines: list[tuple[int, int]], files: list[FileDiff], diff: Diff
) -> Claim:
    found, places = _look(words, files, _sides(text))
    hard = (
        [word for word in words if word not in _KEYWORDS]
        or [word for word in words if word not in _SOFT]
        or words
    )
    share = len([word for word in hard if word in found]) / len(hard)
    if share >= 0.5:
        away = _drift(lines, places)
        return Claim(
            text, ClaimState.FOUND, f"the diff has {', '.join(sorted(found)[:4])}{away}", tuple(places[:20])
        )
    other, elsewhere = _look(words, [file for file in diff.files if file not in files], _sides(text))
    if len([word for word in hard if word in other]) / len(hard) >= 0.5:
        return Claim(
            text,
            ClaimState.FOUND,
            f"found in {elsewhere[0][0]}, not where it was to be",
            tuple(elsewhere[:20]),
        )
    if found & set(hard):
        return Claim(
            text,
            ClaimState.UNCLEAR,
            f"only {', '.join(sorted(found)[:3])} is in the changed lines",
            tuple(places[:20]),
        )
    if (
        lines
        and all(word in _KEYWORDS for word in words)
        and _by_lines(text, lines, files).state is ClaimState.FOUND
    ):
        return Claim(text, ClaimState.UNCLEAR, "lines near it were changed, but not with these words")
    return Claim(text, ClaimState.ABSENT, f"no changed line has {', '.join(hard[:3])}")


def _sides(text: str) -> str:
    """Which lines can bear a claim out: added, removed, or both."""
    if _SWAPS.search(text):
        return "+-"
    if _REMOVES.search(text):
        return "-+" if _ADDS.search(text) else "-"
    return "+" if _ADDS.search(text) else "+-"


def _look(words: list[str], files: list[FileDiff], sides: str) -> tuple[set[str], list[tuple[str, int]]]:
    found: set[str] = set()
    places: list[tuple[str, int]] = []
    for file in files:
        for sign, lines in (("+", file.added), ("-", file.removed)):
            if sign not in sides:
                continue
            for number, line in lines:
                here = {word for word in words if _stands(word, line)}
                if here:
                    found |= here
                    places.append((file.path, number))
    return found, places


def _stands(word: str, line: str) -> bool:
    """A dotted word stands in a line whole, or by its last part: people write process.terminate for proc.terminate."""
    last = word.rpartition(".")[2]
    if last not in line:
        return False
    return re.search(rf"(?<!\w){re.escape(last)}(?!\w)", line) is not None


def _drift(lines: list[tuple[int, int]], places: list[tuple[str, int]]) -> str:
    if (
        not lines
        or not places
        or any(first - NEAR_LINES <= at <= last + NEAR_LINES for first, last in lines for _, at in places)
    ):
        return ""
    return f" at line {places[0][1]}, not {lines[0][0]}"


def _by_lines(text: str, lines: list[tuple[int, int]], files: list[FileDiff]) -> Claim:
    for file in files:
        changed = sorted({number for number, _ in (*file.added, *file.removed)})
        near = [
            at
            for at in changed
            if any(first - NEAR_LINES <= at <= last + NEAR_LINES for first, last in lines)
        ]
        if near:
            return Claim(
                text,
                ClaimState.FOUND,
                f"{file.path} was changed there",
                tuple((file.path, at) for at in near[:20]),
            )
    where = files[0].path if len(files) == 1 else "any file"
    return Claim(text, ClaimState.ABSENT, f"no line of {where} was changed near line {lines[0][0]}")


def _unclaimed(claims: Sequence[Claim], diff: Diff) -> list[Unclaimed]:
    whole = {
        path for claim in claims if claim.state is ClaimState.FOUND for path, at in claim.places if at == 0
    }
    spots = {place for claim in claims if claim.state is not ClaimState.ABSENT for place in claim.places}
    left: list[Unclaimed] = []
    for file in diff.files:
        if file.path in whole:
            continue
        if not file.hunks and not any(path == file.path for path, _ in spots):
            left.append(Unclaimed(file.path, 0, 0, file.status))
        for hunk in file.hunks:
            numbers = [(number, line.text) for number, line in hunk.numbered() if line.kind != " "]
            if not any((file.path, number) in spots for number, _ in numbers):
                sample = next((text.strip() for _, text in numbers if text.strip()), "")
                left.append(Unclaimed(file.path, numbers[0][0], numbers[-1][0], sample[:120]))
    return left
