"""Hollow-change checks without a model: what a change did to its judges instead of to the fault.

Pure: texts before and after, the diff, the commands. Nothing is run and nothing is taken on anybody's word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from proctor.proof.change import Change, ChangedFile, short_lines
from proctor.proof.hollow.cheats import cheats
from proctor.proof.hollow.checks import edited_checks, edited_verification, raised_tolerances
from proctor.proof.hollow.hardcoded import hard_coded, knows_tests
from proctor.proof.hollow.model import Assertion, HollowFinding, HollowKind, HollowWeight, TestCase
from proctor.proof.hollow.python_tests import read_python_tests
from proctor.proof.hollow.script_cheats import script_cheats
from proctor.proof.hollow.script_tests import read_script_tests
from proctor.proof.hollow.shell_cheats import shell_cheats
from proctor.proof.hollow.shell_tests import is_strict, read_shell_tests
from proctor.proof.hollow.staged import inert, staged_tests
from proctor.proof.hollow.weaken import compare_tests
from proctor.proof.kinds import FileKind, is_test_file, language_of
from proctor.proof.symbols import names_in

__all__ = [
    "Assertion",
    "HollowFinding",
    "HollowKind",
    "HollowWeight",
    "TestCase",
    "find_hollow",
    "inert",
    "read_tests",
    "worst",
]


def find_hollow(
    change: Change, commands: Sequence[str] = (), tests: Mapping[str, str] | None = None
) -> tuple[HollowFinding, ...]:
    """Every sign of a hollow change, the heaviest first.

    `commands` are the verification; `tests` gives the text of test files that were not touched, by path, so that
    answers written for them are found too.
    """
    change = replace(change, files=tuple(_bounded(file) for file in change.files))
    touched = [file for file in change.files if _holds_tests(file, commands)]
    before = [
        test
        for file in touched
        if file.before is not None
        for test in read_tests(file.old_path or file.path, file.before)
    ]
    after = [test for file in touched if file.after is not None for test in read_tests(file.path, file.after)]
    known = [
        *after,
        *before,
        *(test for path, text in (tests or {}).items() for test in read_tests(path, text)),
    ]
    moved = {file.old_path: file.path for file in touched if file.old_path}
    findings = [
        *compare_tests(before, after, moved=moved, gone=_gone(change)),
        *_unreadable(touched),
        *_lenient(touched),
        *edited_checks(change),
        *edited_verification(change, commands),
        *raised_tolerances(change),
        *hard_coded(change, known),
        *knows_tests(change),
        *cheats(change),
        *staged_tests(change),
        *script_cheats(change, known),
        *shell_cheats(change, known),
        *_snapshots(change),
        *_unread(change),
    ]
    order = list(HollowWeight)
    return tuple(
        sorted(dict.fromkeys(findings), key=lambda one: (order.index(one.weight), one.file, one.line))
    )


def worst(findings: Iterable[HollowFinding]) -> HollowWeight | None:
    """The heaviest weight among findings."""
    weights = {one.weight for one in findings}
    return next((weight for weight in HollowWeight if weight in weights), None)


def read_tests(path: str, text: str) -> list[TestCase]:
    """The tests of a file in a language that is known; none for others or for what cannot be read."""
    language = language_of(path)
    if language == "python":
        return read_python_tests(path, text) or []
    text = short_lines(text)
    if language == "javascript":
        return read_script_tests(path, text)
    return read_shell_tests(path, text) if language == "shell" else []


def _bounded(file: ChangedFile) -> ChangedFile:
    """The file as the rules read it; Python is read as a tree, whatever the length of its lines."""
    if language_of(file.path) == "python":
        return file
    before, after = (None if text is None else short_lines(text) for text in (file.before, file.after))
    return replace(file, before=before, after=after)


def _holds_tests(file: ChangedFile, commands: Sequence[str]) -> bool:
    if is_test_file(file.path) or (file.old_path is not None and is_test_file(file.old_path)):
        return True
    # A check script that the verification names is judged like a test.
    named = any(file.path in command for command in commands)
    return (
        named
        and file.kind is FileKind.SOURCE
        and any(word in file.path.lower() for word in ("verif", "check", "test"))
    )


def _gone(change: Change) -> frozenset[str]:
    """Names that product files defined before and none defines after."""
    source = change.of_kind(FileKind.SOURCE)
    before = {
        name for file in source if file.before for name in names_in(file.old_path or file.path, file.before)
    }
    after = {name for file in source if file.after for name in names_in(file.path, file.after)}
    return frozenset(before - after)


def _unreadable(touched: list[ChangedFile]) -> list[HollowFinding]:
    """A test file that could be read before and cannot be read now is not run either."""
    found = []
    for file in touched:
        if language_of(file.path) != "python" or file.after is None or file.before is None:
            continue
        if (
            read_python_tests(file.path, file.after) is None
            and read_python_tests(file.path, file.before) is not None
        ):
            why = "the file cannot be read as Python any more"
            found.append(HollowFinding(HollowKind.TEST_DELETED, HollowWeight.REFUTES, file.path, 1, why))
    return found


def _lenient(touched: list[ChangedFile]) -> list[HollowFinding]:
    """A shell test that no longer stops at the first failure."""
    return [
        HollowFinding(
            HollowKind.TEST_WEAKENED,
            HollowWeight.REFUTES,
            file.path,
            1,
            "it no longer stops at the first failure (set -e)",
        )
        for file in touched
        if language_of(file.path) == "shell"
        and file.before
        and file.after
        and is_strict(file.before)
        and not is_strict(file.after)
    ]


def _snapshots(change: Change) -> list[HollowFinding]:
    """Recorded expectations that were replaced while no product code was changed."""
    if change.of_kind(FileKind.SOURCE, FileKind.UI):
        return []
    why = "the recorded expectation was replaced and no product code was changed"
    return [
        HollowFinding(HollowKind.SNAPSHOT_REPLACED, HollowWeight.SUSPICIOUS, file.path, 1, why)
        for file in change.files
        if file.before is not None
        and (file.path.endswith((".snap", ".golden", ".approved.txt")) or "__snapshots__/" in file.path)
    ]


def _unread(change: Change) -> list[HollowFinding]:
    why = "the test file is too large or binary and was not looked at"
    return [
        HollowFinding(HollowKind.UNREAD, HollowWeight.SUSPICIOUS, path, 0, why)
        for path in change.unread
        if is_test_file(path) and language_of(path)
    ]
