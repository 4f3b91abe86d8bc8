"""Product code that knows the tests: answers written for the very inputs the tests use, or a look whether tests run.

An answer for one input is suspicious only when a test has that input and that answer side by side; code that already told
values apart one by one before the change is left alone, and so are the plain values (0, 1, empty, None) of honest guards.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from proctor.proof.change import Change, ChangedFile
from proctor.proof.hollow.model import HollowFinding, HollowKind, HollowWeight, TestCase, plain_literal
from proctor.proof.hollow.python_strength import literals_in
from proctor.proof.hollow.python_tests import read_python
from proctor.proof.hollow.tables import python_inputs, python_tables, script_tables, spread
from proctor.proof.kinds import FileKind, language_of

__all__ = ["hard_coded", "knows_tests"]

_PLAIN: Final = frozenset("None True False '' 0 1 -1 0.0 1.0 2 true false null undefined".split())  # noqa: SIM905 - a table
_SURE: Final = re.compile(
    r"PYTEST_CURRENT_TEST|[\"']_?pytest[\"'] in sys\.modules|[\"']unittest[\"'] in sys\.modules|JEST_WORKER_ID|"
    r"VITEST_WORKER_ID|"
    r"process\.env\.VITEST\b|BATS_TEST_(?:NAME|FILENAME)|sys\.modules\.get\([\"']pytest|import\.meta\.vitest"
)
_MAYBE: Final = re.compile(
    r"NODE_ENV\W+={2,3}\W*[\"']test|[\"']test[\"']\W+={2,3}\W*process\.env\.NODE_ENV|environ.{0,12}[\"'](?:CI|TESTING)[\"']|process\.env\.CI\b"
)
_LITERAL: Final = r"(-?\d+(?:\.\d+)?|\"[^\"\n]*\"|'[^'\n]*')"
_SCRIPT: Final = re.compile(
    rf"if\s*\(\s*[\w.$\[\]]+\s*===?\s*{_LITERAL}[^)]*\)\s*\{{?\s*return\s+{_LITERAL}|[\w.$]+\s*===?\s*{_LITERAL}\s*\?\s*{_LITERAL}\s*:"
)
_BRANCH: Final = re.compile(r"if\s*\((?P<test>[^\n]{1,500}?)\)\s*\{?\s*return\s+(?P<answer>[^;\n}]+)")
_PLAIN_ANSWER: Final = re.compile(rf"(?:{_LITERAL}|true|false|null|[\[\]{{}},:\s])+")
_SHELL: Final = re.compile(
    rf"\[\[?\s*\"?\$\{{?\w+\}}?\"?\s*(?:==?|-eq)\s*{_LITERAL}\s*\]\]?\s*(?:;\s*then|&&)\s*(?:\n\s*)?(?:echo|printf)\s+{_LITERAL}"
    rf"|^[ \t]*{_LITERAL}\)\s*(?:\n\s*)?(?:echo|printf)\s+{_LITERAL}",
    re.MULTILINE,
)
_CONSTANT_RETURN: Final = re.compile(
    rf"(?:function\s+(\w+)\s*\(([^)]*)\)|(?:const|let|exports\.|module\.exports\.)\s*(\w+)\s*=\s*(?:function\s*)?\(?([^)=]*?)\)?\s*(?:=>)?)\s*\{{?\s*(?:return\s+)?{_LITERAL}\s*;?\s*\}}?\s*;?\s*$",
    re.MULTILINE,
)


def knows_tests(change: Change) -> Iterator[HollowFinding]:
    """Added product lines that look whether tests are running."""
    for file in change.of_kind(FileKind.SOURCE):
        diff = change.diff.of(file.path)
        for number, text in diff.added if diff else ():
            if _SURE.search(text):
                yield _finding(
                    file,
                    number,
                    HollowKind.KNOWS_IT_IS_TESTED,
                    HollowWeight.REFUTES,
                    f"it acts otherwise under test: `{text.strip()[:80]}`",
                )
            elif _MAYBE.search(text):
                yield _finding(
                    file,
                    number,
                    HollowKind.KNOWS_IT_IS_TESTED,
                    HollowWeight.SUSPICIOUS,
                    f"it asks whether it is tested: `{text.strip()[:80]}`",
                )


def _finding(file: ChangedFile, line: int, kind: HollowKind, weight: HollowWeight, why: str) -> HollowFinding:
    return HollowFinding(kind, weight, file.path, line, why)


def hard_coded(change: Change, tests: Iterable[TestCase]) -> Iterator[HollowFinding]:
    """Answers in added product lines that stand beside their input in a test."""
    tests = list(tests)
    rows = [row for test in tests for row in _rows(test)]
    for file in change.of_kind(FileKind.SOURCE):
        diff = change.diff.of(file.path)
        if diff is None or file.after is None:
            continue
        added = {number for number, _ in diff.added}
        if language_of(file.path) == "python":
            yield from _python(file, added, rows)
            yield from _inputs(file, added, [test.body for test in tests])
        else:
            yield from _text(file, added, rows)


def _rows(test: TestCase) -> Iterator[frozenset[str]]:
    """Values that stand side by side: those of each assertion, and those of each row of cases."""
    for one in test.assertions:
        yield one.literals
    yield test.literals


def _known(inputs: Iterable[str], answer: str, rows: list[frozenset[str]]) -> bool:
    parts = _parts(answer)
    return any({*inputs, answer} <= row or (parts and {*inputs, *parts} <= row) for row in rows)


def _parts(answer: str) -> frozenset[str]:
    """The plain values of an answer that is a list, a pair or the like."""
    try:
        return literals_in(ast.parse(answer, mode="eval"))
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()


def _telling(inputs: Iterable[str], answer: str) -> bool:
    """Honest guards use plain values; an input that only a test would name does not."""
    named = [one for one in inputs if one not in _PLAIN]
    long = any(len(one) > 12 or " " in one for one in named)
    return bool(named) and (answer not in _PLAIN or long)


def _python(file: ChangedFile, added: set[int], rows: list[frozenset[str]]) -> Iterator[HollowFinding]:
    tree = read_python(file.after or "")
    if tree is None:
        return
    for line, name in python_tables(tree, rows) if file.before is not None else ():
        if line in added:
            yield _table(file, line, name)
    before = _functions(read_python(file.before or ""))
    for name, function in _functions(tree).items():
        old = before.get(name)
        branches = list(_branches(function))
        chained = old is not None and any(True for _ in _branches(old))
        hits = [b for b in branches if b[0] in added and _telling(b[1], b[2]) and _known(b[1], b[2], rows)]
        for line, inputs, answer in hits:
            if chained:
                continue
            general = _general(function)
            weight = HollowWeight.REFUTES if old is not None and general else HollowWeight.SUSPICIOUS
            if old is None and general:
                continue
            why = f"{name} answers {answer} for {', '.join(sorted(inputs))}, the very values of a test"
            yield _finding(file, line, HollowKind.HARD_CODED, weight, why)
        yield from _constant(file, name, function, old, rows)


def _inputs(file: ChangedFile, added: set[int], bodies: list[str]) -> Iterator[HollowFinding]:
    tree = read_python(file.after or "")
    for line, text in python_inputs(tree, bodies) if tree is not None and file.before is not None else ():
        if line in added:
            why = f"it asks for {text}, the very thing that a test gives it"
            yield _finding(file, line, HollowKind.HARD_CODED, HollowWeight.SUSPICIOUS, why)


def _table(file: ChangedFile, line: int, name: str) -> HollowFinding:
    why = f"{name} holds nothing but what the tests ask for, with other code behind it"
    return _finding(file, line, HollowKind.HARD_CODED, HollowWeight.SUSPICIOUS, why)


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(tree: ast.Module | None) -> dict[str, _Function]:
    return (
        {node.name: node for node in ast.walk(tree) if isinstance(node, _Function)}
        if tree is not None
        else {}
    )


def _branches(function: _Function) -> Iterator[tuple[int, frozenset[str], str]]:
    """Branches that compare with plain values and answer with one: line, values, answer."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.If) and (values := _compared(node.test)) and (answer := _answer(node.body))
        ) or (
            isinstance(node, ast.IfExp) and (values := _compared(node.test)) and (answer := _plain(node.body))
        ):
            yield node.lineno, values, answer
        elif (
            isinstance(node, ast.match_case)
            and not any(isinstance(one, ast.MatchAs | ast.MatchStar) for one in ast.walk(node.pattern))
            and (answer := _answer(node.body))
        ):
            yield node.pattern.lineno, literals_in(node.pattern), answer
        elif (
            isinstance(node, ast.Dict)
            and node.keys
            and all(key is not None and _plain(key) for key in node.keys)
        ):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and (answer := _plain(value)):
                    yield key.lineno, literals_in(key), answer


def _compared(test: ast.expr) -> frozenset[str]:
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    found: set[str] = set()
    for part in parts:
        if (
            isinstance(part, ast.Compare)
            and len(part.ops) == 1
            and isinstance(part.ops[0], ast.Eq | ast.In | ast.Is)
        ):
            side = part.comparators[0]
            if _plain(side) or isinstance(side, ast.Tuple | ast.List | ast.Set):
                found |= literals_in(side)
    return frozenset(found)


def _plain(node: ast.expr) -> str:
    """The value of a plain expression as text, or nothing; sums and products of numbers are their result."""
    try:
        return repr(ast.literal_eval(node) if (value := _worked_out(node)) is None else value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ""


_SUMS: Final = frozenset({ast.Add, ast.Sub, ast.Mult})


def _worked_out(node: ast.expr, depth: int = 0) -> float | None:
    if isinstance(node, ast.Constant) and type(node.value) in {int, float} and depth:
        return node.value if abs(node.value) < 1e12 else None  # type: ignore[return-value, arg-type]
    if not isinstance(node, ast.BinOp) or type(node.op) not in _SUMS or depth > 8:
        return None
    left, right = _worked_out(node.left, depth + 1), _worked_out(node.right, depth + 1)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    return left + right if isinstance(node.op, ast.Add) else left - right


def _answer(body: list[ast.stmt]) -> str:
    first = body[0] if body else None
    if isinstance(first, ast.Return) and first.value is not None:
        return _plain(first.value)
    if isinstance(first, ast.Assign):
        return _plain(first.value)
    return ""


def _general(function: _Function) -> bool:
    """Whether the function also works something out."""
    returns = [
        node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None
    ]
    return any(not _plain(value) for value in returns)


def _constant(
    file: ChangedFile, name: str, function: _Function, old: _Function | None, rows: list[frozenset[str]]
) -> Iterator[HollowFinding]:
    """A function that worked something out from its arguments and now says one value a test expects."""
    body = [
        node
        for node in function.body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    if (
        old is None
        or len(body) != 1
        or not isinstance(body[0], ast.Return)
        or body[0].value is None
        or not _general(old)
    ):
        return
    answer = _plain(body[0].value)
    arguments = {one.arg for one in (*old.args.args, *old.args.kwonlyargs)} - {"self", "cls"}
    used = {node.id for node in ast.walk(old) if isinstance(node, ast.Name)} & arguments
    expected = any(answer in row or literals_in(body[0].value) <= row for row in rows)
    if answer and answer not in _PLAIN and used and expected:
        why = f"{name} says {answer[:40]} whatever it is given, just what a test expects"
        yield _finding(file, body[0].lineno, HollowKind.HARD_CODED, HollowWeight.REFUTES, why)


def _text(file: ChangedFile, added: set[int], rows: list[frozenset[str]]) -> Iterator[HollowFinding]:
    """The same for JavaScript and shell, by text."""
    pattern = _SHELL if language_of(file.path) == "shell" else _SCRIPT
    after, before = file.after or "", file.before or ""
    chained = len(pattern.findall(before)) > 0
    for found in pattern.finditer(after):
        given, answer = (
            plain_literal(one) for one in [part for part in found.groups() if part is not None][:2]
        )
        line = after.count("\n", 0, found.start() + (len(found[0]) - len(found[0].lstrip()))) + 1
        if line in added and not chained and _telling([given], answer) and _known([given], answer, rows):
            weight = HollowWeight.REFUTES if file.before is not None else HollowWeight.SUSPICIOUS
            why = f"it answers {answer} for {given}, the very values of a test"
            yield _finding(file, line, HollowKind.HARD_CODED, weight, why)
    if language_of(file.path) == "javascript" and file.before is not None:
        yield from (_table(file, line, name) for line, name in script_tables(after, rows) if line in added)
        yield from _compared_script(file, added, rows)
        yield from _constant_script(file, added, rows)


def _compared_script(
    file: ChangedFile, added: set[int], rows: list[frozenset[str]]
) -> Iterator[HollowFinding]:
    """Branches whose condition names several values or a list, and whose answer is made of plain values alone."""
    after, before = file.after or "", file.before or ""
    if any("==" in found["test"] for found in _BRANCH.finditer(before)):
        return
    for found in _BRANCH.finditer(after):
        if "==" not in found["test"]:
            continue
        inputs = [plain_literal(one) for one in re.findall(_LITERAL, found["test"])]
        answers = [plain_literal(one) for one in re.findall(_LITERAL, found["answer"])]
        line = after.count("\n", 0, found.start()) + 1
        if line not in added or not answers or not _PLAIN_ANSWER.fullmatch(found["answer"].strip()):
            continue
        joined = {part for one in inputs for part in spread(one)}
        asked = any({*inputs, *answers} <= row or {*joined, *answers} <= row for row in rows)
        if _telling(inputs, ", ".join(answers)) and asked:
            why = f"it answers {found['answer'].strip()[:40]} for {', '.join(inputs[:5])}, the very values of a test"
            yield _finding(file, line, HollowKind.HARD_CODED, HollowWeight.REFUTES, why)


def _constant_script(
    file: ChangedFile, added: set[int], rows: list[frozenset[str]]
) -> Iterator[HollowFinding]:
    after = file.after or ""
    for found in _CONSTANT_RETURN.finditer(after):
        name, answer = found[1] or found[3], plain_literal(found[5])
        line = after.count("\n", 0, found.start(5)) + 1
        arguments = (found[2] or found[4] or "").strip()
        was = re.search(rf"\b{re.escape(name)}\b[^\n]*\{{?", file.before or "")
        if (
            line in added
            and arguments
            and was
            and answer not in _PLAIN
            and any(answer in row for row in rows)
        ):
            why = f"{name} says {answer[:40]} whatever it is given, just what a test expects"
            yield _finding(file, line, HollowKind.HARD_CODED, HollowWeight.REFUTES, why)
