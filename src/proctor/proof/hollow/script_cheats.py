"""The same tricks in JavaScript, by text: product code that patches `assert` or looks around itself, answers for the very
list of a test, and tests that replace what they try, look for a mark of the change, or read the code's text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from proctor.proof.change import Change, ChangedFile
from proctor.proof.hollow.model import HollowFinding, HollowKind, HollowWeight, TestCase
from proctor.proof.hollow.tables import spread
from proctor.proof.kinds import FileKind, is_test_file, language_of
from proctor.proof.symbols import added_symbols, names_in

__all__ = ["script_cheats"]

_BOUND: Final = re.compile(
    r"(?:(?:const|let|var)\s+(\w+)\s*=\s*require\(\s*|import\s+(?:\*\s+as\s+)?(\w+)\s+from\s+)[\"']([^\"'\n]+)[\"']"
)
_FRAMEWORK: Final = re.compile(
    r"(?:node:)?(?:assert(?:/strict)?|test)|chai|jest|vitest|mocha|expect|ava|tape"
)
_LOOKS: Final = re.compile(
    r"new Error\([^)]*\)\.stack|Error\.prepareStackTrace|require\.cache|module\.(?:parent|children)|process\.ppid"
    r"|process\.execArgv|process\.pid\s*[<>]|process\.(?:binding|_getActiveHandles)|NODE_V8_COVERAGE|NODE_OPTIONS"
)
_ENVIRONMENT: Final = re.compile(
    r"Object\.(?:keys|entries|values)\(process\.env\).*(?:NODE_T|TEST|JEST|MOCHA|npm_|PROC)", re.IGNORECASE
)
_COMPARED: Final = re.compile(r"={2,3}\s*(\"[^\"\n]*\"|'[^'\n]*'|`[^`$\n]*`)")
_SPIED: Final = re.compile(r"\b(?:spyOn|mock\.method|stub|replace)\(\s*([\w$]+)\s*,\s*[\"'](\w+)[\"']")
_ASSIGNED: Final = re.compile(r"(?<![\w$.])([\w$]+)\.([\w$]+)\s*=(?![=>])")
_READ: Final = re.compile(r"\b(?:readFile(?:Sync)?|createReadStream)\([^\n]*?[\"'`]([^\"'`\n]+)[\"'`]")
_WORD: Final = re.compile(r"[\w$]+")
_LIST: Final = 2
_LINE: Final = 2000


def script_cheats(change: Change, tests: Iterable[TestCase]) -> Iterator[HollowFinding]:
    """Everything of that kind in added lines."""
    rows = [one.literals for test in tests for one in test.assertions]
    source = [file for file in change.of_kind(FileKind.SOURCE) if language_of(file.path) == "javascript"]
    for file in source:
        yield from _product(file, _added(change, file), rows)
    owned = {name for file in source if file.after for name in names_in(file.path, file.after)}
    stems = {posixpath.splitext(posixpath.basename(file.path))[0] for file in source}
    for file in change.files:
        if is_test_file(file.path) and language_of(file.path) == "javascript" and file.after and source:
            yield from _test(file, _added(change, file), stems, owned, owned & added_symbols(change))


def _added(change: Change, file: ChangedFile) -> Mapping[int, str]:
    diff = change.diff.of(file.path)
    # Minified code is one line of a megabyte, and these rules look at each place of a line many times.
    return {number: text[:_LINE] for number, text in diff.added} if diff is not None else {}


def _bound(text: str) -> dict[str, str]:
    """Names of a file and the modules they stand for."""
    return {one[1] or one[2]: one[3] for one in _BOUND.finditer(text)}


def _said(kind: HollowKind, file: ChangedFile, line: int, why: str, *, sure: bool = False) -> HollowFinding:
    weight = HollowWeight.REFUTES if sure else HollowWeight.SUSPICIOUS
    return HollowFinding(kind, weight, file.path, line, why)


def _product(
    file: ChangedFile, added: Mapping[int, str], rows: list[frozenset[str]]
) -> Iterator[HollowFinding]:
    names = [name for name, module in _bound(file.after or "").items() if _FRAMEWORK.fullmatch(module)]
    held = "|".join([*map(re.escape, names), r"require\(\s*[\"'](?:node:)?assert(?:/strict)?[\"']\s*\)"])
    sets = re.compile(
        rf"(?<![\w$.])(?:{held})(?:\.\w+|\[[^\]\n]+\])+\s*=(?![=>])"
        rf"|(?:Object\.(?:define\w+|assign|setPrototypeOf)|Reflect\.(?:set|define\w+))\(\s*(?:{held})"
    )
    for number, text in added.items():
        shown = f"`{text.strip()[:80]}`"
        if sets.search(text):
            why = f"it changes the test framework from within the product: {shown}"
            yield _said(HollowKind.KNOWS_IT_IS_TESTED, file, number, why, sure=True)
        elif _LOOKS.search(text) or _ENVIRONMENT.search(text):
            why = f"it looks at what calls or surrounds it: {shown}"
            yield _said(HollowKind.KNOWS_IT_IS_TESTED, file, number, why)
        for literal in _COMPARED.findall(text) if file.before is not None else ():
            parts = spread(f'"{literal[1:-1]}"')
            if len(parts) >= _LIST and any(parts <= row for row in rows):
                why = f"it asks for {literal[:40]}, the very values that a test gives it"
                yield _said(HollowKind.HARD_CODED, file, number, why)


def _test(
    file: ChangedFile, added: Mapping[int, str], stems: set[str], owned: set[str], new: set[str]
) -> Iterator[HollowFinding]:
    text = file.after or ""
    bound = {name for name, module in _bound(text).items() if _stem(module) in stems}
    for number, line in added.items():
        for name, what in (*_ASSIGNED.findall(line), *_SPIED.findall(line)):
            if name in bound and what in owned and re.search(rf"\.{re.escape(what)}\s*\(", text):
                why = f"it replaces {what}, which the tests try, with something of its own"
                yield _said(HollowKind.STAGED, file, number, why)
        for what in sorted(new & set(_WORD.findall(line))):
            if _decides(line, bound, what):
                why = f"it acts otherwise where {what} is there, which the change brings along"
                yield _said(HollowKind.STAGED, file, number, why)
        if any(_stem(name) in stems and language_of(name) for name in _READ.findall(line)):
            why = f"it looks at the code's text, not at what it does: `{line.strip()[:60]}`"
            yield _said(HollowKind.STAGED, file, number, why)


def _stem(path: str) -> str:
    name = posixpath.basename(path)
    return posixpath.splitext(name)[0] if language_of(name) else name


def _decides(line: str, bound: set[str], what: str) -> bool:
    """Whether a name that is only looked at decides: before `?`, in the condition of an `if`, beside `&&` or `in`."""
    for name in bound:
        seen = rf"(?<![\w$.]){re.escape(name)}\.{re.escape(what)}\b(?!\s*\()"
        if re.search(
            rf"\bif\s*\([^\n]*?{seen}|{seen}[^\n;]*?(?<!\?)\?(?![?.])|{seen}\s*(?:&&|\|\||\?\?)", line
        ):
            return True
        if re.search(rf"[\"']{re.escape(what)}[\"']\s+in\s+{re.escape(name)}\b", line):
            return True
    return False
