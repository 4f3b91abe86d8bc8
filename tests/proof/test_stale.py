"""A test run older than the last edit is noticed where that can be known, and only said, never decided upon."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.config import load_settings
from proctor.proof.stale import claimed_times, stale_files, times_in_trace
from proctor.proof.workbench import Wish, Workbench
from proctor.protocol.events import ActorKind, Event, EventKind, EventStatus
from tests.proof.repos import PATH, new_repo, permits_for_proofs, write

NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)


def trace(*acts: tuple[str, str | None, dict[str, Any]]) -> list[Event]:
    """Events of an attempt, a second apart."""
    return [
        Event(
            seq=n, trace_id="t", trace_seq=n, ts=NOON + timedelta(seconds=n), kind=EventKind.WORKER, event=name,
            status=EventStatus.RUNNING, actor=ActorKind.AGENT, tool_name=tool, details=details, hash="",
        )
        for n, (name, tool, details) in enumerate(acts, 1)
    ]  # fmt: skip


def ran(command: str) -> tuple[str, str | None, dict[str, Any]]:
    """The agent runs a command."""
    return "tool_use", "shell", {"input": {"command": command}}


EDIT: tuple[str, str | None, dict[str, Any]] = ("tool_use", "write", {"input": {"path": "calc.py"}})
CLAUDE: tuple[str, str | None, dict[str, Any]] = ("task", None, {"file": "core/calc.py"})


@pytest.mark.parametrize(
    ("acts", "words"),
    [
        ([EDIT, ran("pytest -q")], ""),
        (
            [EDIT, ran("pytest -q"), EDIT],
            "last test run (`pytest -q`) is older than its last edit of calc.py",
        ),
        ([ran("cd /r && npm run test"), CLAUDE], "older than its last edit of core/calc.py"),
        (
            [CLAUDE, ran("ls"), ran("git diff")],
            "ran no test at all after its edits; the last one was of core/calc.py",
        ),
        ([CLAUDE, ran("bash tests/test.sh")], ""),
        ([ran("cargo test --workspace")], ""),
        ([], ""),
    ],
)
def test_a_traces_order_tells_whether_the_last_edit_was_tested(acts: list[Any], words: str) -> None:
    """Edits and test runs by their order; without either nothing is said."""
    said = times_in_trace(trace(*acts)).sentence
    assert words in said
    assert bool(words) == bool(said)


def test_times_of_a_result_are_compared_with_its_own_and_with_the_edit() -> None:
    """Any of the usual names; what cannot be read as a time says nothing."""
    early, late = NOON.isoformat(), (NOON + timedelta(minutes=5)).isoformat()
    assert claimed_times({"tested_at": early, "edited_at": late}).stale
    assert not claimed_times({"tested_at": late, "edited_at": early}).stale
    assert claimed_times({"verified_at": early}, edited=NOON + timedelta(seconds=1)).stale
    assert claimed_times({"verified_at": "2027-01-31T11:59:00"}, edited=NOON).stale
    assert not claimed_times({"tested_at": "yesterday"}, edited=NOON).sentence
    assert not claimed_times(None, edited=NOON).sentence
    kept = times_in_trace(trace(EDIT, ran("pytest"), EDIT)).as_members()
    assert claimed_times(kept).stale
    watched = {**times_in_trace(trace(EDIT)).as_members(), "task_id": "task_1"}
    assert "ran no test at all" in claimed_times(watched).sentence


def aged(place: Path, seconds: float) -> None:
    """Make a file look as old as this."""
    moment = NOON.timestamp() - seconds
    os.utime(place, (moment, moment))


def test_what_runners_leave_is_compared_with_the_newest_changed_code(tmp_path: Path) -> None:
    """Documents do not count; the newest trace of a run does; without one nothing is said."""
    write(
        tmp_path, {"calc.py": "x", "README.md": "x", ".pytest_cache/v/cache/nodeids": "[]", ".coverage": "x"}
    )
    for name, seconds in (
        ("calc.py", 50),
        ("README.md", 0),
        (".pytest_cache/v/cache/nodeids", 60),
        (".coverage", 70),
    ):
        aged(tmp_path / name, seconds)
    (found,) = stale_files(tmp_path, ["calc.py", "README.md"])
    assert (found.file, found.weight.value) == ("calc.py", "note")
    assert ".pytest_cache/v/cache/nodeids" in found.why
    aged(tmp_path / ".coverage", 40)
    assert stale_files(tmp_path, ["calc.py", "README.md"]) == []
    assert stale_files(tmp_path, ["README.md"]) == []
    (tmp_path / ".coverage").unlink()
    (tmp_path / ".pytest_cache/v/cache/nodeids").unlink()
    assert stale_files(tmp_path, ["calc.py"]) == []


@pytest.mark.slow
async def test_a_stale_run_is_a_note_beside_the_proof(tmp_path: Path) -> None:
    """Uncommitted work after an older run: the word is what the legs saw, and the note stands beside it."""
    test = (
        "import unittest\nimport calc\n\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        {}\n"
    )
    settings = f'[project]\ntest = "{sys.executable} -m unittest discover -v -s tests -t ."\n'
    base = {
        "calc.py": "A = 1\n",
        "tests/__init__.py": "",
        "proctor.toml": settings,
        ".gitignore": ".pytest_cache\n",
    }
    repo = new_repo(tmp_path / "repo", {**base, "tests/test_calc.py": test.format("assert calc.A")})
    write(repo, {".pytest_cache/v/cache/nodeids": "[]"})
    aged(repo / ".pytest_cache/v/cache/nodeids", 10 * 365 * 86_400)
    write(repo, {"calc.py": "A = 2\n", "tests/test_calc.py": test.format("assert calc.A == 2")})
    (tmp_path / "home").mkdir(exist_ok=True)
    found = await Workbench(
        load_settings(repo, {"HOME": str(tmp_path / "home"), "PATH": PATH}), repo, permits_for_proofs
    ).check(Wish(uncommitted=True))
    assert found.word == "proven", found.reasons
    assert ("test run older than edit", "note") in [(one["kind"], one["weight"]) for one in found.findings]
