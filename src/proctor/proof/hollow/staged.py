"""Tests that arrange their own success: they replace what they try, look for a mark that the change left in the code, or
read the code's text instead of running it. And changes of code that change nothing a run could notice.

A test of that kind fails without the change and passes with it, whatever the code does; only a look at the test tells.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from typing import Final

from proctor.proof.change import Change, ChangedFile
from proctor.proof.hollow.model import HollowFinding, HollowKind, HollowWeight
from proctor.proof.hollow.python_strength import called_name
from proctor.proof.hollow.python_tests import read_python, read_python_tests
from proctor.proof.hollow.reflection import origins
from proctor.proof.kinds import FileKind, is_test_file, language_of
from proctor.proof.symbols import module_names, names_in

__all__ = ["inert", "staged_tests"]

_SETS: Final = frozenset({"setattr", "patch", "object", "setitem", "__setattr__"})
_READS: Final = frozenset({"getsource", "getsourcelines", "getsourcefile"})
_OPENS: Final = frozenset({"open", "Path", "read_text", "read_bytes", "joinpath"})


def staged_tests(change: Change) -> Iterator[HollowFinding]:
    """Everything of that kind in added lines of Python tests and their helpers."""
    source = [file for file in change.of_kind(FileKind.SOURCE) if language_of(file.path) == "python"]
    owned = {name for file in source if file.after for name in names_in(file.path, file.after)}
    before = {name for file in source if file.before for name in names_in(file.path, file.before)}
    tests = [file for file in change.files if is_test_file(file.path) and file.path.endswith(".py")]
    called = {name for file in tests if file.after for name in _called(file)}
    for file in tests:
        tree = read_python(file.after) if file.after else None
        diff = change.diff.of(file.path)
        if tree is None or diff is None:
            continue
        added = {number for number, _ in diff.added}
        for line, why in _staged(tree, owned & called, owned - before, source):
            if line in added:
                yield HollowFinding(HollowKind.STAGED, HollowWeight.SUSPICIOUS, file.path, line, why)


def _called(file: ChangedFile) -> Iterator[str]:
    for test in read_python_tests(file.path, file.after or "") or ():
        yield from test.words


def _staged(
    tree: ast.Module, tried: set[str], new: set[str], source: list[ChangedFile]
) -> Iterator[tuple[int, str]]:
    asserted = {
        id(one) for node in ast.walk(tree) if isinstance(node, ast.Assert) for one in _plainly(node.test)
    }
    files = {posixpath.basename(file.path) for file in source}
    modules = {name for file in source for name in module_names(file.path)}
    known = origins(tree)
    for node in ast.walk(tree):
        for where, name, line in _replaced(node, known):
            if name in tried and any(where == one or where.startswith(f"{one}.") for one in modules):
                yield line, f"it replaces {name}, which the tests try, with something of its own"
        if isinstance(node, ast.Call):
            name = called_name(node)
            mark = _text(node.args[1]) if name in {"hasattr", "getattr"} and len(node.args) > 1 else ""
            if mark in new and (name == "hasattr" or len(node.args) > 2) and id(node) not in asserted:
                yield node.lineno, f"it acts otherwise where {mark} is there, which the change brings along"
            elif name in _READS or (name in _OPENS and _names(node, files)):
                yield (
                    node.lineno,
                    f"it looks at the code's text, not at what it does: `{ast.unparse(node)[:60]}`",
                )


def _plainly(test: ast.expr) -> list[ast.expr]:
    """The things a plain assertion demands."""
    return [test, *(test.values if isinstance(test, ast.BoolOp) else [])]


def _replaced(node: ast.AST, known: dict[str, str]) -> Iterator[tuple[str, str, int]]:
    """Attributes of imported things that are set, by assignment or by a call that sets: where from, name, line."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                yield _origin(target.value, known), target.attr, node.lineno
    elif isinstance(node, ast.Call) and called_name(node) in _SETS and node.args:
        first = _text(node.args[0])
        where, _, name = first.rpartition(".")
        if first:
            yield where, name, node.lineno
        elif len(node.args) > 1 and (name := _text(node.args[1])):
            yield _origin(node.args[0], known), name, node.lineno


def _origin(node: ast.expr, known: dict[str, str]) -> str:
    """The full name of an imported thing; nothing for other things."""
    if isinstance(node, ast.Attribute):
        below = _origin(node.value, known)
        return f"{below}.{node.attr}" if below else ""
    return known.get(node.id, "") if isinstance(node, ast.Name) else ""


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _names(call: ast.Call, files: set[str]) -> bool:
    texts = [one.value for one in ast.walk(call) if isinstance(one, ast.Constant)]
    return any(isinstance(text, str) and posixpath.basename(text) in files for text in texts)


_COMMENTS: Final = {
    "python": re.compile(r"\s*(?:#|$)"),
    "shell": re.compile(r"\s*(?:#(?!!)|$)"),
    "javascript": re.compile(r"\s*(?://|/\*.*\*/\s*$|\*(?!/)[\s*]|$)"),
}


def inert(change: Change, *, names: bool) -> str:
    """Say why nothing that was changed in the code can make a difference to a run; nothing if something can.

    With `names` a new value that no changed file uses counts as nothing too.
    """
    source = change.of_kind(FileKind.SOURCE, FileKind.UI, FileKind.OTHER)
    if not source or len(change.of_kind(FileKind.SOURCE)) != len(source) or change.unread:
        return ""
    unused: set[str] = set()
    for file in source:
        found = _idle(file, change)
        if found is None or (found and not names):
            return ""
        unused |= found
    if unused & {name for file in source for name in _loaded(file)}:
        return ""
    if unused:
        return f"the change of the code only adds {', '.join(sorted(unused)[:3])}, which nothing uses"
    return "only comments and documentation of the code were changed"


def _idle(file: ChangedFile, change: Change) -> set[str] | None:
    """The new values of a file that otherwise says what it said; None if it says something else."""
    if file.before is None or file.after is None:
        return None
    if language_of(file.path) == "python":
        old, new = read_python(file.before), read_python(file.after)
        return _added_values(old, new) if old is not None and new is not None else None
    comment, diff = _COMMENTS.get(language_of(file.path) or ""), change.diff.of(file.path)
    if comment is None or diff is None:
        return None
    return set() if all(comment.match(text) for _, text in (*diff.added, *diff.removed)) else None


def _added_values(old: ast.Module, new: ast.Module) -> set[str] | None:
    left = [ast.dump(_undocumented(node)) for node in old.body if not _is_text(node)]
    found: set[str] = set()
    for node in new.body:
        if _is_text(node):
            continue
        text = ast.dump(_undocumented(node))
        if left and text == left[0]:
            left.pop(0)
        elif isinstance(node, ast.Assign) and all(isinstance(one, ast.Name) for one in node.targets):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
        else:
            return None
    return found if not left else None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _undocumented(node: ast.stmt) -> ast.stmt:
    """The same without documentation, which is an expression of its own."""
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            one.body = [line for line in one.body if not _is_text(line)] or [ast.Pass()]
    return node


def _loaded(file: ChangedFile) -> set[str]:
    tree = read_python(file.after or "") if language_of(file.path) == "python" else None
    if tree is None:
        return set()
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
