"""Sizes and shapes that keep the code readable; each rule is a test so that it cannot drift."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest

from tests.layers.tree import PACKAGE, ROOT, functions, modules, parse

MAX_FILE = 500
MAX_FUNCTION = 60
MAX_MEDIAN = 10

# The named boundaries: CLI main, request or frame handler, worker loop, driver. Each has a reason.
BROAD_EXCEPTS = {
    "agents/model_agent.py",  # driver: whatever a model's SDK raises has one of our names, and the turn an end
    "cli/main.py",  # every failure becomes one sentence
    "gate/gate.py",  # driver: a tool's failure ends its own call, which is settled whatever it raised
    "engine/attempts.py",  # worker loop: a driver's bug ends its attempt, seen and charged, not the executor
    "engine/desk.py",  # worker loop: one plan's or chat's trouble leaves it as it stands, not the executor
    "engine/executor.py",  # worker loop: a defect in looking does not stop the agents that run
    "engine/runtime.py",  # worker loop: one claimed job that cannot begin does not keep the others waiting
    "engine/supervisor.py",  # worker loop and request handler: one caller's mistake is its own
    "server/mcp_calls.py",  # request handler: one call's failure is told to its caller, the server goes on
    "server/socket.py",  # frame handler: one message's failure is its own, never the connection's
    "tools/jobs.py",  # driver: whatever ends a background command, its row says that it has ended
    "trace/batches.py",  # worker loop: one job's failure is its caller's
    "trace/writer.py",  # worker loop: a failed batch fails its waiters, not the thread
}


@pytest.mark.parametrize(
    "path", [*modules(PACKAGE), *modules(ROOT / "tests")], ids=lambda p: str(p.relative_to(ROOT))
)
def test_files_stay_readable(path: Path) -> None:
    """No file grows past 500 lines."""
    assert len(path.read_text().splitlines()) <= MAX_FILE


@pytest.mark.parametrize("path", modules(PACKAGE), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_functions_stay_short(path: Path) -> None:
    """No function grows past 60 lines."""
    long = {f.name: f.end_lineno - f.lineno + 1 for f in functions(path) if f.end_lineno}
    assert {name: size for name, size in long.items() if size > MAX_FUNCTION} == {}


def test_median_function_is_under_ten_lines() -> None:
    """Most functions do one thing."""
    sizes = [
        f.end_lineno - f.lineno + 1 for path in modules(PACKAGE) for f in functions(path) if f.end_lineno
    ]
    assert statistics.median(sizes) <= MAX_MEDIAN


def test_broad_excepts_stand_only_at_the_named_boundaries() -> None:
    """`except Exception` outside the list hides defects."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in modules(PACKAGE)
        if any(_broad(n) for n in ast.walk(parse(path)))
    }
    assert found - BROAD_EXCEPTS == set()


def _broad(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    ends = node.body[-1]
    cleans_up = (
        isinstance(ends, ast.Raise) and ends.exc is None
    )  # takes back what it began and passes the error on
    return (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}) and not cleans_up


def test_every_test_asserts_something_and_says_what_it_guarantees() -> None:
    """A test without an assertion cannot fail, one without a sentence cannot be judged."""
    mute = []
    for path in modules(ROOT / "tests"):
        for function in functions(path):
            if not function.name.startswith("test_"):
                continue
            body = ast.unparse(function)
            speaks = any(word in body for word in ("assert", "raises", "expect", "check(", "verify("))
            if not speaks or not ast.get_docstring(function):
                mute.append(f"{path.name}:{function.name}")
    assert mute == []
