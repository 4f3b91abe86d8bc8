"""What a command's run counts as, from its exit code and its words."""

from __future__ import annotations

import pytest

from proctor.proof.reading import read_run
from proctor.proof.results import Context, Reason
from proctor.proof.runner import Run
from proctor.sandbox.spec import Output


def ran(command: str, code: int, text: str) -> Run:
    """A run as the sandbox tells it."""
    said, nothing = Output(text, "", len(text), 0), Output("", "", 0, 0)
    return Run("t", "h", command, code, None, 0.1, nothing, said, 3, (), (), rerooted=False, place="/r")


@pytest.mark.parametrize(
    ("command", "text", "reason"),
    [
        ("cargo test", "error: rustup could not choose a version of cargo to run", Reason.INFRASTRUCTURE),
        ("cd /r && cargo --offline test", "error: no matching package", Reason.INFRASTRUCTURE),
        ("python -m pytest -q", "Fatal: the interpreter is gone", Reason.INFRASTRUCTURE),
        ("go test ./...", "go: cannot load go.mod", Reason.INFRASTRUCTURE),
        ("cargo test -q > /dev/null", "", Reason.ASSERTION),
        ("pytest -q | tail -1", "no", Reason.ASSERTION),
        ("bash check.sh", "expected 3 but got 4", Reason.ASSERTION),
        ("grep -q x y && pytesting", "no", Reason.ASSERTION),
    ],
)
def test_a_runner_that_never_came_to_its_tests_says_nothing(command: str, text: str, reason: Reason) -> None:
    """A red exit code of a known runner without any test is a broken environment, never "failed before"."""
    assert read_run(ran(command, 1, text), Context()).reason is reason


@pytest.mark.parametrize(
    ("command", "sound"),
    [
        ("python -m pytest -q", False),
        ("PYTHONPATH=. python3 -m pytest", False),
        ("python -m unittest discover", False),
        ("node --test", False),
        ("cargo test", False),
        ("pytest -q > /dev/null", True),
        ("bash check.sh", True),
    ],
)
def test_a_runner_that_ends_with_0_and_names_no_test_proves_nothing(command: str, sound: bool) -> None:
    """Something ended it before its tests; a plain check may be silent."""
    assert read_run(ran(command, 0, ""), Context()).green is sound
