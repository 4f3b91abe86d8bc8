"""Reading Python tests by their syntax tree: which tests there are, what they assert, which are skipped.

Invariant: an assertion that cannot be reached or whose failure is swallowed demands nothing.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from typing import Final

from proctor.proof.hollow.model import Assertion, TestCase
from proctor.proof.hollow.python_strength import (
    called_name,
    literals_in,
    parts_of,
    raises_strength,
    strength_of,
    unittest_strength,
)

__all__ = ["read_python", "read_python_tests"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SKIPS: Final = frozenset({"skip", "skipTest", "SkipTest", "importorskip"})
_MARKS: Final = frozenset({"skip", "xfail", "expectedFailure"})
_SWALLOWS: Final = frozenset({"AssertionError", "Exception", "BaseException"})
_DEPTH: Final = 4


def read_python(text: str) -> ast.Module | None:
    """Parse a file; None if it cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def read_python_tests(path: str, text: str) -> list[TestCase] | None:
    """All tests of a file; None if it cannot be read."""
    tree = read_python(text)
    if tree is None:
        return None
    return _Reader(path, tree).tests()


class _Reader:
    """One file being read."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self._path = path
        self._tree = tree
        functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
        self._helpers = {node.name: node for node in functions if not node.name.startswith("test")}
        self._module_skip = _module_skip(tree)

    def tests(self) -> list[TestCase]:
        """Tests in the order of the file; a later one of the same name replaces an earlier one, as Python does."""
        found: dict[str, TestCase] = {}
        for node in self._tree.body:
            if isinstance(node, _Function) and node.name.startswith("test"):
                found[node.name] = self._test(node, node.name, self._module_skip)
            elif isinstance(node, ast.ClassDef):
                skipped = self._module_skip or _skip_of(node.decorator_list)[0] or _class_off(node)
                for inner in node.body:
                    if isinstance(inner, _Function) and inner.name.startswith("test"):
                        name = f"{node.name}::{inner.name}"
                        found[name] = self._test(inner, name, skipped)
        loose = [
            node
            for node in self._tree.body
            if isinstance(node, ast.Assert | ast.Expr | ast.If | ast.For | ast.Try | ast.With)
        ]
        assertions = tuple(self._assertions(loose))
        if assertions:
            found["(module)"] = TestCase(
                self._path, "(module)", assertions[0].line, assertions, body=ast.unparse(self._tree)
            )
        return list(found.values())

    def _test(self, node: _Function, name: str, skipped: str) -> TestCase:
        mark, maybe = _skip_of(node.decorator_list)
        inside = _skip_inside(node.body)
        assertions = tuple(self._assertions(node.body))
        return TestCase(
            file=self._path,
            name=name,
            line=node.lineno,
            assertions=assertions,
            skipped=skipped or mark or inside,
            maybe_skipped=maybe,
            cases=_cases(node.decorator_list),
            words=frozenset(called_name(call) for call in ast.walk(node) if isinstance(call, ast.Call))
            - {""},
            literals=literals_in(node),
            body="\n".join(ast.unparse(statement) for statement in node.body),
        )

    def _assertions(
        self, body: Iterable[ast.stmt], *, swallowed: bool = False, times: int = 1, depth: int = 0
    ) -> list[Assertion]:
        found: list[Assertion] = []
        for statement in body:
            found += self._of_statement(statement, swallowed=swallowed, times=times, depth=depth)
            if isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue):
                break  # what follows is never reached
        return found

    def _of_statement(self, node: ast.stmt, *, swallowed: bool, times: int, depth: int) -> list[Assertion]:
        if isinstance(node, ast.Assert):
            return [
                _assertion(ast.unparse(part), strength_of(part), part, swallowed, times)
                for part in parts_of(node.test)
            ]
        if isinstance(node, ast.Try):
            inner = swallowed or any(_swallows(handler) for handler in node.handlers)
            rest = [*node.orelse, *node.finalbody, *(s for handler in node.handlers for s in handler.body)]
            return self._assertions(node.body, swallowed=inner, times=times, depth=depth) + self._assertions(
                rest, swallowed=swallowed, times=times, depth=depth
            )
        if isinstance(node, ast.With | ast.AsyncWith):
            return self._of_with(node, swallowed=swallowed, times=times, depth=depth)
        if isinstance(node, ast.For | ast.AsyncFor):
            more = len(node.iter.elts) if isinstance(node.iter, ast.List | ast.Tuple | ast.Set) else 1
            return self._assertions(node.body, swallowed=swallowed, times=times * max(more, 1), depth=depth)
        if isinstance(node, ast.If):
            branches = [] if isinstance(node.test, ast.Constant) and not node.test.value else node.body
            return self._assertions([*branches, *node.orelse], swallowed=swallowed, times=times, depth=depth)
        if isinstance(node, ast.While):
            return self._assertions(node.body, swallowed=swallowed, times=times, depth=depth)
        calls = (
            [one for one in ast.walk(node) if isinstance(one, ast.Call)]
            if isinstance(node, ast.Expr | ast.Assign | ast.Return)
            else []
        )
        return [
            found
            for call in calls
            for found in self._of_call(call, swallowed=swallowed, times=times, depth=depth)
        ]

    def _of_with(
        self, node: ast.With | ast.AsyncWith, *, swallowed: bool, times: int, depth: int
    ) -> list[Assertion]:
        found: list[Assertion] = []
        inner = swallowed
        for item in node.items:
            call = item.context_expr
            if not isinstance(call, ast.Call):
                continue
            name = called_name(call)
            if name == "suppress" and any(ast.unparse(argument) in _SWALLOWS for argument in call.args):
                inner = True
            elif name in {"raises", "warns", "deprecated_call"}:
                matched = any(word.arg == "match" for word in call.keywords)
                found.append(
                    _assertion(
                        ast.unparse(call),
                        raises_strength(call.args[:1], regex=matched),
                        call,
                        swallowed,
                        times,
                    )
                )
            else:
                found += self._of_call(call, swallowed=swallowed, times=times, depth=depth)
        return found + self._assertions(node.body, swallowed=inner, times=times, depth=depth)

    def _of_call(self, call: ast.Call, *, swallowed: bool, times: int, depth: int) -> list[Assertion]:
        strength = unittest_strength(call)
        if strength is not None:
            return [_assertion(ast.unparse(call), strength, call, swallowed, times)]
        if called_name(call) == "raises" and len(call.args) > 1:
            return [
                _assertion(
                    ast.unparse(call), raises_strength(call.args[:1], regex=False), call, swallowed, times
                )
            ]
        helper = self._helpers.get(called_name(call))
        if helper is None or depth >= _DEPTH:
            return []
        inside = self._assertions(helper.body, swallowed=swallowed, times=times, depth=depth + 1)
        text = ast.unparse(call)
        return [
            _assertion(f"{text}: {one.text}", one.strength, call, one.swallowed, one.times) for one in inside
        ]


def _assertion(text: str, strength: float, node: ast.expr, swallowed: bool, times: int) -> Assertion:
    return Assertion(text, 0.0 if swallowed else strength, node.lineno, literals_in(node), swallowed, times)


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches failed assertions and does nothing that fails."""
    names = (
        {"BaseException"}
        if handler.type is None
        else {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)}
    )
    if not names & _SWALLOWS:
        return False
    speaks = (ast.Raise, ast.Assert)
    calls = {
        called_name(one)
        for statement in handler.body
        for one in ast.walk(statement)
        if isinstance(one, ast.Call)
    }
    return not any(isinstance(one, speaks) for s in handler.body for one in ast.walk(s)) and not any(
        name == "fail" or name.startswith("assert") or name == "exit" for name in calls
    )


def _mark_name(decorator: ast.expr) -> str:
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _skip_of(decorators: list[ast.expr]) -> tuple[str, bool]:
    """Why a test is not run, and whether only under a condition."""
    maybe = False
    for decorator in decorators:
        name = _mark_name(decorator)
        if name in {"skipIf", "skipif", "skipUnless"}:
            condition = decorator.args[0] if isinstance(decorator, ast.Call) and decorator.args else None
            if isinstance(condition, ast.Constant) and bool(condition.value) == (name != "skipUnless"):
                return name, False
            maybe = True
        elif name in _MARKS:
            return name, False
    return "", maybe


def _skip_inside(body: list[ast.stmt]) -> str:
    """A skip among the first statements of a test, outside any condition."""
    for statement in body:
        value = (
            statement.value
            if isinstance(statement, ast.Expr)
            else statement.exc
            if isinstance(statement, ast.Raise)
            else None
        )
        if isinstance(value, ast.Call) and called_name(value) in _SKIPS - {"importorskip"}:
            return called_name(value)
        if isinstance(value, ast.Call) and called_name(value) == "xfail":
            return "xfail"
    return ""


def _module_skip(tree: ast.Module) -> str:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets
        ):
            marks = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            if found := _skip_of(list(marks))[0]:
                return f"pytestmark {found}"
        if isinstance(node, ast.Assign) and ast.unparse(node).replace(" ", "") == "__test__=False":
            return "__test__ = False"
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and called_name(node.value) == "skip"
        ):
            return "skip of the module"
    return ""


def _class_off(node: ast.ClassDef) -> str:
    return next(
        ("__test__ = False" for one in node.body if ast.unparse(one).replace(" ", "") == "__test__=False"), ""
    )


def _cases(decorators: list[ast.expr]) -> int:
    """How many cases the parametrization names."""
    total = 1
    for decorator in decorators:
        if not isinstance(decorator, ast.Call) or _mark_name(decorator) not in {
            "parametrize",
            "expand",
            "params",
        }:
            continue
        given = [word.value for word in decorator.keywords if word.arg == "argvalues"] or decorator.args[-1:]
        rows = next((one for one in given if isinstance(one, ast.List | ast.Tuple)), None)
        total *= max(len(rows.elts), 1) if rows is not None else 1
    return total
