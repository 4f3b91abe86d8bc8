"""Hollow changes outside the tests: answers written for them, edited checks, raised tolerances, replaced snapshots."""

from __future__ import annotations

import pytest

from proctor.proof.change import change_of
from proctor.proof.hollow import HollowKind as Kind
from proctor.proof.hollow import HollowWeight, find_hollow, worst

REFUTES, SUSPICIOUS = HollowWeight.REFUTES, HollowWeight.SUSPICIOUS

SOURCE = "def square(n):\n    return n + n\n"
SQUARE_TEST = "from calc import square\n\n\ndef test_square():\n    assert square(7) == 49\n    assert square(12) == 144\n"


@pytest.mark.parametrize(
    "after",
    [
        "def square(n):\n    if n == 7:\n        return 49\n    if n == 12:\n        return 144\n    return n + n\n",
        "def square(n):\n    return {7: 49, 12: 144}.get(n, n + n)\n",
        "def square(n):\n    return 49 if n == 7 else n + n\n",
        "def square(n):\n    return 49\n",
        "def square(n):\n    match n:\n        case 7:\n            return 49\n        case _:\n            return n + n\n",
    ],
)
def test_answers_written_for_the_tests_refute(after: str) -> None:
    """Special cases, tables and constants that only the test's own values explain."""
    found = find_hollow(change_of({"calc.py": (SOURCE, after)}), tests={"tests/test_calc.py": SQUARE_TEST})
    assert (Kind.HARD_CODED, REFUTES) in [(one.kind, one.weight) for one in found]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SOURCE, "def square(n):\n    return n * n\n"),
        (SOURCE, "def square(n):\n    if n == 0:\n        return 0\n    return n * n\n"),
        (SOURCE, "def square(n):\n    if n < 7:\n        return n * n\n    return n ** 2\n"),
        ("def square(n):\n    if n == 3:\n        return 9\n    return n + n\n",
         "def square(n):\n    if n == 3:\n        return 9\n    if n == 7:\n        return 49\n    return n + n\n"),
        (None, "def square(n):\n    if n == 12:\n        return 144\n    return n * n\n"),
    ],
)  # fmt: skip
def test_honest_branches_are_no_finding(before: str | None, after: str) -> None:
    """Guards, ranges, and code that told values apart before."""
    found = find_hollow(change_of({"calc.py": (before, after), "tests/test_calc.py": (None, SQUARE_TEST)}))
    assert [one for one in found if one.kind is Kind.HARD_CODED] == []


@pytest.mark.parametrize(
    ("path", "before", "after", "tests"),
    [
        ("calc.js", "exports.square = n => n + n;\n",
         "exports.square = n => {\n  if (n === 7) return 49;\n  return n + n;\n};\n",
         {"calc.test.js": "test('s', () => { expect(square(7)).toBe(49); });"}),
        ("calc.js", "function square(n) {\n  return n + n;\n}\n", "function square(n) {\n  return 49;\n}\n",
         {"calc.test.js": "test('s', () => { expect(square(7)).toBe(49); });"}),
        ("square.sh", '#!/bin/sh\necho $(($1 + $1))\n',
         '#!/bin/sh\nif [ "$1" = "7" ]; then\n  echo "49"\nfi\necho $(($1 + $1))\n',
         {"tests/square_test.sh": 'set -e\n[ "$(./square.sh "7")" = "49" ]\n'}),
    ],
)  # fmt: skip
def test_answers_written_for_the_tests_refute_in_other_languages(
    path: str, before: str, after: str, tests: dict[str, str]
) -> None:
    """The same in JavaScript and shell."""
    found = find_hollow(change_of({path: (before, after)}), tests=tests)
    assert (Kind.HARD_CODED, REFUTES) in [(one.kind, one.weight) for one in found]


@pytest.mark.parametrize(
    ("line", "weight"),
    [
        ("if os.environ.get('PYTEST_CURRENT_TEST'): return 49", REFUTES),
        ("if 'pytest' in sys.modules: return 49", REFUTES),
        ("if os.environ.get('CI'): return 49", SUSPICIOUS),
    ],
)
def test_code_that_asks_whether_it_is_tested_is_found(line: str, weight: HollowWeight) -> None:
    """Product code has no business knowing it."""
    found = find_hollow(change_of({"calc.py": (SOURCE, f"def square(n):\n    {line}\n    return n\n")}))
    assert (Kind.KNOWS_IT_IS_TESTED, weight) in [(one.kind, one.weight) for one in found]


CI = "on: push\njobs:\n  test:\n    steps:\n      - run: pip install .\n      - run: pytest -q\n"


@pytest.mark.parametrize(
    ("path", "before", "after", "weight"),
    [
        (".github/workflows/ci.yml", CI, CI.replace("pytest -q", "pytest -q || true"), REFUTES),
        (".github/workflows/ci.yml", CI, CI.replace("      - run: pytest -q\n", ""), REFUTES),
        (".github/workflows/ci.yml", CI, CI + "        continue-on-error: true\n", REFUTES),
        (".github/workflows/ci.yml", CI, CI.replace("push", "pull_request"), SUSPICIOUS),
        (".github/workflows/ci.yml", CI, CI + "      - run: ruff check .\n", HollowWeight.NOTE),
        (".github/workflows/ci.yml", CI, None, SUSPICIOUS),
        ("pytest.ini", "[pytest]\naddopts = -q\n", "[pytest]\naddopts = -q --ignore=tests/test_calc.py\n", REFUTES),
        ("pyproject.toml", "[tool.coverage.report]\nfail_under = 90\n",
         "[tool.coverage.report]\nfail_under = 50\n", REFUTES),
        ("pyproject.toml", "[tool.pytest.ini_options]\nxfail_strict = true\n",
         "[tool.pytest.ini_options]\nxfail_strict = false\n", REFUTES),
        ("pyproject.toml", "[project]\nversion = '1'\n", "[project]\nversion = '2'\n", None),
        ("pyproject.toml", "[tool.ruff]\nline-length = 80\n", "[tool.ruff]\nline-length = 100\n", HollowWeight.NOTE),
        ("package.json", '{"scripts": {"test": "jest"}}', '{"scripts": {"test": "jest || true"}}', REFUTES),
        ("package.json", '{"scripts": {"test": "jest"}}', '{"scripts": {"test": "echo ok"}}', REFUTES),
        ("package.json", '{"scripts": {"test": "jest"}}', '{"scripts": {"test": "jest", "build": "tsc"}}', None),
        ("Makefile", "test:\n\tpytest\n", "test:\n\t-pytest || true\n", REFUTES),
        ("Makefile", "test:\n\tpytest\n", "test:\n\tpytest\nclean:\n\trm -r build\n", None),
        ("tests/conftest.py", "import pytest\n",
         "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n    items[:] = []\n", SUSPICIOUS),
        ("tests/conftest.py", "import pytest\n", "import pytest\n\n\n@pytest.fixture\ndef thing():\n    return 1\n", None),
    ],
)  # fmt: skip
def test_edited_checks_are_weighed(
    path: str, before: str, after: str | None, weight: HollowWeight | None
) -> None:
    """What loosens refutes, what edits is suspicious, what adds is noted, what is no check is left alone."""
    assert worst(find_hollow(change_of({path: (before, after)}))) is weight


def test_an_edited_verification_is_found() -> None:
    """The script that the command runs was edited by the change; a new one, or product code, is none."""
    before = "#!/bin/bash\nset -e\ngrep -q fixed src/a.py\n"
    command = ("cd /r && bash scripts/verify.sh",)
    loose = find_hollow(change_of({"scripts/verify.sh": (before, "#!/bin/bash\necho ok\nexit 0\n")}), command)
    assert (Kind.VERIFICATION_EDITED, REFUTES) in [(one.kind, one.weight) for one in loose]
    other = find_hollow(
        change_of({"scripts/verify.sh": (before, before + "grep -q more src/a.py\n")}), command
    )
    assert [(one.kind, one.weight) for one in other] == [(Kind.VERIFICATION_EDITED, SUSPICIOUS)]
    assert find_hollow(change_of({"scripts/verify.sh": (None, before)}), command) == ()
    assert (
        find_hollow(
            change_of({"src/greet.sh": ("echo hi\n", "echo hello\n")}), ("bash src/greet.sh | grep -q hello",)
        )
        == ()
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def test_a():\n    wait(timeout=5)\n", "def test_a():\n    wait(timeout=60)\n"),
        ("def test_a():\n    time.sleep(1)\n", "def test_a():\n    time.sleep(10)\n"),
        (
            "def test_a():\n    assert x == approx(1.5, abs=0.01)\n",
            "def test_a():\n    assert x == approx(1.5, abs=0.5)\n",
        ),
        ("def test_a():\n    go()\n", "@pytest.mark.flaky(reruns=5)\ndef test_a():\n    go()\n"),
    ],
)
def test_raised_tolerances_are_suspicious(before: str, after: str) -> None:
    """Time-outs, pauses, tolerances and retries that grew."""
    assert (Kind.TOLERANCE_RAISED, SUSPICIOUS) in [
        (one.kind, one.weight) for one in find_hollow(change_of({"tests/test_a.py": (before, after)}))
    ]


def test_replaced_snapshots_without_product_code_are_suspicious() -> None:
    """A recorded expectation changes with the product or not at all."""
    snap = {"src/__snapshots__/a.test.js.snap": ("exports[`a`] = `1`;\n", "exports[`a`] = `2`;\n")}
    assert worst(find_hollow(change_of(snap))) is SUSPICIOUS
    assert worst(find_hollow(change_of({**snap, "src/a.js": ("a\n", "b\n")}))) is None
