"""The first screen: what is proven, what is not, what is hollow, and the next step, in plain words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.proof.advice import next_step
from proctor.proof.interpreter import with_python
from proctor.proof.screen import as_text

HOLLOW = {
    "kind": "test weakened",
    "weight": "refutes",
    "file": "tests/test_a.py",
    "line": 4,
    "why": "demands less",
}
LAST = "Read the reasons above"


def receipt(verdict: str, *reasons: str, **more: Any) -> dict[str, Any]:
    """A receipt as the screen reads it."""
    tests: dict[str, Any] = {"passed": ["a", "b"], "failed": {}, "skipped": [], "reason": None, "detail": ""}
    leg = {
        "name": "after",
        "tests": tests,
        "repeats": 0,
        "runs": [{"exit_code": 0, "output_head": "line\n" * 50 + "\x1b[31mthe end\n"}],
    }
    return {
        "verdict": verdict, "reasons": list(reasons), "kind": "fix", "kind_reason": "because", "legs": [leg],
        "commands": ["pytest -q"], "findings": [], "notes": [], "coverage": None, "sandbox": {"rerooted": False},
        "change": {"label": "work", "commit": None}, "recorded": {"seconds": {"after": [1.25]}}, **more,
    }  # fmt: skip


def section(text: str, label: str) -> str:
    """The words beside one label, joined."""
    lines = text.split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith(f"  {label:<13}"))
    end = next(
        number for number in range(start + 1, len(lines) + 1) if not lines[number].startswith(" " * 15)
    )
    return " ".join(line[15:] for line in lines[start:end])


def test_a_proven_change_says_what_is_proven_and_that_nothing_is_hollow() -> None:
    """The four answers stand on the first screen, and the command that was run."""
    text = as_text(receipt("proven", "failed without the change and passes with it: t"))
    assert text.startswith("✓ proven: work (fix: because)\n")
    assert "passes with it: t" in section(text, "proven")
    assert "2 tests pass with the change, none is newly red" in section(text, "proven")
    assert section(text, "not proven") == "nothing is left open"
    assert section(text, "hollow") == "nothing found"
    assert section(text, "next").startswith("Commit it")
    assert "what was run: pytest -q" in text


def test_a_hollow_change_says_where_and_what_to_put_back() -> None:
    """Refuted: nothing is proven, the finding has its place, and its sentence stands there once."""
    found = receipt("refuted", "hollow: tests/test_a.py:4: test weakened: demands less", findings=[HOLLOW])
    text = as_text(found)
    assert section(text, "proven") == "nothing"
    assert section(text, "hollow") == "yes: tests/test_a.py:4: test weakened: demands less"
    assert text.count("demands less") == 1
    assert "Put back what the test demanded" in section(text, "next")


def test_what_was_not_executed_is_not_proven() -> None:
    """Lines that no test runs are named, also beside a proof."""
    coverage = {"missed": {"a.py": [3, 4, 5, 9]}, "unknown": ["b.py"], "executed": {}}
    text = as_text(receipt("proven", "yes", coverage=coverage))
    assert "a.py: no test runs lines 3-5, 9" in section(text, "not proven")
    assert "b.py was not measured (`--coverage` does)" in section(text, "not proven")


def test_a_broken_command_shows_the_end_of_its_output_without_control_characters() -> None:
    """One sees why it could not be run; colours and cursors of others stay out of the terminal."""
    found = receipt("inconclusive", "the command could not judge the change: infrastructure: x")
    found["legs"][0]["tests"]["reason"] = "infrastructure"
    text = as_text(found)
    assert "the end of its output (after)" in text
    assert "the end" in text.splitlines()[-1]
    assert "\x1b" not in text
    assert text.count("    line") < 10


@pytest.mark.parametrize(
    "reason",
    [
        "there is no test command; set `test` in [project] of proctor.toml",
        "the command could not judge the change: infrastructure: the program was not found (exit code 127)",
        "could not be run without the change: timeout: it did not end in time",
        "no test tells before from after: the same ones pass with and without the change",
        "its tests (a) pass without the change too: they do not show that it does anything",
        "weak: what is tested did not exist before (x)",
        "flaky: two runs of the same tree disagree about a",
        "newly red with the change: a",
        "its own tests fail with the change: a",
        "the command fails after the change as it did before: assertion: x",
        "the command does not notice a break in a.py: it tests something else, or nothing of it",
        "the same tests pass on both sides, but changed lines are not executed: a.py:3",
        "the same tests pass on both sides, but it is unknown whether they execute a.rs",
        "tests that ran before the change do not run after it: a",
        "the tests were changed with the code, and the old ones do not pass: x",
        "it still passes with the source reverted; only setup.cfg makes the difference",
        "nothing was changed",
        "not run: Not run: proof commands may have been written by agents",
        "the pictures are the same with and without the change",
        "README.md: the link to x leads nowhere",
        "look at this: a.py:1: tolerance raised: x",
        "hollow: a.py:1: hard-coded: x",
        "hollow: a.py:1: test deleted: x",
        "hollow: ci.yml:1: check edited: x",
        "only tests were changed: there is no change of the code that they could prove",
    ],
)
def test_every_reason_has_a_next_step(reason: str) -> None:
    """Whatever stands in the way, one sentence says how to go on."""
    said = next_step(receipt("inconclusive", reason))
    assert not said.startswith(LAST)
    assert said.endswith(".")
    assert "{" not in said


def test_a_guessed_command_names_an_interpreter_that_is_there(tmp_path: Path) -> None:
    """Without an environment in the checkout the active one is taken; what is there is kept."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "python3").write_text("#!/bin/sh\n")
    (bin_dir / "python3").chmod(0o755)
    environ = {"PATH": str(bin_dir)}
    guessed = (".venv/bin/python -m pytest", "npm test")
    assert with_python(guessed, tmp_path, environ) == ("python3 -m pytest", "npm test")
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").touch()
    assert with_python(guessed, tmp_path, environ)[0] == "venv/bin/python -m pytest"
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()
    assert with_python(guessed, tmp_path, environ) == guessed


@pytest.mark.parametrize("wide", [70, 80, 200])
def test_the_screen_fits_the_terminal(wide: int) -> None:
    """Sentences wrap at the terminal's width, and never run wider than people read."""
    reasons = ["the command could not judge the change: " + "word " * 40]
    text = as_text(receipt("inconclusive", *reasons, kind_reason="because of this " * 9), wide)
    assert max(map(len, text.splitlines())) <= min(wide, 110)


def test_a_failed_set_up_says_that_there_is_no_network() -> None:
    """The usual cause is a download; the cure is to install once in one's own checkout."""
    said = next_step(receipt("inconclusive", "the command could not judge the change: the set-up failed"))
    assert "no network" in said
    assert "yourself" in said
