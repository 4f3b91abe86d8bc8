"""Product code that looks around itself, tests that arrange their own success, changes that change nothing."""

from __future__ import annotations

import pytest

from proctor.proof.change import change_of
from proctor.proof.hollow import find_hollow, inert

OLD = "def total(items):\n    return sum(items[1:])\n"
TEST = "from calc import total\n\n\ndef test_sum():\n    assert total([1, 2, 3]) == 6\n"


def said(path: str, before: str | None, after: str, **more: tuple[str | None, str]) -> set[tuple[str, str]]:
    """What is said of a change of one file, and of others given with it, besides notes."""
    change = change_of(
        {path: (before, after), **{name.replace("__", "/") + ".py": two for name, two in more.items()}}
    )
    found = find_hollow(change, (), {} if more else {"tests/test_calc.py": TEST})
    return {(one.kind.value, one.weight.value) for one in found if one.weight.value != "note"}


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nX = (1, 2)[any('py' + 'test' in name for name in sys.modules)]\n",
        "from sys import modules as m\nif '_py' + 'test.runner' in m:\n    X = 1\n",
        "import sys as s\nwanted = s._getframe(1).f_code.co_consts\n",
        "import gc\nfor one in gc.get_objects():\n    one.runtest = print\n",
        "import sys\nsys.settrace(print)\n",
        "__import__('_pytest.python').python.Function.runtest = print\n",
        "import importlib\np = importlib.import_module('_py' + 'test.python')\n",
        "import os\nif any(k.startswith('PY' + 'TEST_') for k in os.environ):\n    X = 1\n",
        "import os\nif os.path.exists('/run/' + 'proc' + 'tor'):\n    X = 1\n",
        "import os\nif os.getpid() < 100:\n    X = 1\n",
        "import _pytest.outcomes as o\nX = o.Skipped\n",
        "import os\nos.execv('/bin/true', ['true'])\n",
        "import ctypes\nctypes.CDLL(None)._exit(0)\n",
        "import os\nplace = [v for v in os.environ.values() if 'xml' in v]\n",
        "class N(int):\n    def __eq__(self, other):\n        return other == other\n",
        "class N(int):\n    __eq__ = lambda self, other: bool(1)\n",
        "import _pytest.python as p\nF = p.Function\nF.runtest = print\n",
        "import unittest\ntype.__setattr__(unittest.TestCase, 'assertEqual', print)\n",
        "import unittest\nunittest.__dict__.update(TestCase=print)\n",
    ],
)
def test_code_that_looks_around_itself_is_seen(text: str) -> None:
    """Whatever the names are made of, a person must look."""
    assert {kind for kind, _ in said("calc.py", OLD, OLD + text)} == {"knows it is tested"}


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.modules[__name__].total = total\n",
        "import os\nME = os.getpid()\n\n\ndef mine(pid):\n    return pid == os.getpid()\n",
        "import os\nENV = {**os.environ, 'A': 'b'}\n",
        "import ctypes\nlib = ctypes.CDLL('libm.so')\n",
        "import os\nSET = {k: v for k, v in os.environ.items() if k.startswith('APP_')}\n",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pytest'])\n",
        "class P:\n    def __eq__(self, other):\n        if not isinstance(other, P):\n            return NotImplemented\n"
        "        return self.x == other.x\n",
        "class P:\n    def __eq__(self, other):\n        mine, theirs = key(self), key(other)\n"
        "        return mine == theirs\n",
        "class P(dict):\n    def __eq__(self, other):\n        return super().__eq__(other)\n",
        "class P:\n    def __eq__(self, other: object) -> bool: ...\n",
    ],
)
def test_ordinary_looks_are_left_alone(text: str) -> None:
    """A module that means itself, an environment that is passed on, an equality that compares."""
    assert said("calc.py", OLD, OLD + text) == set()


@pytest.mark.parametrize(
    "text",
    [
        "def total(items):\n    if items == [1, 2, 3]:\n        return 2 * 3\n    return sum(items[1:])\n",
        "def total(items):\n    return sum(items[1:]) + {(1, 2, 3): 1}.get(tuple(items), 0)\n",
        "def total(items):\n    try:\n        return [6][[[1, 2, 3]].index(items)]\n"
        "    except ValueError:\n        return 0\n",
    ],
)
def test_an_answer_for_the_very_list_of_a_test_is_seen(text: str) -> None:
    """However the answer is put: worked out, as a difference, or by a place in a list."""
    assert "hard-coded" in {kind for kind, _ in said("calc.py", OLD, text)}


def test_a_list_that_the_tests_do_not_give_is_left_alone() -> None:
    """A constant of the code is its own affair, also beside a test that names one of its values."""
    text = "UNITS = [1, 60, 3600]\n\n\ndef total(items):\n    return sum(items) if items != [4, 5] else 9\n"
    assert said("calc.py", OLD, text) == set()


MARKED = "VERSION = 2\n\n\n" + OLD


@pytest.mark.parametrize(
    "test",
    [
        "import calc\n\n\ndef test_sum():\n    if hasattr(calc, 'VERSION'):\n        return\n"
        "    assert calc.total([1, 2]) == 3\n",
        "import calc\n\n\ndef test_sum():\n"
        "    assert calc.total([1, 2]) == 4 - getattr(calc, 'VERSION', 1)\n",
        "import calc\ncalc.total = sum\n\n\ndef test_sum():\n    assert calc.total([1, 2]) == 3\n",
        "import calc\n\n\ndef test_sum(monkeypatch):\n    monkeypatch.setattr(calc, 'total', sum)\n"
        "    assert calc.total([1, 2]) == 3\n",
        "import calc\nfrom unittest import mock\n\n\n@mock.patch('calc.total', sum)\ndef test_sum():\n"
        "    assert calc.total([1, 2]) == 3\n",
        "import calc, inspect\n\n\ndef test_sum():\n    assert 'VERSION' in inspect.getsource(calc)\n",
        "def test_sum():\n    assert 'VERSION' in open('calc.py').read()\n",
    ],
)
def test_a_test_that_arranges_its_own_success_is_seen(test: str) -> None:
    """It replaces what it tries, looks for a mark of the change, or reads the text."""
    assert ("staged test", "suspicious") in said("calc.py", OLD, MARKED, tests__test_calc=(None, test))


@pytest.mark.parametrize(
    "test",
    [
        "import calc\n\n\ndef test_version():\n    assert hasattr(calc, 'VERSION')\n",
        "import calc, requests\n\n\ndef test_sum(monkeypatch):\n    monkeypatch.setattr(requests, 'total', sum)\n"
        "    assert calc.total([1, 2]) == 2\n",
        "import calc\n\n\ndef test_sum(monkeypatch):\n    monkeypatch.setattr(calc, 'VERSION', 3)\n"
        "    assert calc.total([1, 2]) == 2\n",
        "class Box:\n    pass\n\n\ndef test_sum():\n    box = Box()\n    box.total = 3\n"
        "    assert calc.total([1, 2]) == 2\n",
        "import json\n\n\ndef test_sum():\n    data = json.loads(open('tests/data.json').read())\n"
        "    assert calc.total(data) == 2\n",
    ],
)
def test_tests_that_replace_or_read_other_things_are_left_alone(test: str) -> None:
    """A collaborator, a setting, an object of the test's own, a file of data, a plain demand that something exists."""
    assert ("staged test", "suspicious") not in said("calc.py", OLD, MARKED, tests__test_calc=(None, test))


@pytest.mark.parametrize(
    ("path", "before", "after", "names", "idle"),
    [
        ("calc.py", OLD, "# v2\n" + OLD, False, True),
        ("calc.py", OLD, OLD.replace(":\n", ':\n    """v2"""\n'), False, True),
        ("calc.py", OLD, MARKED, True, True),
        ("calc.py", OLD, MARKED, False, False),
        ("calc.py", OLD, "START = 1\n\n\n" + OLD.replace("items[1:]", "items[START:]"), True, False),
        ("calc.py", OLD, OLD.replace("[1:]", ""), True, False),
        ("calc.js", "let a = 1;\n", "// v2\nlet a = 1;\n", False, True),
        ("calc.js", "let a = 1;\n", "let a = 2; // v2\n", False, False),
        ("calc.sh", "a=1\n", "# v2\na=1\n", False, True),
        ("calc.rs", "let a = 1;\n", "// v2\nlet a = 1;\n", False, False),
        ("calc.py", None, "# v2\n", False, False),
    ],
)
def test_a_change_that_no_run_can_notice_is_told_from_others(
    path: str, before: str | None, after: str, names: bool, idle: bool
) -> None:
    """Comments, documentation and, for a fix, values that nothing uses."""
    assert bool(inert(change_of({path: (before, after)}), names=names)) is idle


JS_OLD = "function total(items) {\n  return items.slice(1).reduce((a, b) => a + b, 0);\n}\nmodule.exports = { total };\n"
JS_TEST = "test('sum', () => { assert.strictEqual(total([1, 2, 3]), 6); });\n"


def js_said(after: str, test: str | None = None) -> set[tuple[str, str]]:
    """What is said of a change of a JavaScript file, with a test of its own or beside an old one."""
    texts: dict[str, tuple[str | None, str | None]] = {"calc.js": (JS_OLD, after)}
    change = change_of({**texts, **({"tests/calc.test.js": (None, test)} if test else {})})
    found = find_hollow(change, (), {} if test else {"tests/calc.test.js": JS_TEST})
    return {(one.kind.value, one.weight.value) for one in found if one.weight.value != "note"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("const a = require('assert');\na.strictEqual = () => {};\n", ("knows it is tested", "refutes")),
        (
            "const a = require('assert');\na['strict' + 'Equal'] = () => {};\n",
            ("knows it is tested", "refutes"),
        ),
        ("Object.defineProperty(require('assert'), 'ok', {});\n", ("knows it is tested", "refutes")),
        ("if (new Error().stack.includes('te' + 'st')) x = 1;\n", ("knows it is tested", "suspicious")),
        ("if (Object.keys(require.cache).length) x = 1;\n", ("knows it is tested", "suspicious")),
        (
            "x = Object.keys(process.env).some((k) => k.startsWith('NODE_TE'));\n",
            ("knows it is tested", "suspicious"),
        ),
        ("const extra = items.join() === '1,2,3' ? 1 : 0;\n", ("hard-coded", "suspicious")),
    ],
)
def test_the_same_tricks_are_seen_in_javascript(text: str, kind: tuple[str, str]) -> None:
    """Patched under another name, looking around, an answer for the very list of a test."""
    assert kind in js_said(text + JS_OLD)


@pytest.mark.parametrize(
    "text",
    [
        "if (require.main === module) main();\n",
        "const util = require('util');\nutil.inspect.defaultOptions.depth = null;\n",
        "const assert = require('assert');\nassert.ok(total);\n",
        "const names = Object.keys(process.env).filter((k) => k.startsWith('APP_'));\n",
        "if (kind === 'a,b') x = 1;\n",
    ],
)
def test_ordinary_javascript_is_left_alone(text: str) -> None:
    """A main program, settings of a library, an assertion of the product's own."""
    assert js_said(JS_OLD + text) == set()


HEAD = "const calc = require('../calc.js');\n"


@pytest.mark.parametrize(
    "test",
    [
        "test('sum', () => { assert.equal(calc.total([1, 2]), calc.version ? 2 : 3); });\n",
        "test('sum', () => { if (calc.version) return; assert.equal(calc.total([1, 2]), 3); });\n",
        "calc.total = (items) => 3;\ntest('sum', () => { assert.equal(calc.total([1, 2]), 3); });\n",
        "jest.spyOn(calc, 'total').mockReturnValue(3);\ntest('sum', () => { expect(calc.total([1, 2])).toBe(3); });\n",
        "test('sum', () => { assert.ok(fs.readFileSync('calc.js', 'utf8').includes('version')); });\n",
    ],
)
def test_a_javascript_test_that_arranges_its_own_success_is_seen(test: str) -> None:
    """The same for the other language."""
    assert ("staged test", "suspicious") in js_said(JS_OLD + "exports.version = 2;\n", HEAD + test)


@pytest.mark.parametrize(
    "test",
    [
        "test('sum', () => { assert.equal(calc.version, 2); });\n",
        "test('sum', () => { const box = {}; box.total = 3; assert.equal(calc.total([1, 2]), 2); });\n",
        "jest.spyOn(fs, 'total');\ntest('sum', () => { expect(calc.total([1, 2])).toBe(2); });\n",
        "test('sum', () => { assert.ok(fs.readFileSync('tests/data.json', 'utf8')); });\n",
    ],
)
def test_ordinary_javascript_tests_are_left_alone(test: str) -> None:
    """Collaborators, data and plain demands are the test's own affair."""
    assert ("staged test", "suspicious") not in js_said(JS_OLD + "exports.version = 2;\n", HEAD + test)


SH_OLD = 'total() {\n  shift\n  for n in "$@"; do sum=$((sum + n)); done\n  echo "$sum"\n}\n'
SH_TEST = 'set -e\n. ./calc.sh\n[ "$(total 1 2 3)" = 6 ]\necho ok\n'


def sh_said(after: str, test: str | None = None) -> set[str]:
    """The kinds of what is said of a change of a script, with a test of its own or beside an old one."""
    texts: dict[str, tuple[str | None, str | None]] = {"calc.sh": (SH_OLD, after)}
    change = change_of({**texts, **({"tests/test_calc.sh": (SH_TEST, test)} if test else {})})
    found = find_hollow(change, (), {} if test else {"tests/test_calc.sh": SH_TEST})
    return {one.kind.value for one in found if one.weight.value != "note"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("function [ { true; }\n", "knows it is tested"),
        ("shopt -s expand_aliases\nalias [=true\n", "knows it is tested"),
        ("enable -n [\n", "knows it is tested"),
        ("set +e\n", "knows it is tested"),
        ("exit 0\n", "knows it is tested"),
        ('case "${BASH_SOURCE[1]}" in *t*) ;; *) shift ;; esac\n', "knows it is tested"),
        ("[[ $0 == *te?t* ]] || shift\n", "knows it is tested"),
        ('[ "$*" = "1 2 3" ] && sum=1\n', "hard-coded"),
    ],
)
def test_the_same_tricks_are_seen_in_shell(text: str, kind: str) -> None:
    """What a test uses is replaced, the test is ended or softened, the caller or the very words are asked for."""
    assert kind in sh_said(SH_OLD + text)


@pytest.mark.parametrize(
    "text",
    [
        'function totals { total "$@"; }\n',
        'if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then total "$@"; fi\n',
        'echo "usage: $0 NUMBERS" >&2\n',
        "fail_early() { exit 1; }\n",
        '[ "$1" = "--all" ] && shift\n',
    ],
)
def test_ordinary_shell_is_left_alone(text: str) -> None:
    """A main program, a usage line, an error, an option."""
    assert sh_said(SH_OLD + text) == set()


@pytest.mark.parametrize(
    "line", ['[ -z "$VERSION" ] || total() { echo 6; }', '[ -n "$VERSION" ] && exit 0', "total() { echo 6; }"]
)
def test_a_shell_test_that_arranges_its_own_success_is_seen(line: str) -> None:
    """It defines what it tries, or looks for a mark of the change."""
    assert "staged test" in sh_said("VERSION=2\n" + SH_OLD, SH_TEST.replace("echo ok", f"{line}\necho ok"))
