"""Answers kept in a table that holds nothing but what the tests ask, with the old code behind it for everything else.

An honest table has entries that no test names, or no code to fall back to; both are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from proctor.proof.hollow.model import plain_literal
from proctor.proof.hollow.python_strength import literals_in

__all__ = ["python_inputs", "python_tables", "script_tables", "spread"]

Rows = Sequence[frozenset[str]]
_LITERAL: Final = r"(?:-?\d+(?:\.\d+)?|\"[^\"\n]*\"|'[^'\n]*')"
_OBJECT: Final = re.compile(r"(?:const|let|var)\s+(?P<name>\w+)\s*=\s*\{(?P<body>[^{}]+)\}")
_ENTRY: Final = re.compile(rf"(?P<key>[\w$]+|{_LITERAL})\s*:\s*(?P<value>{_LITERAL})\s*(?:,|$)")
_FALLBACK: Final = r"\[[^\]\n]+\]\s*(?:\?\?|\|\|)\s*(?!{literal}\s*[;,)])"


def spread(literal: str) -> frozenset[str]:
    """The values inside a text that joins them ('1,2,3'), in one spelling."""
    inner = literal[1:-1] if literal[:1] in "\"'" else literal
    parts = [part.strip(" []()\"'") for part in re.split(r"[,;|]", inner)]
    return frozenset(
        plain_literal(part) if re.fullmatch(r"-?\d+(?:\.\d+)?", part) else repr(part)
        for part in parts
        if part
    )


def _asked(key: frozenset[str], answer: Iterable[str], rows: Rows) -> bool:
    return bool(key) and any({*key, *answer} <= row for row in rows)


def python_tables(tree: ast.Module, rows: Rows) -> Iterator[tuple[int, str]]:
    """Tables of a module whose every entry is a test's, with code to fall back to: line and name."""
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict) or not node.value.keys:
            continue
        pairs = list(zip(node.value.keys, node.value.values, strict=True))
        if not all(key is not None and _pair_asked(key, value, rows) for key, value in pairs):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and _falls_back(tree, target.id):
                yield node.lineno, target.id


def python_inputs(tree: ast.Module, bodies: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lists that a function asks for and that a test gives it, element by element the same: line and text."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    given = _given(bodies, {node.name for node in functions})
    for node in (one for function in functions for one in ast.walk(function)) if given else ():
        sides: list[ast.expr | None] = []
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            sides = [side for side in (node.left, *node.comparators) if _listed(side) in given]
        elif isinstance(node, ast.Dict):
            sides = list(node.keys)
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            sides = list(node.elts)
        if sides and all(side is not None and _listed(side) in given for side in sides):
            yield getattr(node, "lineno", 0), ast.unparse(node)[:60]


def _given(bodies: Iterable[str], functions: set[str]) -> set[str]:
    """The lists of two values or more that tests give to these functions."""
    found: set[str] = set()
    for body in bodies:
        try:
            calls = [node for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Call)]
        except (SyntaxError, ValueError, RecursionError):
            continue
        for call in calls:
            name = ast.unparse(call.func).rsplit(".", 1)[-1]
            if name in functions:
                found |= {_listed(one) for one in (*call.args, *(word.value for word in call.keywords))}
    return found - {""}


def _listed(node: ast.expr) -> str:
    """A list of plain values in one spelling; nothing for other things and for lists that anybody may mean."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ""
    if (
        not isinstance(value, list | tuple)
        or len(value) < 2
        or set(map(repr, value)) <= {"0", "1", "''", "None"}
    ):
        return ""
    return repr(list(value))


def _pair_asked(key: ast.expr, value: ast.expr, rows: Rows) -> bool:
    answer = literals_in(value)
    return _asked(literals_in(key), answer, rows) or _asked(spread(_text(key)), answer, rows)


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _falls_back(tree: ast.Module, name: str) -> bool:
    """`NAME.get(x, something worked out)`, or `if x in NAME` in a function that goes on otherwise."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            own = isinstance(node.func.value, ast.Name) and node.func.value.id == name
            if own and len(node.args) == 2 and not isinstance(node.args[1], ast.Constant):
                return True
        if isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Compare):
            side = node.test.comparators[0]
            if (
                isinstance(node.test.ops[0], ast.In | ast.NotIn)
                and isinstance(side, ast.Name)
                and side.id == name
            ):
                return True
    return False


def script_tables(text: str, rows: Rows) -> Iterator[tuple[int, str]]:
    """The same for JavaScript."""
    for found in _OBJECT.finditer(text):
        entries = list(_ENTRY.finditer(found["body"]))
        if not entries or not all(_entry_asked(one, rows) for one in entries):
            continue
        behind = re.escape(found["name"]) + _FALLBACK.replace("{literal}", _LITERAL)
        if re.search(behind, text):
            yield text.count("\n", 0, found.start()) + 1, found["name"]


def _entry_asked(entry: re.Match[str], rows: Rows) -> bool:
    answer = [plain_literal(entry["value"])]
    key = entry["key"]
    return _asked(frozenset({plain_literal(key)}), answer, rows) or _asked(spread(key), answer, rows)
