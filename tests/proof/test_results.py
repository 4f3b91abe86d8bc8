"""Results of every common runner become one shape, and a failure has the right reason or none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.results import Context, Outcome, Reason, newly_red, read_results, turned_green

GOLDEN = Path(__file__).parent / "golden"
MUL = Context(added_symbols=frozenset({"mul", "Mul"}))
PYTEST = {
    "test_calc.py::test_add": "failed",
    "test_calc.py::test_crash": "failed",
    "test_calc.py::TestMore::test_missing_attribute": "failed",
    "test_calc.py::test_setup": "error",
}
NODE = {
    "adds": "failed", "is ok": "passed", "skipped one": "skipped", "todo one": "passed", "multiplies": "failed",
    "group > inner ok": "passed", "group > inner bad": "failed", "slow": "failed",
}  # fmt: skip
TRACE = "Traceback (most recent call last):\n"
CARGO = {"tests::later": "skipped", "tests::ok": "passed", "tests::adds": "failed", "tests::panics": "passed"}
UNITTEST = {"test_crash": "error", "test_missing": "error", "test_add": "failed", "test_sub": "failed"}


def golden(name: str) -> str:
    """The recorded output of a real run, or one written after the format's documentation."""
    return (GOLDEN / name).read_text()


@pytest.mark.parametrize(
    ("name", "code", "form", "tests"),
    [
        ("pytest_q.txt", 1, "pytest", PYTEST),
        ("pytest_tbno.txt", 1, "pytest", PYTEST),
        ("pytest_line.txt", 1, "pytest", {"test_calc.py::test_add": "failed"}),
        ("unittest.txt", 1, "unittest", {f"test_u.CalcTest.{name}": word for name, word in UNITTEST.items()}),
        ("node_tap.txt", 1, "tap", NODE),
        ("node_spec.txt", 1, "node", NODE),
        ("cargo.txt", 101, "cargo", CARGO),
        ("go_json.txt", 1, "go", {"example.org/calc::TestAdd": "failed", "example.org/calc::TestTable/one": "passed",
                                  "example.org/calc::TestLater": "skipped"}),
        ("go_text.txt", 1, "go", {"TestAdd": "failed"}),
        ("jest.json", 1, "jest", {"src/sum.test.js::sum adds": "failed", "src/sum.test.js::sum is ok": "passed",
                                  "src/sum.test.js::sum later": "skipped"}),
    ],
)  # fmt: skip
def test_tests_are_named_with_their_outcome(name: str, code: int, form: str, tests: dict[str, str]) -> None:
    """The format is recognised, and a check that said no is the reason."""
    run = read_results(code, golden(name))
    assert (run.form, dict(run.tests), run.passed) == (form, tests, False)
    assert run.reason is Reason.ASSERTION
    assert run.evidence


def test_verbose_and_xml_name_all_tests() -> None:
    """Verbose text and JUnit XML have the same nine tests; quiet text only counts those that passed."""
    verbose, xml, quiet = (
        read_results(1, golden(name)) for name in ("pytest_v.txt", "pytest.xml", "pytest_q.txt")
    )
    assert len(verbose.tests) == len(xml.tests) == 9
    assert verbose.counts == xml.counts == quiet.counts
    assert (verbose.names_all, xml.names_all, quiet.names_all) == (True, True, False)
    outcomes = sorted(verbose.tests.values())
    assert outcomes == sorted(xml.tests.values())
    assert {one.test.partition("::")[2]: one.reason for one in verbose.failures}[
        "test_setup"
    ] is Reason.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("name", "code"),
    [("pytest_missing_symbol.txt", 2), ("cargo_missing.txt", 101), ("go_json_build.txt", 1)],
)
def test_a_name_the_change_adds_is_weak_evidence(name: str, code: int) -> None:
    """Did not exist yet: weak if the change adds it, broken surroundings if not."""
    assert read_results(code, golden(name), context=MUL).reason is Reason.MISSING_SYMBOL
    assert "did not exist" in read_results(code, golden(name), context=MUL).evidence
    assert read_results(code, golden(name)).reason is Reason.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("pytest_q.txt", "test_calc.py::TestMore::test_missing_attribute"),
        ("unittest.txt", "test_u.CalcTest.test_missing"),
        ("node_tap.txt", "multiplies"),
        ("node_spec.txt", "multiplies"),
        ("pytest.xml", "test_calc.TestMore::test_missing_attribute"),
    ],
)
def test_each_failure_has_its_own_reason(name: str, test: str) -> None:
    """One weak failure among honest ones is told apart."""
    reasons = {one.test: one.reason for one in read_results(1, golden(name), context=MUL).failures}
    assert reasons[test] is Reason.MISSING_SYMBOL
    assert Reason.ASSERTION in reasons.values()


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (4, golden("pytest_no_file.txt"), "not found"),
        (5, golden("pytest_none.txt"), "no test"),
        (1, golden("unittest_no_module.txt"), "nothere"),
        (1, golden("node_broken.txt"), "Cannot find module"),
        (127, "sh: 1: pytestt: not found", "127"),
        (126, "permission denied", "126"),
        (1, "bash: verify.sh: No such file or directory", "No such file"),
        (2, "python3: can't open file '/r/x.py': [Errno 2] No such file or directory", "No such file"),
        (1, TRACE + "  File \"<string>\", line 1, in <module>\nNameError: name 'f' is not defined", "NameError"),
        (1, TRACE + "  File \"a.py\", line 1\nModuleNotFoundError: No module named 'x'", "No module"),
        (0, "TAP version 13\n1..0\n", "no test ran"),
        (0, "\n----\nRan 0 tests in 0.000s\n\nOK\n", "no test"),
        (0, "ss [100%]\n2 skipped in 0.01s\n", "all were skipped"),
        (1, "<testsuite><testcase name='x'>", "broken"),
        (1, "<testsuites><!DOCTYPE a [<!ENTITY b 'c'>]></testsuites>", "entities"),
    ],
)  # fmt: skip
def test_broken_surroundings_are_never_a_failed_check(code: int, text: str, said: str) -> None:
    """Missing files, imports, exit codes 126 and 127, pytest 4 and 5, and runs without a test."""
    run = read_results(code, text)
    assert (run.passed, run.reason) == (False, Reason.INFRASTRUCTURE)
    assert said in run.evidence


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1, ""),
        (1, "expected 5, got -1"),
        (1, TRACE + '  File "<string>", line 1, in <module>\nAssertionError'),
        (1, TRACE + '  File "/r/calc.py", line 3, in div\n    a / b\nZeroDivisionError: division by zero'),
        (1, TRACE + "  File \"/r/conf.py\", line 3, in read\n"
            "FileNotFoundError: [Errno 2] No such file or directory: 'c.ini'"),
        (1, "AttributeError: 'NoneType' object has no attribute 'strip'"),
    ],
)  # fmt: skip
def test_a_plain_check_that_says_no_counts(code: int, text: str) -> None:
    """Exit code 1, an assertion, or a crash in product code: the bug itself."""
    assert read_results(code, text).reason is Reason.ASSERTION


def test_time_and_signals_are_their_own_reasons() -> None:
    """Out of time is never a failed check."""
    assert read_results(1, golden("pytest_q.txt"), timed_out=True).reason is Reason.TIMEOUT
    assert read_results(124, "").reason is Reason.TIMEOUT
    assert read_results(137, "").reason is Reason.INFRASTRUCTURE
    assert read_results(139, "").reason is Reason.UNKNOWN


def test_passing_needs_exit_code_and_tests_alike() -> None:
    """Exit 0 with failed tests has not passed, and neither has a green list with another exit code."""
    assert read_results(0, golden("pytest_pass.txt")).passed
    assert read_results(0, "anything").passed
    assert not read_results(0, golden("pytest_q.txt")).passed
    assert read_results(1, golden("pytest_pass.txt")).reason is Reason.UNKNOWN


def test_a_report_file_counts_before_the_text() -> None:
    """JUnit XML beside quiet text names all tests."""
    run = read_results(1, golden("pytest_q.txt"), report=golden("pytest.xml"))
    assert (run.form, run.names_all) == ("junit", True)


def test_colours_and_noise_around_do_not_hide_results() -> None:
    """Escape sequences, CRLF and lines of other tools are seen through."""
    text = (
        "npm warn\n\x1b[31m"
        + golden("pytest_q.txt").replace("\n", "\r\n")
        + "\x1b[0m\nmake: *** [test] Error 1"
    )
    assert read_results(2, text).failing() == read_results(1, golden("pytest_q.txt")).failing()
    assert read_results(1, "> jest --json\n" + golden("jest.json") + "\nbye").form == "jest"


def test_two_runs_are_compared_by_name() -> None:
    """What turned red and what turned green, also where only failures are named."""
    before, after = read_results(1, golden("pytest_q.txt")), read_results(0, golden("pytest_pass.txt"))
    assert newly_red(after, before) == tuple(sorted(PYTEST))
    assert turned_green(before, after) == tuple(sorted(PYTEST))
    assert newly_red(before, before) == turned_green(before, before) == ()


def test_a_real_run_of_pytest_is_read(tmp_path: Path) -> None:
    """Not only the recorded ones: the installed pytest of today."""
    (tmp_path / "test_x.py").write_text("def test_a():\n    assert 1 == 2\n\n\ndef test_b():\n    pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        "test_x.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    run = read_results(done.returncode, done.stdout, done.stderr)
    assert {name: str(word) for name, word in run.tests.items()} == {
        "test_x.py::test_a": "failed",
        "test_x.py::test_b": "passed",
    }
    assert run.reason is Reason.ASSERTION


_OUTPUTS = st.sampled_from(sorted(path.name for path in GOLDEN.iterdir())).map(golden)


@given(st.integers(-15, 255), st.text(max_size=200) | _OUTPUTS, st.integers(0, 400))
def test_any_output_is_read(code: int, text: str, cut: int) -> None:
    """Cut-off and foreign output never raises, and passes only with exit code 0."""
    run = read_results(code, text[cut:], context=MUL)
    assert not run.passed or code == 0
    assert (run.reason is Reason.NONE) == run.passed
    assert set(run.tests.values()) <= set(Outcome)
    assert json.dumps(run.evidence)


@pytest.mark.parametrize(
    "unit", ["\n", " \n", "\r\n", "a::", "x::y ", "a (b) (\n", "_ ", "=", "1 passed, ", "a/", "a"]
)
@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ("", ""),
        ("x.py::test_a FAILED [100%]\n____ test_a ____\n", "\n1 failed in 0.1s"),
        ("FAIL: test_a (m.T.test_a)\n----\n", "\nRan 1 test in 0.1s\n\nFAILED (failures=1)"),
    ],
)
def test_no_output_takes_hours_to_read(unit: str, head: str, tail: str) -> None:
    """A quarter of a megabyte of anything a command may print is read in moments; it took days before."""
    run = read_results(1, head + unit * (250_000 // len(unit)) + tail)
    assert not run.passed
    assert run.reason is not Reason.NONE
