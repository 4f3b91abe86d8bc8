"""Whether a change only adds tests, or also touches what judged before: then the old judges are asked too. Pure.

A test that was red before and is green only as the change edited it (its expectation, a helper, a data file, a hook)
shows nothing. Where tests are plainly added beside the old ones, nothing of the kind can be, and no run is spent on it.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Sequence
from typing import Final

from proctor.proof.change import Change, ChangedFile
from proctor.proof.diff import Line
from proctor.proof.hollow.python_tests import read_python
from proctor.proof.kinds import FileKind, is_test_file, language_of
from proctor.proof.reading import Reading

__all__ = ["broken_and_edited", "lost_by_edit", "only_adds_tests", "passes_only_as_edited", "unread_tests"]

_BEGINS: Final = re.compile(r"\s*(?:(?:test|it|describe)(?:\.\w+)*\(|check\b|assert|ok\b|#|//|@|\}|\)|$)")
COMMAND: Final = "the command"
#: Languages whose tests are compared by their texts; of others only the runs can tell.
_READ: Final = frozenset({"python", "javascript", "shell"})
_SKIPS: Final = re.compile(r"#\[ignore|@Ignore|@Disabled|\bskip|\bSkip|Assume|pending", re.IGNORECASE)


def only_adds_tests(change: Change, tests: Sequence[str]) -> bool:
    """Whether every touched test file has its old tests as they were, and nothing that reaches beyond its new ones."""
    files = {file.path: file for file in change.files}
    return all(path in files and _plain(files[path], change) for path in tests)


def _plain(file: ChangedFile, change: Change) -> bool:
    support = file.kind is FileKind.CHECK or not is_test_file(file.path) or language_of(file.path) is None
    if file.after is None:
        return False
    if file.before is None and support:
        return posixpath.basename(file.path) != "conftest.py" or _harmless(file.after)
    if language_of(file.path) == "python":
        return _python_adds(file.before, file.after)
    if file.before is None:
        return True
    diff = change.diff.of(file.path)
    added = [line.text for hunk in (diff.hunks if diff else ()) for line in _first_added(hunk.lines)]
    skips = (
        language_of(file.path) not in _READ and any(_SKIPS.search(text) for _, text in diff.added)
        if diff
        else False
    )
    return diff is not None and not diff.removed and not skips and all(_BEGINS.match(text) for text in added)


def _first_added(lines: Sequence[Line]) -> list[Line]:
    """The first line of each run of added lines."""
    kinds = ["", *(line.kind for line in lines)]
    return [line for n, line in enumerate(lines) if line.kind == "+" and kinds[n] != "+"]


def _python_adds(before: str | None, after: str) -> bool:
    old, new = read_python(before or ""), read_python(after)
    return old is not None and new is not None and _keeps(old.body, new.body)


def _keeps(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> bool:
    """Every old statement is still there; new ones are imports, definitions and plain values."""
    left = [ast.dump(node) for node in old if not isinstance(node, ast.Import | ast.ImportFrom)]
    classes = {node.name: node for node in old if isinstance(node, ast.ClassDef)}
    names = {node.name for node in old if isinstance(node, _DEFINED)}
    for node in new:
        text = ast.dump(node)
        if text in left:
            left.remove(text)
        elif isinstance(node, ast.ClassDef) and node.name in classes:
            if not _keeps(classes[node.name].body, node.body):
                return False
            left.remove(ast.dump(classes[node.name]))
        elif not _adds(node) or (isinstance(node, _DEFINED) and node.name in names):
            return False
    return not left


_DEFINED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _adds(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return not node.name.startswith(
            ("pytest_", "setup", "teardown", "setUp", "tearDown")
        ) and not _automatic(node)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) and target.id != "pytestmark" for target in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _automatic(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A fixture that is used by tests that do not ask for it."""
    return any("autouse" in ast.unparse(one) for one in node.decorator_list)


def _harmless(text: str) -> bool:
    """A new conftest.py that brings nothing but fixtures one must ask for."""
    tree = read_python(text)
    return tree is not None and all(_adds(node) for node in tree.body)


def passes_only_as_edited(base: Reading, old_tests: Reading, after: Reading) -> list[str]:
    """Tests that were red at the base, are red with the change under the old tests, and green with the new ones."""
    if not base.named and not base.green and base.sound:
        return [COMMAND] if not old_tests.green and after.green else []
    return sorted(set(base.failed) & set(old_tests.failed) & after.passed)


def unread_tests(tests: Sequence[str]) -> bool:
    """Whether tests were touched that no check of texts understands."""
    return any(is_test_file(path) and language_of(path) not in {None, *_READ} for path in tests)


def lost_by_edit(base: Reading, after: Reading, *, unread: bool) -> tuple[list[str], list[str]]:
    """Tests that passed at the base and now are skipped, or are gone; gone ones only where the texts were not compared."""
    if not (base.whole and after.whole):
        return [], []
    missing = base.passed - after.passed - set(after.failed)
    return sorted(missing & after.skipped), sorted(missing - after.skipped) if unread else []


def broken_and_edited(base: Reading, old_tests: Reading, after: Reading) -> list[str]:
    """Tests that passed at the base, fail with the change as they were, and pass with it as they were edited."""
    return sorted(base.passed & set(old_tests.failed) & after.passed)
