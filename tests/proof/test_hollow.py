"""Hollow changes are found with file, line and reason; honest rearrangements of tests are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.change import change_of
from proctor.proof.hollow import HollowKind as Kind
from proctor.proof.hollow import HollowWeight, find_hollow, read_tests, worst

REFUTES, SUSPICIOUS = HollowWeight.REFUTES, HollowWeight.SUSPICIOUS
PY = "tests/test_calc.py"
JS = "src/calc.test.js"
SH = "tests/calc_test.sh"

PY_BASE = """
import pytest
from calc import add, mul, parse


def test_add():
    assert add(2, 3) == 5
    assert add(-4, 4) == 0


def test_mul():
    assert mul(6, 7) == 42


def test_parse_refuses():
    with pytest.raises(ValueError, match="empty"):
        parse("")
"""
JS_BASE = """
const { add, mul } = require('./calc');
describe('calc', () => {
  it('adds', () => {
    expect(add(2, 3)).toBe(5);
    expect(add(-4, 4)).toEqual(0);
  });
  it('multiplies', () => { expect(mul(6, 7)).toBe(42); });
});
"""
SH_BASE = """#!/bin/bash
set -e
test_add() {
  [ "$(./add 2 3)" = "5" ]
  [ "$(./add 6 7)" -eq 13 ]
}
test_usage() {
  ./add | grep -q usage
}
test_add
test_usage
"""


def findings(path: str, before: str | None, after: str | None) -> list[tuple[Kind, HollowWeight]]:
    """What is found in a change of one file, notes left out."""
    found = find_hollow(change_of({path: (before, after)}))
    assert all(one.file == path and one.why for one in found)
    return [(one.kind, one.weight) for one in found if one.weight is not HollowWeight.NOTE]


def edited(text: str, *pairs: str) -> str:
    """The text with some parts replaced; every part must be there."""
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    return text


MUL = "def test_mul():\n    assert mul(6, 7) == 42\n"
TRIED = "    try:\n        assert mul(6, 7) == 42\n    except AssertionError:\n        pass"
SUPPRESSED = "    with contextlib.suppress(Exception):\n        assert mul(6, 7) == 42"
HOLLOW = [
    (PY, ("def test_mul():\n    assert mul(6, 7) == 42\n", ""), Kind.TEST_DELETED),
    (PY, ("def test_mul", "def check_mul"), Kind.TEST_DELETED),
    (PY, ("    assert add(-4, 4) == 0\n", ""), Kind.TEST_WEAKENED),
    (PY, ("mul(6, 7) == 42", "mul(6, 7)"), Kind.TEST_WEAKENED),
    (PY, ("mul(6, 7) == 42", "mul(6, 7) is not None"), Kind.TEST_WEAKENED),
    (PY, ("mul(6, 7) == 42", "mul(6, 7) in (41, 42, 43)"), Kind.TEST_WEAKENED),
    (PY, ("mul(6, 7) == 42", "mul(6, 7) == 42 or True"), Kind.TEST_WEAKENED),
    (PY, ("assert mul(6, 7) == 42", "assert True"), Kind.TEST_WEAKENED),
    (PY, ("assert mul(6, 7) == 42", "x = mul(6, 7)\n    assert x == x"), Kind.TEST_WEAKENED),
    (PY, ("    assert mul(6, 7) == 42", "    return\n    assert mul(6, 7) == 42"), Kind.TEST_WEAKENED),
    (PY, ("    assert mul(6, 7) == 42", "    if False:\n        assert mul(6, 7) == 42"), Kind.TEST_WEAKENED),
    (PY, ("    assert mul(6, 7) == 42", TRIED), Kind.SWALLOWED_ASSERTION),
    (PY, ("import pytest", "import contextlib, pytest", "    assert mul(6, 7) == 42",
          SUPPRESSED), Kind.SWALLOWED_ASSERTION),
    (PY, ("ValueError, match=\"empty\"", "Exception"), Kind.TEST_WEAKENED),
    (PY, ("ValueError, match=\"empty\"", "ValueError"), Kind.TEST_WEAKENED),
    (PY, ("def test_mul", "@pytest.mark.skip\ndef test_mul"), Kind.TEST_SKIPPED),
    (PY, ("def test_mul", "@pytest.mark.xfail(reason='later')\ndef test_mul"), Kind.TEST_SKIPPED),
    (PY, ("def test_mul", "@pytest.mark.skipif(True, reason='x')\ndef test_mul"), Kind.TEST_SKIPPED),
    (PY, ("def test_mul():\n", "def test_mul():\n    pytest.skip('later')\n"), Kind.TEST_SKIPPED),
    (PY, ("import pytest\n", "import pytest\npytestmark = pytest.mark.skip\n"), Kind.TEST_SKIPPED),
    (PY, (MUL, MUL + "\n\ndef test_mul():\n    pass\n"), Kind.TEST_WEAKENED),
    (JS, ("  it('multiplies', () => { expect(mul(6, 7)).toBe(42); });\n", ""), Kind.TEST_DELETED),
    (JS, ("it('multiplies'", "it.skip('multiplies'"), Kind.TEST_SKIPPED),
    (JS, ("it('multiplies'", "xit('multiplies'"), Kind.TEST_SKIPPED),
    (JS, ("it('adds'", "it.only('adds'"), Kind.TEST_SKIPPED),
    (JS, ("describe('calc'", "describe.skip('calc'"), Kind.TEST_SKIPPED),
    (JS, ("toBe(42)", "toBeDefined()"), Kind.TEST_WEAKENED),
    (JS, ("expect(mul(6, 7)).toBe(42)", "expect(true).toBe(true)"), Kind.TEST_WEAKENED),
    (JS, ("expect(mul(6, 7)).toBe(42)", "expect(mul(6, 7))"), Kind.TEST_WEAKENED),
    (JS, ("toBe(42)", "not.toBe(0)"), Kind.TEST_WEAKENED),
    (JS, ("    expect(add(-4, 4)).toEqual(0);\n", ""), Kind.TEST_WEAKENED),
    (JS, ("    expect(add(-4, 4)).toEqual(0);", "    // expect(add(-4, 4)).toEqual(0);"), Kind.TEST_WEAKENED),
    (JS, ("expect(mul(6, 7)).toBe(42);", "try { expect(mul(6, 7)).toBe(42); } catch (e) {}"), Kind.SWALLOWED_ASSERTION),
    (SH, ('  [ "$(./add 6 7)" -eq 13 ]\n', ""), Kind.TEST_WEAKENED),
    (SH, ('"5" ]', '"5" ] || true'), Kind.SWALLOWED_ASSERTION),
    (SH, ('[ "$(./add 2 3)" = "5" ]', '[ -n "$(./add 2 3)" ]'), Kind.TEST_WEAKENED),
    (SH, ("set -e\n", ""), Kind.TEST_WEAKENED),
]  # fmt: skip
BASES = {PY: PY_BASE, JS: JS_BASE, SH: SH_BASE}


@pytest.mark.parametrize(("path", "pairs", "kind"), HOLLOW)
def test_tests_that_demand_less_refute(path: str, pairs: tuple[str, ...], kind: Kind) -> None:
    """Deleted, renamed away, skipped, xfailed, loosened, unreachable, swallowed, shadowed: found and refuted."""
    found = findings(path, BASES[path], edited(BASES[path], *pairs))
    assert kind in [one for one, _ in found]
    assert (kind, REFUTES) in found or any(weight is REFUTES for _, weight in found)


def test_a_deleted_test_file_refutes() -> None:
    """All its tests are named."""
    found = find_hollow(change_of({PY: (PY_BASE, None)}))
    assert [one.kind for one in found] == [Kind.TEST_DELETED] * 3
    assert worst(found) is REFUTES


PARAMETRIZED = """
import pytest
from calc import add, mul, parse


@pytest.mark.parametrize(("a", "b", "total"), [(2, 3, 5), (-4, 4, 0)])
def test_add(a, b, total):
    assert add(a, b) == total


@pytest.mark.parametrize(("a", "b", "product"), [(6, 7, 42), (0, 9, 0)])
def test_products(a, b, product):
    assert mul(a, b) == product


@pytest.mark.parametrize("text", [""])
def test_parse_refuses(text):
    with pytest.raises(ValueError, match="empty"):
        parse(text)
"""
SPLIT = """
import pytest
from calc import add, mul, parse


def test_add_positive():
    assert add(2, 3) == 5


def test_add_negative():
    assert add(-4, 4) == 0


def test_multiplication():
    assert mul(6, 7) == 42


class TestParse:
    def test_refuses(self):
        with pytest.raises(ValueError, match="empty"):
            parse("")
"""
HELPER = """
import pytest
from calc import add, mul, parse


def check(got, wanted):
    assert got == wanted


def test_add():
    check(add(2, 3), 5)
    check(add(-4, 4), 0)


def test_mul():
    check(mul(6, 7), 42)


def test_parse_refuses():
    with pytest.raises(ValueError, match="empty") as caught:
        parse("")
    assert caught.value.args
"""
UNITTEST = """
import unittest
from calc import add, mul, parse


class CalcTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
        self.assertEqual(add(-4, 4), 0)

    def test_mul(self):
        self.assertEqual(mul(6, 7), 42)

    def test_parse_refuses(self):
        with self.assertRaisesRegex(ValueError, "empty"):
            parse("")
"""
LOOPED = """
import pytest
from calc import add, mul, parse


def test_add():
    for a, b, total in [(2, 3, 5), (-4, 4, 0)]:
        assert add(a, b) == total


def test_mul():
    product = mul(6, 7)
    assert product == 42


def test_parse_refuses():
    with pytest.raises(ValueError, match="empty"):
        parse("")
"""


@pytest.mark.parametrize(
    "after",
    [PARAMETRIZED, SPLIT, HELPER, UNITTEST, LOOPED],
    ids=["table", "split", "helper", "unittest", "loop"],
)
def test_honest_rearrangements_of_python_tests_are_no_finding(after: str) -> None:
    """Renamed, split, made a table, put into a helper, moved to another framework: the demands stay."""
    assert findings(PY, PY_BASE, after) == []


@pytest.mark.parametrize(
    "pairs",
    [
        ("it('adds'", "test('adds two numbers'"),
        ("    expect(add(-4, 4)).toEqual(0);\n  });",
         "  });\n  it('adds negative', () => { expect(add(-4, 4)).toEqual(0); });"),
        ("toBe(42)", "toStrictEqual(42)"),
        ("  it('multiplies', () => { expect(mul(6, 7)).toBe(42); });",
         "  it.each([[6, 7, 42], [2, 2, 4]])('%i * %i', (a, b, c) => { expect(mul(a, b)).toBe(c); });"),
        ("describe('calc'", "describe('calculator'"),
        ("it('multiplies', () => { expect(mul(6, 7)).toBe(42); });",
         "it('multiplies', async () => {\n expect(\n mul(6, 7)\n ).toBe(42);\n });"),
    ],
)  # fmt: skip
def test_honest_rearrangements_of_javascript_tests_are_no_finding(pairs: tuple[str, ...]) -> None:
    """Renamed, split, made a table, formatted."""
    assert findings(JS, JS_BASE, edited(JS_BASE, *pairs)) == []


def test_honest_rearrangements_of_shell_tests_are_no_finding() -> None:
    """A renamed and a split function demand the same."""
    after = edited(
        SH_BASE,
        "test_usage",
        "test_shows_usage",
        '  [ "$(./add 6 7)" -eq 13 ]\n}',
        '}\ntest_more() {\n  [ "$(./add 6 7)" -eq 13 ]\n}',
    )
    assert findings(SH, SH_BASE, after) == []


def test_moved_and_added_tests_are_no_finding() -> None:
    """Another file, a renamed file, more tests, stronger tests."""
    head, tail = PY_BASE.split("def test_mul")
    moved = {
        PY: (PY_BASE, head),
        "tests/test_mul.py": (None, "from calc import mul, parse\nimport pytest\n\n\ndef test_mul" + tail),
    }
    assert worst(find_hollow(change_of(moved))) is None
    renamed = change_of(
        {"tests/test_other.py": (PY_BASE, PY_BASE + "\n\ndef test_more():\n    assert add(1, 2) == 3\n")},
        {"tests/test_other.py": PY},
    )
    assert worst(find_hollow(renamed)) is None
    assert findings(PY, PY_BASE, edited(PY_BASE, "== 0", "== 0\n    assert add(1, 0) == 1")) == []


def test_a_changed_expectation_is_only_noted() -> None:
    """Behaviour may change; the legs tell whether the test still tells."""
    found = find_hollow(change_of({PY: (PY_BASE, edited(PY_BASE, "== 42", "== 43"))}))
    assert [(one.kind, one.weight) for one in found] == [(Kind.EXPECTATION_CHANGED, HollowWeight.NOTE)]


def test_a_test_that_goes_with_its_code_is_only_noted() -> None:
    """Removing a feature removes its tests."""
    source = (
        "def mul(a, b):\n    return a * b\n\n\ndef add(a, b):\n    return a + b\n",
        "def add(a, b):\n    return a + b\n",
    )
    after = PY_BASE.replace("def test_mul():\n    assert mul(6, 7) == 42\n", "")
    assert worst(find_hollow(change_of({"calc.py": source, PY: (PY_BASE, after)}))) is HollowWeight.NOTE


def test_fewer_cases_refute() -> None:
    """A row taken out of a table is a test taken out."""
    found = findings(PY, PARAMETRIZED, edited(PARAMETRIZED, ", (-4, 4, 0)", ""))
    assert found == [(Kind.CASES_REMOVED, REFUTES)]


def test_a_new_test_that_asserts_nothing_is_suspicious() -> None:
    """`assert True` is no evidence."""
    found = findings(PY, PY_BASE, PY_BASE + "\n\ndef test_new():\n    assert True\n")
    assert found == [(Kind.TRIVIAL_ASSERTION, SUSPICIOUS)]


def test_the_story_of_the_two_removed_assertions() -> None:
    """Said in one line each, with file and line."""
    after = edited(PY_BASE, "    assert add(-4, 4) == 0\n", "", "assert mul(6, 7) == 42", "pass")
    said = [str(one) for one in find_hollow(change_of({PY: (PY_BASE, after)}))]
    assert said == [
        f"{PY}:6: test weakened: test_add no longer asserts `add(-4, 4) == 0`",
        f"{PY}:10: test weakened: test_mul no longer asserts `mul(6, 7) == 42`",
    ]


_PARTS = st.sampled_from(
    [
        "it('a', () => {",
        "});",
        "expect(x",
        ").toBe(1)",
        "[",
        "]",
        "{",
        "}",
        "`",
        "'",
        "/*",
        "*/",
        "//",
        "\n",
        "test.each([1])(",
        "try {",
        "catch {}",
    ]
)


@given(
    st.lists(_PARTS, max_size=20).map("".join),
    st.lists(_PARTS, max_size=20).map("".join),
    st.sampled_from([JS, PY, SH]),
)
def test_no_text_is_too_odd(before: str, after: str, path: str) -> None:
    """Broken code is read as far as it goes, never with an error."""
    assert isinstance(find_hollow(change_of({path: (before, after)})), tuple)
    assert isinstance(read_tests(path, after), list)


@given(st.sampled_from([(PY, PY_BASE), (JS, JS_BASE), (SH, SH_BASE)]))
def test_nothing_changed_is_nothing_found(case: tuple[str, str]) -> None:
    """A comment more is no finding."""
    path, text = case
    sign = "//" if path == JS else "#"
    assert findings(path, text, text + f"\n{sign} a comment\n") == []


@pytest.mark.parametrize("unit", ["a", "a.b", "1", "$", "if (a===", "\n", " \n", "a(\n"])
@pytest.mark.parametrize("path", ["src/calc.js", JS, "src/calc.sh", SH])
def test_no_file_takes_hours_to_judge(path: str, unit: str) -> None:
    """Minified code is one line without end, and a page of empty lines is nothing to think about for long."""
    text = "x = 1\n" + unit * (200_000 // len(unit)) + "\n"
    assert worst(find_hollow(change_of({path: ("x = 1\n", text)}))) is not REFUTES


def test_a_long_line_beside_it_hides_nothing() -> None:
    """Only the end of that very line is not looked at."""
    before = "function mul(a, b) {\n  return a * b;\n}\n"
    after = before.replace("  return", "  if (a === 6) return 42;\n  return")
    found = find_hollow(
        change_of({"src/calc.js": (before, "y".ljust(5000, "y") + "\n" + after)}), tests={JS: JS_BASE}
    )
    assert [(one.kind, one.line) for one in found] == [(Kind.HARD_CODED, 3)]
