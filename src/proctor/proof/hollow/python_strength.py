"""How much a Python assertion demands: 3 an exact value, 2 truth or membership, 1 almost anything, 0 nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from proctor.proof.hollow.model import graded

__all__ = ["called_name", "literals_in", "parts_of", "raises_strength", "strength_of", "unittest_strength"]

_ANYTHING: Final = frozenset({"Exception", "BaseException"})
_UNITTEST: Final = graded(
    (3.0, "Equal Is IsNone CountEqual ListEqual DictEqual SetEqual TupleEqual MultiLineEqual SequenceEqual"),
    (2.8, "AlmostEqual"),
    (2.5, "Regex"),
    (2.0, "In Logs Warns DictContainsSubset"),
    (1.5, "Greater GreaterEqual Less LessEqual IsInstance"),
    (1.0, "NotIn NotEqual IsNot IsNotNone NotIsInstance NotRegex NoLogs NotAlmostEqual"),
)
_WEAK_CALLS: Final = {"isinstance": 1.5, "issubclass": 1.5, "hasattr": 1.0, "callable": 1.0, "any": 1.5}
_ORDER: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def called_name(call: ast.Call) -> str:
    """The last part of what is called."""
    return (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )


def literals_in(node: ast.AST) -> frozenset[str]:
    """All plain values that stand in a piece of code."""
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and one.value is not Ellipsis:
            found.add(repr(one.value))
        elif (
            isinstance(one, ast.UnaryOp)
            and isinstance(one.op, ast.USub)
            and isinstance(one.operand, ast.Constant)
        ):
            found.add(f"-{one.operand.value!r}")
    return frozenset(found)


def parts_of(expression: ast.expr) -> Iterator[ast.expr]:
    """An `and` is as many assertions as it has parts."""
    if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.And):
        for value in expression.values:
            yield from parts_of(value)
    else:
        yield expression


def strength_of(node: ast.expr) -> float:
    """How much the truth of an expression demands."""
    if not _depends(node):
        return 0.0 if not _false(node) else 2.0  # `assert False` marks a place that must not be reached
    if isinstance(node, ast.BoolOp):
        each = [strength_of(value) for value in node.values]
        return min(each) if isinstance(node.op, ast.Or) else sum(each)
    if isinstance(node, ast.Compare):
        return _comparison(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return 2.0 if not isinstance(node.operand, ast.Compare) else 1.0
    if isinstance(node, ast.Call):
        return _WEAK_CALLS.get(called_name(node), 2.0)
    return 2.0 if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Await) else 1.0


def _depends(node: ast.AST) -> bool:
    """Whether anything but constants stands in it."""
    return any(isinstance(one, ast.Name | ast.Call | ast.Attribute | ast.Await) for one in ast.walk(node))


def _false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _comparison(node: ast.Compare) -> float:
    sides = [node.left, *node.comparators]
    return sum(_one(op, sides[place], sides[place + 1]) for place, op in enumerate(node.ops))


def _one(op: ast.cmpop, left: ast.expr, right: ast.expr) -> float:
    if ast.dump(left) == ast.dump(right):
        return 0.0
    constant = next((side.value for side in (left, right) if isinstance(side, ast.Constant)), ...)
    if isinstance(op, ast.Eq | ast.Is):
        if constant is True or constant is False:
            return 2.0
        loose = any(
            isinstance(one, ast.Call) and called_name(one) == "approx"
            for side in (left, right)
            for one in ast.walk(side)
        )
        return 2.8 if loose else 3.0
    if isinstance(op, ast.In):
        return 2.0
    return 1.5 if isinstance(op, _ORDER) else 1.0


def unittest_strength(call: ast.Call) -> float | None:
    """How much `self.assertX(…)` and the like demand; None for a call that asserts nothing."""
    name = called_name(call)
    if not name.startswith("assert"):
        return 2.0 if name == "fail" else None
    kind = name.removeprefix("assert").removeprefix("_")
    if kind in {"True", "False"} and call.args:
        return strength_of(call.args[0])
    if kind.startswith("Raises"):
        return raises_strength(call.args[:1], regex="Regex" in kind)
    if kind in {"Equal", "Is"} and len(call.args) >= 2 and ast.dump(call.args[0]) == ast.dump(call.args[1]):
        return 0.0
    if kind in _UNITTEST and call.args and not any(_depends(argument) for argument in call.args):
        return 0.0
    if kind.startswith(("not_called", "called_once_with", "called_with", "has_calls", "any_call")):
        return 3.0
    return _UNITTEST.get(kind, 1.0 if kind.startswith("called") else 3.0)


def raises_strength(expected: list[ast.expr], *, regex: bool) -> float:
    """A named exception demands more than any exception; a message more still."""
    names = {
        one.id if isinstance(one, ast.Name) else one.attr
        for e in expected
        for one in ast.walk(e)
        if isinstance(one, ast.Name | ast.Attribute)
    }
    return (1.0 if names & _ANYTHING or not names else 3.0) + (1.0 if regex else 0.0)
