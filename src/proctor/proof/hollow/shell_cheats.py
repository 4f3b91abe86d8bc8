"""The same tricks in shell, by text: a script that takes the place of what a test uses or ends it early, looks who calls,
answers for the very words of a test; and tests that define what they try, or look for a mark of the change.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Final

from proctor.proof.change import Change, ChangedFile
from proctor.proof.hollow.model import HollowFinding, HollowKind, HollowWeight, TestCase, plain_literal
from proctor.proof.kinds import FileKind, is_test_file, language_of
from proctor.proof.symbols import added_symbols, names_in

__all__ = ["shell_cheats"]

_USED: Final = r"(?:\[\[?|test|exit|return|set|source|grep|diff|cmp|check|fail|expect|assert\w*)"
_TAKES: Final = re.compile(
    rf"^\s*function\s+{_USED}(?:\s|\(|\{{|$)|\balias\s+(?:-\w+\s+)*[\"']?{_USED}=|\benable\s+-n\b|\bunset\s+-f\s+{_USED}"
)
_LENIENT: Final = re.compile(r"^\s*set\s+\+(?:\w*e|o\s+errexit)")
_ENDS: Final = re.compile(
    r"(?:^|[;&|{]|\bthen\b|\bdo\b)\s*(?:exit(?:\s+0)?|exec\s+(?:true|:)|kill\b[^;\n]*\$\$)\s*(?:$|[;&|}#])"
)
_LOOKS: Final = re.compile(
    r"\b(?:BASH_SOURCE|FUNCNAME|BASH_LINENO)\[[1-9@*]|(?:^|[;&|(]\s*)caller\b|\$\{?0\}?[\"']?\s*(?:==?|=~)\s*[^\s\"'$]*\w"
    r"|case\s+[\"']?\$\{?0\b"
)
_COMPARED: Final = re.compile(r"={1,2}\s*(\"[^\"$`\n]+\"|'[^'\n]+')")
_LINE: Final = 2000
_WORDS: Final = 2


def shell_cheats(change: Change, tests: Iterable[TestCase]) -> Iterator[HollowFinding]:
    """Everything of that kind in added lines."""
    known = list(tests)
    rows = [one.literals for test in known for one in test.assertions]
    source = [file for file in change.of_kind(FileKind.SOURCE) if language_of(file.path) == "shell"]
    for file in source:
        yield from _product(file, _added(change, file), rows, _is_sourced(file, known))
    owned = {name for file in source if file.after for name in names_in(file.path, file.after)}
    new = owned & added_symbols(change)
    for file in change.files:
        if is_test_file(file.path) and language_of(file.path) == "shell" and file.after:
            yield from _test(file, _added(change, file), owned, new)


def _added(change: Change, file: ChangedFile) -> list[tuple[int, str]]:
    diff = change.diff.of(file.path)
    return [(number, text[:_LINE]) for number, text in diff.added] if diff is not None else []


def _is_sourced(file: ChangedFile, tests: list[TestCase]) -> bool:
    """Whether a test reads the script into itself: then what ends the script ends the test."""
    name = re.escape(posixpath.basename(file.path))
    return any(re.search(rf"(?:^|[;&\n])\s*(?:\.|source)\s+\S*{name}\b", test.body) for test in tests)


def _product(
    file: ChangedFile, added: list[tuple[int, str]], rows: list[frozenset[str]], sourced: bool
) -> Iterator[HollowFinding]:
    for number, text in added:
        shown = f"`{text.strip()[:80]}`"
        why = ""
        if _TAKES.search(text):
            why = f"it takes the place of what a test uses: {shown}"
        elif sourced and (_LENIENT.search(text) or _ENDS.search(text)):
            why = f"a test reads this script into itself, and it ends or softens the test: {shown}"
        elif _LOOKS.search(text) and "BASH_SOURCE[0]" not in text:
            why = f"it looks who calls it: {shown}"
        if why:
            yield HollowFinding(
                HollowKind.KNOWS_IT_IS_TESTED, HollowWeight.SUSPICIOUS, file.path, number, why
            )
        for literal in _COMPARED.findall(text) if file.before is not None else ():
            parts = {plain_literal(part) for part in re.split(r"[\s,]+", literal[1:-1]) if part}
            if len(parts) >= _WORDS and any(parts <= row for row in rows):
                said = f"it asks for {literal[:40]}, the very values that a test gives it"
                yield HollowFinding(HollowKind.HARD_CODED, HollowWeight.SUSPICIOUS, file.path, number, said)


def _test(
    file: ChangedFile, added: list[tuple[int, str]], owned: set[str], new: set[str]
) -> Iterator[HollowFinding]:
    for number, text in added:
        made = set(re.findall(r"(?:^|[;&|{]|\bthen\b)\s*(?:function\s+)?([\w-]+)\s*\(\)", text)) & owned
        mark = set(_marks(text)) & new
        why = ""
        if made:
            why = f"it replaces {min(made)}, which the change holds, with something of its own"
        elif mark:
            why = f"it acts otherwise where {min(mark)} is there, which the change brings along"
        if why:
            yield HollowFinding(HollowKind.STAGED, HollowWeight.SUSPICIOUS, file.path, number, why)


def _marks(text: str) -> list[str]:
    """Variables that are only asked whether they are set."""
    found = re.findall(r"-[nzv]\s+[\"']?\$?\{?(\w+)|\$\{(\w+)[:+-]", text)
    return [name for both in found for name in both if name]
