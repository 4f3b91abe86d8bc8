"""`proctor plan` as a user types it: real commands, real supervisor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.supervisors import stop_supervisor, supervisor_runs

FILE = """
goal = "Look around and write a note"
profile = "{profile}"

[[steps]]
tool = "read_file"
input = {{ path = "proctor.toml" }}

[[steps]]
tool = "write_file"
input = {{ path = "note.txt", content = "done\\n" }}
reason = "the goal asks for it"

[[steps]]
tool = "crm_lookup"
domain = "intelligence"
"""


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Iterator[Path]:
    """A project; its supervisor is stopped afterwards."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "proctor.toml").write_text("")
    yield place
    stop_supervisor()


def _run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proctor", *words], cwd=place, capture_output=True, text=True, timeout=100
    )


def _json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


@pytest.mark.slow
def test_plan_runs_in_the_supervisor_and_says_what_came_of_it(project: Path) -> None:
    """Real steps act, unknown tools are simulated, and the result says which was which."""
    (project / "plan.toml").write_text(FILE.format(profile="technical"))
    done = _run(project, "plan", "run", "plan.toml", "--json")
    assert done.returncode == 0, done.stderr
    found = _json(done)
    assert [one["simulated"] for one in found["results"]] == [False, False, True]
    assert (project / "note.txt").read_text() == "done\n"
    assert found["signals"]["success_rate"] == 1.0
    assert found["signals"]["latency"]["p95"] > 0
    shown = _run(project, "plan", "show", found["plan_id"]).stdout
    assert "Simulated: 1 of 3 steps" in shown
    assert found["plan_id"] in _run(project, "plan", "list").stdout


@pytest.mark.slow
def test_a_file_stands_for_the_plan_it_was_last_run_as(project: Path) -> None:
    """show and resume take the file, with and without an id in it; a changed file is another plan."""
    (project / "plan.toml").write_text(FILE.format(profile="technical"))
    parked = _json(_run(project, "plan", "run", "plan.toml", "--profile", "enterprise", "--json"))
    assert _json(_run(project, "plan", "show", "plan.toml", "--json"))["plan_id"] == parked["plan_id"]
    again = _run(project, "plan", "resume", "plan.toml", "--json")
    assert (again.returncode, _json(again)["plan_id"]) == (3, parked["plan_id"])
    assert _json(_run(project, "plan", "cancel", "plan.toml", "--json"))["stage"] == "cancelled"
    named = FILE.format(profile="technical").replace("goal =", 'plan_id = "plan_mine"\ngoal =')
    (project / "named.toml").write_text(named)
    assert _run(project, "plan", "show", "named.toml").returncode == 4
    assert _run(project, "plan", "run", "named.toml", "--json").returncode == 0
    assert _json(_run(project, "plan", "show", "named.toml", "--json"))["plan_id"] == "plan_mine"
    (project / "plan.toml").write_text(FILE.format(profile="technical").replace("note.txt", "other.txt"))
    never = _run(project, "plan", "show", "plan.toml")
    assert never.returncode == 4
    assert "proctor plan run plan.toml" in never.stderr


@pytest.mark.slow
def test_plan_waits_for_a_person_and_goes_on_by_itself(project: Path) -> None:
    """Exit code 3 and nothing written; the yes alone lets the supervisor finish it."""
    (project / "plan.toml").write_text(FILE.format(profile="technical"))
    parked = _run(project, "plan", "run", "plan.toml", "--profile", "enterprise", "--json")
    assert parked.returncode == 3, parked.stderr
    found = _json(parked)
    assert not (project / "note.txt").exists()
    assert found["failure_context"]["kind"] == "parked"
    assert _run(project, "plan", "resume", found["plan_id"], "--json").returncode == 3
    answered = _run(project, "approve", found["approval_id"])
    assert answered.returncode == 0, answered.stderr
    deadline = time.monotonic() + 90
    while not (done := _json(_run(project, "plan", "show", found["plan_id"], "--json")))["success"]:
        assert time.monotonic() < deadline, done
        time.sleep(0.2)
    assert (project / "note.txt").read_text() == "done\n"
    assert (done["approvals_required"], done["approvals_received"]) == (1, 1)


@pytest.mark.slow
def test_plan_goes_on_when_its_supervisor_is_killed(project: Path) -> None:
    """kill -9 of the supervisor in the middle: the watching command brings a new one, and no step is repeated."""
    steps = [
        {"tool": "execute_command", "input": {"command": f"echo {n} >> log.txt; sleep 0.4"}} for n in range(4)
    ]
    (project / "plan.json").write_text(
        json.dumps({"goal": "count", "profile": "technical", "steps": steps, "plan_id": "plan_killed"})
    )
    handed = _run(project, "plan", "run", "plan.json", "--no-wait", "--json")
    assert handed.returncode == 0, handed.stderr
    deadline = time.monotonic() + 60
    while not (project / "log.txt").exists():
        assert time.monotonic() < deadline, "no step began"
        time.sleep(0.05)
    pid = _json(_run(project, "supervisor", "status", "--json"))["pid"]
    os.kill(pid, 9)
    after = _run(project, "plan", "run", "plan.json", "--json")
    found = _json(after)
    if after.returncode == 3:  # it died inside a command: whether that happened only a person can say
        assert _run(project, "approve", found["approval_id"]).returncode == 0
        found = _json(_run(project, "plan", "run", "plan.json", "--json"))
    lines = (project / "log.txt").read_text().split()
    assert found["success"], found
    assert list(dict.fromkeys(lines)) == ["0", "1", "2", "3"]
    assert len(lines) <= 5  # only what a person allowed to be repeated was


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("{", 2, "cannot be read"),
        ('{"goal": "g", "stepz": []}', 2, "stepz"),
        ('{"goal": "g", "steps": [{"tool": "x", "side_effect_class": "nuke"}]}', 2, "side_effect_class"),
        ('{"goal": "g", "profile": "nobody"}', 2, "There is no profile"),
        ('{"goal": "g", "retry": "often"}', 2, "exponential"),
    ],
)
def test_wrong_plan_files_say_the_cure_and_start_nothing(
    project: Path, text: str, code: int, says: str
) -> None:
    """Each mistake has its sentence, and no supervisor is started for it."""
    (project / "plan.json").write_text(text)
    done = _run(project, "plan", "run", "plan.json")
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert not supervisor_runs()


@pytest.mark.parametrize("words", [("run", "missing.json"), ("show", "plan_x"), ("resume", "plan_x")])
def test_what_is_not_there_is_named(project: Path, words: tuple[str, str]) -> None:
    """Exit code 4."""
    done = _run(project, "plan", *words)
    assert done.returncode == 4, done.stderr
    assert words[1] in done.stderr
