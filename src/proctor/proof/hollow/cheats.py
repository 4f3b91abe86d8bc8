"""Product code that reaches for its judges: patches the test framework, equals everything, looks who calls, or waits for
a day. Only added lines of product files count; what could be honest is suspicious, what cannot be refutes.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from typing import Final

from proctor.proof.change import Change, ChangedFile
from proctor.proof.hollow.model import HollowFinding, HollowKind, HollowWeight
from proctor.proof.hollow.python_tests import read_python
from proctor.proof.hollow.reflection import equals_too_much, framework_names, patches, reflections
from proctor.proof.kinds import FileKind, is_test_file, language_of

__all__ = ["cheats"]

_RUNNER: Final = re.compile(r"pytest|unittest|nose|\btox\b|jest|vitest|mocha", re.IGNORECASE)
_CALLER: Final = re.compile(
    r"\b(?:sys\.argv|sys\.orig_argv|inspect\.stack|inspect\.currentframe|sys\._getframe|extract_stack|__main__|sys\.modules)\b"
)
_OURS: Final = re.compile(r"proctor-canary|/run/proctor|\bPROCTOR_\w+|junitxml|PYTEST_ADDOPTS|junit\.xml")
_NOW: Final = re.compile(r"\b(?:now|utcnow|today|time|time_ns|localtime|gmtime)$")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d")
_START: Final = re.compile(r"(?:.*/)?(?:sitecustomize\.py|usercustomize\.py|[^/]+\.pth)")
_SCRIPT_SURE: Final = re.compile(
    r"(?:\bassert|require\(\s*[\"'](?:node:)?assert(?:/strict)?[\"']\s*\))(?:\.\w+)+\s*=[^=>]|NODE_TEST_CONTEXT"
    r"|\b(?:global|globalThis)\.(?:it|test|expect|describe|assert)\s*=[^=]|Object\.is\s*=[^=]"
)
_SCRIPT_LOOKS: Final = re.compile(
    r"(?:process\.argv|\.stack\b|require\.main|npm_lifecycle_event)[^\n]*[\"'/.]\w*(?:test|spec|jest|mocha)"
)
_SCRIPT_DAY: Final = re.compile(
    r"(?:Date\.now\(\)|new Date\(\)(?:\.getTime\(\))?)\s*[<>]=?\s*(?:\+?new Date\(\s*[\"'\d]|Date\.(?:parse|UTC)\(|\d{10,})"
)
_SHELL_DAY: Final = re.compile(r"\$\(date[^)]*\)[\"']?\s*(?:-[lg][te]|\\?[<>])\s*[\"']?\d{4,}")
_SHELL_SURE: Final = re.compile(
    r"\btrap\b[^\n]*\bexit 0\b|^\s*(?:function\s+)?(?:exit|test|\[|return|check|fail|expect|assert\w*)\s*\(\)"
)
_SHELL_LOOKS: Final = re.compile(r"/proc/\$\{?PPID|ps\b[^\n]*\$\{?PPID")
_PATHS: Final = re.compile(r"[\"'`]([\w./-]*\w\.\w{1,4})[\"'`]")


def cheats(change: Change) -> Iterator[HollowFinding]:
    """Everything of that kind in the added lines of product files, and files that run before anything else."""
    for file in change.files:
        if file.before is None and file.after is not None and _START.fullmatch(file.path):
            yield _said(file, 1, sure=False, why="it is run at every start of Python, before any test")
    for file in change.of_kind(FileKind.SOURCE):
        diff = change.diff.of(file.path)
        if diff is None or file.after is None:
            continue
        added = dict(diff.added)
        yield from _by_text(file, added)
        if language_of(file.path) == "python" and (tree := read_python(file.after)) is not None:
            yield from _python(file, tree, set(added))


def _said(file: ChangedFile, line: int, *, sure: bool, why: str) -> HollowFinding:
    weight = HollowWeight.REFUTES if sure else HollowWeight.SUSPICIOUS
    return HollowFinding(HollowKind.KNOWS_IT_IS_TESTED, weight, file.path, line, why)


def _by_text(file: ChangedFile, added: dict[int, str]) -> Iterator[HollowFinding]:
    language = language_of(file.path)
    for number, text in added.items():
        shown = f"`{text.strip()[:80]}`"
        if _OURS.search(text):
            yield _said(file, number, sure=True, why=f"it looks for what judges it: {shown}")
        elif language == "javascript" and _SCRIPT_SURE.search(text):
            yield _said(
                file, number, sure=True, why=f"it changes the test framework, or asks for it: {shown}"
            )
        elif language == "javascript" and _SCRIPT_LOOKS.search(text):
            yield _said(file, number, sure=False, why=f"it looks who calls it: {shown}")
        elif (language == "javascript" and _SCRIPT_DAY.search(text)) or (
            language == "shell" and _SHELL_DAY.search(text)
        ):
            yield _said(file, number, sure=False, why=f"it acts otherwise from a fixed day on: {shown}")
        elif language == "shell" and _SHELL_SURE.search(text):
            yield _said(file, number, sure=False, why=f"it takes the place of what a test uses: {shown}")
        elif language == "shell" and _SHELL_LOOKS.search(text):
            yield _said(file, number, sure=False, why=f"it looks who calls it: {shown}")
        elif any(_test_path(path) for path in _PATHS.findall(text)):
            yield _said(file, number, sure=False, why=f"it names a file of the tests: {shown}")


def _test_path(path: str) -> bool:
    return bool(is_test_file(path.removeprefix("./").removeprefix("../")) and language_of(path)) and (
        "/" in path or posixpath.basename(path).startswith("test_")
    )


def _python(file: ChangedFile, tree: ast.Module, added: set[int]) -> Iterator[HollowFinding]:
    frameworks = framework_names(tree)
    days = _fixed_days(tree)
    for line, why in reflections(tree, added):
        yield _said(file, line, sure=False, why=why)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if line not in added:
            continue
        if equal := equals_too_much(node):
            why = "it is equal to everything, so that any expectation holds"
            yield _said(file, line, sure=equal == "sure", why=why)
        elif patches(node, frameworks):
            yield _said(file, line, sure=True, why="it changes the test framework from within the product")
        elif isinstance(node, ast.Import | ast.ImportFrom) and _doubles(node):
            yield _said(file, line, sure=False, why="the product uses what is made for tests alone")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {"os._exit", "os.abort"}:
            yield _said(file, line, sure=False, why="it ends the process past every test that is left")
        elif isinstance(node, ast.Compare) and _bomb(node, days):
            why = f"it acts otherwise from a fixed day on: `{ast.unparse(node)[:80]}`"
            yield _said(file, line, sure=False, why=why)
        elif isinstance(node, ast.If | ast.IfExp | ast.While) and (looks := _looks(node.test)):
            yield _said(
                file,
                line,
                sure=looks == "runner",
                why=f"it looks who calls it: `{ast.unparse(node.test)[:80]}`",
            )


def _doubles(node: ast.Import | ast.ImportFrom) -> bool:
    names = [one.name for one in node.names]
    inner = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
    if any(name.split(".")[0] == "_pytest" for name in inner):
        return True
    if isinstance(node, ast.ImportFrom):
        return node.module in {"unittest.mock", "mock"} or (node.module == "unittest" and "mock" in names)
    return any(name in {"unittest.mock", "mock"} for name in names)


def _fixed_days(tree: ast.Module) -> set[str]:
    """Names of the file that hold a fixed day."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_day(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_day(node: ast.AST) -> bool:
    for one in ast.walk(node):
        if (
            isinstance(one, ast.Call)
            and len([a for a in one.args if isinstance(a, ast.Constant) and isinstance(a.value, int)]) >= 3
        ):
            if ast.unparse(one.func).rsplit(".", 1)[-1] in {"date", "datetime"}:
                return True
        elif isinstance(one, ast.Constant):
            if isinstance(one.value, str) and _DAY.search(one.value):
                return True
            if isinstance(one.value, int | float) and one.value > 1_000_000_000:
                return True
    return False


def _bomb(node: ast.Compare, days: set[str]) -> bool:
    """The clock on one side, a fixed day on the other."""
    sides = [node.left, *node.comparators]
    clock = [side for side in sides if _reads_clock(side)]
    fixed = [
        side
        for side in sides
        if side not in clock and (_is_day(side) or (isinstance(side, ast.Name) and side.id in days))
    ]
    return bool(clock and fixed) and not any(
        isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in node.ops
    )


def _reads_clock(node: ast.expr) -> bool:
    return any(
        isinstance(one, ast.Call) and not one.args and _NOW.search(ast.unparse(one.func))
        for one in ast.walk(node)
    )


def _looks(test: ast.expr) -> str:
    """Whether a condition looks at the caller: by a runner's name, or by anything with "test" in it."""
    text = ast.unparse(test)
    if not _CALLER.search(text):
        return ""
    said = " ".join(
        one.value for one in ast.walk(test) if isinstance(one, ast.Constant) and isinstance(one.value, str)
    )
    if _RUNNER.search(said):
        return "runner"
    return "test" if re.search(r"test|spec", said, re.IGNORECASE) else ""
