"""A test that cannot run here is named at the end with its cure, and fails the run where all must run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = '''
"""Two tests, one of which lacks something."""
import pytest
from tests.support import require

@pytest.fixture
def engine():
    """Lacks something already before the test."""
    require(False, "there is no engine", "Install an engine.")

def test_runs():
    """Runs."""
    require(True, "nothing is missing", "")

def test_lacks_a_wheel():
    """Does not run."""
    require(False, "there is no wheel", "Buy a wheel.")

def test_lacks_an_engine(engine):
    """Does not run."""

def test_skipped_for_another_reason():
    """Skipped by choice."""
    pytest.skip("not on a Sunday")
'''


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ci", "code", "workers"),
    [("", 0, ()), ("true", 1, ()), ("true", 1, ("-n", "2"))],
    ids=["user", "ci", "ci xdist"],
)
def test_what_could_not_run_is_listed_and_fails_in_ci(
    tmp_path: Path, ci: str, code: int, workers: tuple[str, ...]
) -> None:
    """By name, with its cure, in one process and in several; with CI=true the exit code says so."""
    (tmp_path / "test_machine.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        *workers,
    ]
    command += ["--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path)]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done.stdout + done.stderr
    _, _, listed = done.stdout.partition("Could not run here:")
    assert "test_machine.py::test_lacks_a_wheel: there is no wheel. Buy a wheel." in listed
    assert "test_machine.py::test_lacks_an_engine: there is no engine. Install an engine." in listed
    assert "Sunday" not in listed
    assert "test_runs" not in listed
