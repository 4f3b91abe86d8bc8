"""Product code that reaches for its judges, answers kept in tables, and old tests that were touched."""

from __future__ import annotations

import pytest

from proctor.proof.change import change_of
from proctor.proof.edited import broken_and_edited, lost_by_edit, only_adds_tests, passes_only_as_edited
from proctor.proof.hollow import find_hollow
from proctor.proof.reading import Reading
from proctor.proof.results import Reason

OLD = "def total(items):\n    return sum(items[1:])\n"
TESTS = {
    "tests/test_calc.py": "from calc import total\n\n\ndef test_sum():\n    assert total([1, 2, 3]) == 6\n"
}
JS_TESTS = {"tests/calc.test.js": "test('sum', () => { assert.strictEqual(total([1, 2, 3]), 6); });\n"}


def weights(
    path: str, before: str | None, after: str, tests: dict[str, str] | None = None
) -> set[tuple[str, str]]:
    """What is said of a change of one file."""
    found = find_hollow(change_of({path: (before, after)}), (), TESTS if tests is None else tests)
    return {(one.kind.value, one.weight.value) for one in found}


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("import unittest\nunittest.TestCase.assertEqual = None\n", "refutes"),
        ("import _pytest.runner as r\nr.call = None\n", "refutes"),
        ("import pytest\nsetattr(pytest, 'fail', print)\n", "refutes"),
        ("class A:\n    def __eq__(self, other):\n        return True\n", "refutes"),
        ("class A:\n    __eq__ = lambda *given: True\n", "refutes"),
        ("import sys\nif 'pytest' in sys.argv[0]:\n    x = 1\n", "refutes"),
        ("import os\nx = os.environ['PYTEST_ADDOPTS']\n", "refutes"),
        ("x = open('/run/proctor/out')\n", "refutes"),
        ("import inspect\nif any('test' in f.filename for f in inspect.stack()):\n    x = 1\n", "suspicious"),
        ("import os\nos._exit(0)\n", "suspicious"),
        ("from unittest.mock import ANY\nx = ANY\n", "suspicious"),
        ("from datetime import date\nif date.today() < date(2030, 1, 1):\n    x = 1\n", "suspicious"),
        ("import time\nEND = 1900000000\nif time.time() > END:\n    x = 1\n", "suspicious"),
        ("x = open('tests/test_calc.py').read()\n", "suspicious"),
    ],
)
def test_python_that_reaches_for_its_judges_is_seen(text: str, weight: str) -> None:
    """Each way once; what cannot be honest refutes."""
    assert ("knows it is tested", weight) in weights("calc.py", OLD, OLD + text)


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def __eq__(self, other):\n        return isinstance(other, A)\n",
        "import sys\nif len(sys.argv) > 1:\n    x = 1\n",
        "import sys\nsys.exit(2)\n",
        "from datetime import date\nif date.today() > start:\n    x = 1\n",
        "import time\nif time.time() - began > 30:\n    x = 1\n",
        "import unittest\nclass T(unittest.TestCase):\n    x = 1\n",
        "self_test = 'contest/entry.py'\n",
        "x = {'tests': 3}\n",
    ],
)
def test_ordinary_python_is_left_alone(text: str) -> None:
    """The outer marks alone say nothing."""
    assert not [one for one in weights("calc.py", OLD, OLD + text) if one[1] != "note"]


@pytest.mark.parametrize(
    ("path", "text", "weight"),
    [
        ("calc.js", "require('node:assert').strictEqual = () => {};\n", "refutes"),
        ("calc.js", "if (process.env.NODE_TEST_CONTEXT) x = 1;\n", "refutes"),
        ("calc.js", "globalThis.expect = () => ok;\n", "refutes"),
        ("calc.js", "if (process.argv[1].includes('jest')) x = 1;\n", "suspicious"),
        ("calc.js", "if (Date.now() < Date.parse('2030-01-01')) x = 1;\n", "suspicious"),
        ("calc.sh", "trap 'exit 0' EXIT\n", "suspicious"),
        ("calc.sh", "exit() { builtin exit 0; }\n", "suspicious"),
        ("calc.sh", '[ "$(date +%s)" -lt 1900000000 ] && echo 1\n', "suspicious"),
        ("sitecustomize.py", "x = 1\n", "suspicious"),
    ],
)
def test_other_languages_and_start_up_files_are_seen(path: str, text: str, weight: str) -> None:
    """JavaScript, shell, and what Python runs before anything else."""
    before = None if path.startswith("site") else "x = 0\n"
    assert ("knows it is tested", weight) in weights(path, before, (before or "") + text)


@pytest.mark.parametrize(
    "text", ["if (Date.now() - began > 1000) x = 1;\n", "assert.ok(total);\n", "const assert = (x) => x;\n"]
)
def test_ordinary_javascript_is_left_alone(text: str) -> None:
    """The same for the other language."""
    assert weights("calc.js", "x = 0;\n", "x = 0;\n" + text) == set()


@pytest.mark.parametrize(
    ("path", "text", "tests"),
    [
        ("calc.py", "K = {(1, 2, 3): 6}\n\n\ndef total(items):\n    return K.get(tuple(items), sum(items[1:]))\n", TESTS),
        ("calc.py", "K = {'1,2,3': 6}\n\n\ndef total(i):\n    return K[str(i)] if str(i) in K else sum(i)\n", TESTS),
        ("calc.py", "def total(i):\n    match i:\n        case [1, 2, 3]:\n          return 6\n    return sum(i)\n", TESTS),
        ("calc.js", "const K = { '1,2,3': 6 };\nfunction total(i) { return K[i.join()] ?? old(i); }\n", JS_TESTS),
        ("calc.js", "function total(i) { if (String(i) === '1,2,3') return 6;\n return old(i); }\n", JS_TESTS),
    ],
)  # fmt: skip
def test_answers_kept_for_the_tests_are_seen(path: str, text: str, tests: dict[str, str]) -> None:
    """Tables, patterns and joined inputs that hold just what a test asks for."""
    before = OLD if path.endswith(".py") else "function total(i) { return old(i); }\n"
    assert any(kind == "hard-coded" for kind, _weight in weights(path, before, text, tests))


def test_a_table_with_more_than_the_tests_ask_is_honest() -> None:
    """One entry that no test names, or nothing behind the table, and nothing is said."""
    more = (
        "K = {(1, 2, 3): 6, (4, 5): 9}\n\n\ndef total(items):\n    return K.get(tuple(items), sum(items))\n"
    )
    bare = "K = {(1, 2, 3): 6}\n\n\ndef total(items):\n    return K[tuple(items)]\n"
    for text in (more, bare):
        assert not any(kind == "hard-coded" for kind, _weight in weights("calc.py", OLD, text))


def test_the_command_that_judges_is_not_the_changes_to_choose() -> None:
    """An edit of `test` is suspicious, one that can never fail refutes, a first setting is nothing."""
    before = '[project]\ntest = "pytest"\n'
    assert ("check edited", "suspicious") in weights(
        "proctor.toml", before, '[project]\ntest = "pytest -k a"\n'
    )
    assert ("check edited", "refutes") in weights("proctor.toml", before, '[project]\ntest = "true"\n')
    assert weights("proctor.toml", "[project]\n", before) == set()


BASE = "import calc\n\n\ndef test_a():\n    assert calc.A == 1\n"


@pytest.mark.parametrize(
    ("path", "before", "after", "plain"),
    [
        ("tests/test_a.py", BASE, BASE + "\n\ndef test_b():\n    assert calc.B == 1\n", True),
        ("tests/test_a.py", BASE, "import os\n" + BASE, True),
        ("tests/test_a.py", None, BASE, True),
        ("tests/test_a.py", BASE, BASE.replace("== 1", "== 2"), False),
        ("tests/test_a.py", BASE, BASE + "\n\ncalc.A = 1\n", False),
        ("tests/test_a.py", BASE, BASE + "\n\ndef test_a():\n    pass\n", False),
        ("tests/test_a.py", None, BASE + "\n\ncalc.A = 1\n", False),
        ("tests/test_a.py", BASE, None, False),
        ("tests/conftest.py", None, "import pytest\n\n\n@pytest.fixture\ndef x():\n    return 1\n", True),
        ("tests/conftest.py", None, "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef x():\n    return 1\n", False),
        ("tests/conftest.py", None, "def pytest_runtest_setup(item):\n    pass\n", False),
        ("tests/data.json", None, "[1]", True),
        ("tests/data.json", "[1]", "[2]", False),
        ("tests/a.test.js", "test('a', f);\n", "test('a', f);\ntest('b', g);\n", True),
        ("tests/a.test.js", "test('a', f);\n", "global.f = 1;\ntest('a', f);\n", False),
        ("tests/a.test.js", "test('a', f);\n", "test('a', g);\n", False),
        ("tests/a.rs", "#[test]\nfn a() {}\n", "#[test]\nfn a() {}\n\n#[test]\nfn b() {}\n", True),
        ("tests/a.rs", "#[test]\nfn a() {}\n", "#[test]\n#[ignore]\nfn a() {}\n", False),
        ("ATest.java", "@Test\nvoid a() {}\n", "@Disabled\n@Test\nvoid a() {}\n", False),
    ],
)  # fmt: skip
def test_plain_additions_are_told_from_edits_of_what_judged_before(
    path: str, before: str | None, after: str | None, plain: bool
) -> None:
    """Only where nothing of the old tests was touched is no further run needed."""
    assert only_adds_tests(change_of({path: (before, after)}), [path]) is plain


def test_a_test_that_passes_only_as_edited_is_named() -> None:
    """Red at the base, red with the change under the old tests, green with the new ones."""
    red = Reading("pytest", frozenset({"ok"}), {"a": Reason.ASSERTION, "b": Reason.ASSERTION}, whole=True)
    old = Reading("pytest", frozenset({"ok", "a"}), {"b": Reason.ASSERTION}, whole=True)
    after = Reading("pytest", frozenset({"ok", "a", "b"}), whole=True)
    assert passes_only_as_edited(red, old, after) == ["b"]
    code = Reading("exit code", reason=Reason.ASSERTION)
    assert passes_only_as_edited(code, code, Reading("exit code")) == ["the command"]
    assert passes_only_as_edited(code, Reading("exit code"), Reading("exit code")) == []


def test_runs_tell_what_an_edit_took_away() -> None:
    """Skipped now in any language; gone only where no text was compared; nothing where not every test is named."""
    base = Reading("cargo", frozenset({"a", "b", "c"}), whole=True)
    after = Reading("cargo", frozenset({"c", "new"}), skipped=frozenset({"b"}), whole=True)
    assert lost_by_edit(base, after, unread=True) == (["b"], ["a"])
    assert lost_by_edit(base, after, unread=False) == (["b"], [])
    assert lost_by_edit(base, Reading("cargo", frozenset({"c"})), unread=True) == ([], [])


def test_a_test_that_the_change_breaks_and_edits_is_named() -> None:
    """Green at the base, red with the change as it was, green as it was edited."""
    base = Reading("cargo", frozenset({"a", "b"}), whole=True)
    old = Reading("cargo", frozenset({"b"}), {"a": Reason.ASSERTION}, whole=True)
    after = Reading("cargo", frozenset({"a", "b", "new"}), whole=True)
    assert broken_and_edited(base, old, after) == ["a"]
    assert broken_and_edited(base, base, after) == []
