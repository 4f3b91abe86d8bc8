"""`proctor tasks` as a user types it: real commands, real supervisor, simulated agents."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.app import open_app
from proctor.engine.dispatch import Capacity, dispatch
from proctor.engine.tasks import NewTask
from proctor.store.tables import task_queue
from tests.support.supervisors import stop_supervisor, supervisor_runs, until_task

SETTINGS = '[agents.sim]\ndriver = "scripted"\nmax_parallel = 2\n'


@pytest.fixture
def repo(home: Path, tmp_path: Path) -> Iterator[Path]:
    """A repository with a simulated agent; its supervisor is stopped afterwards."""
    place = tmp_path / "repo"
    place.mkdir()
    (place / "proctor.toml").write_text(SETTINGS)
    name = ["-c", "user.name=T", "-c", "user.email=t@localhost"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*name, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *words], cwd=place, check=True, timeout=60)
    yield place
    stop_supervisor()


def _run(repo: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proctor", *words], cwd=repo, capture_output=True, text=True, timeout=100
    )


def _json(repo: Path, *words: str) -> Any:
    done = _run(repo, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _until(fact: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_task_goes_on_when_the_command_has_ended(repo: Path) -> None:
    """Add, wait, show: completed on a branch of its own, marked simulated; the user's checkout is as it was."""
    (repo / "mine.txt").write_text("not committed")
    task = _json(repo, "tasks", "add", "make something", "--agent", "sim", "--priority", "9")
    until_task(task["task_id"], "completed")
    shown = _run(repo, "tasks", "show", task["task_id"][:18]).stdout
    assert "simulated: yes" in shown
    assert f"proctor/{task['task_id']}" in shown
    assert task["task_id"] in _run(repo, "tasks", "list", "--all").stdout
    left = subprocess.run(
        ["git", "status", "--porcelain"], cwd=repo, capture_output=True, text=True, check=True, timeout=30
    )
    assert left.stdout == "?? mine.txt\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code", "status"),
    [('{"say":"well"}', 0, "completed"), ('{"fail":{}}', 1, "failed")],
)
def test_watching_ends_with_the_task_and_tells_how(repo: Path, script: str, code: int, status: str) -> None:
    """Whoever watches sees every event up to the end; the exit code and the last line say how it ended."""
    words = f'Go\nSCRIPT:{{"steps":[{script}]}}'
    done = _run(repo, "tasks", "add", words, "--agent", "sim", "--retries", "0", "--watch", "--json")
    *events, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, last["status"]) == (code, status), done.stderr
    assert (events[0]["event"], events[-1]["event"]) == ("task_added", f"task_{status}")
    again = _run(repo, "tasks", "watch", last["task_id"])
    assert again.returncode == code
    assert len(again.stdout.splitlines()) == len(events) + 1


@pytest.mark.slow
def test_leaving_a_watched_task_does_not_stop_it(repo: Path) -> None:
    """Ctrl-C ends the watching only, and says how to come back."""
    go = repo.parent / "go"
    held = f"for n in $(seq 1200); do test -e {go} && break; sleep 0.1; done"
    words = f"Go\nSCRIPT:{json.dumps({'steps': [{'run': held}]})}"
    task = _json(repo, "tasks", "add", words, "--agent", "sim")["task_id"]
    until_task(task, "in_progress")
    watching = subprocess.Popen(
        [sys.executable, "-m", "proctor", "tasks", "watch", task],
        cwd=repo,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert watching.returncode == 130
    assert f"proctor tasks watch {task}" in said
    go.touch()
    until_task(task, "completed")


@pytest.mark.slow
def test_a_running_task_can_be_cancelled_and_tried_again(repo: Path) -> None:
    """Cancel stops what runs with its tree; retry is a new attempt that counts from the first."""
    hang = 'Wait\nSCRIPT:{"steps":[{"run":"test -e go || sleep 300"}]}'
    task = _json(repo, "tasks", "add", hang, "--agent", "sim")["task_id"]
    until_task(task, "in_progress")
    _json(repo, "tasks", "cancel", task)
    until_task(task, "cancelled")
    assert _json(repo, "tasks", "retry", task)["status"] == "pending"
    _until(lambda: _json(repo, "tasks", "show", task)["attempt"] == 2)
    _json(repo, "tasks", "cancel", task)
    until_task(task, "cancelled")
    outcomes = [row["outcome"] for row in _json(repo, "tasks", "show", task)["attempts"]]
    assert outcomes == ["cancelled", "cancelled"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["add", "x", "--agent", "nobody"], 4, "Known agents"),
        (["add", "x", "--priority", "11"], 2, "11"),
        (["add", "x", "--context", "[1]"], 2, "JSON object"),
        (["add", "x", "--context", '{"a": NaN}'], 2, "JSON"),
        (["add", "x", "--type", "t" * 51], 2, "50"),
        (["add", "x", "--deadline", "tomorrow"], 2, "deadline"),
        (["add", "x", "--after", "task_none"], 4, "task_none"),
        (["add", "   "], 2, "description"),
        (["list", "--status", "done"], 2, "known:"),
        (["show", "task_none"], 4, "task_none"),
        (["cancel", "task_none"], 4, "task_none"),
    ],
)
def test_wrong_words_say_the_cure_and_start_nothing(
    repo: Path, words: list[str], code: int, says: str
) -> None:
    """Each mistake has its exit code and sentence, and no supervisor is started for it."""
    done = _run(repo, "tasks", *words)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert not supervisor_runs()


def test_a_worker_refuses_sqlite_with_the_cure(repo: Path) -> None:
    """Workers share a PostgreSQL; on SQLite the supervisor works."""
    done = _run(repo, "worker")
    assert done.returncode == 2
    assert "PROCTOR_DATABASE_URL" in done.stderr


def _stop_between_writes(pid: int, repo: Path) -> None:
    """Stop a process where it holds no lock: who is stopped in the middle of a write keeps all others out."""
    app = open_app(repo)
    place = str(app.database.url.database)
    app.close()
    for _ in range(100):
        os.kill(pid, signal.SIGSTOP)
        bare = sqlite3.connect(place, timeout=0.2, isolation_level=None)
        with closing(bare), suppress(sqlite3.OperationalError):
            bare.execute("BEGIN IMMEDIATE")
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)
    raise AssertionError("it writes all the time")


@pytest.mark.slow
def test_a_task_is_named_also_when_nobody_executes_it(repo: Path) -> None:
    """The supervisor does not answer: who reads no id would add it again, and it would be done twice."""
    pid = int(_json(repo, "supervisor", "start")["pid"])
    _stop_between_writes(pid, repo)
    try:
        added = _run(repo, "tasks", "add", "x", "--agent", "sim", "--json")
        task = json.loads(added.stdout)
        assert (added.returncode, task["status"]) == (6, "pending")
        assert f"{task['task_id']} is pending" in added.stderr
        cancelled = _run(repo, "tasks", "cancel", task["task_id"])
        assert (cancelled.returncode, cancelled.stdout.split()) == (6, [task["task_id"], "cancelled"])
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_list_that_is_cut_says_so(repo: Path) -> None:
    """Nobody takes a part for the whole; JSON on standard output stays JSON."""
    app = open_app(repo)
    app.tasks.add_many([NewTask("first"), NewTask("second")])
    app.close()
    cut = _run(repo, "tasks", "list", "--limit", "1", "--json")
    assert (len(json.loads(cut.stdout)), "truncated" in cut.stderr) == (1, True)
    assert "truncated" in _run(repo, "tasks", "list", "--limit", "1").stdout
    assert "truncated" not in _run(repo, "tasks", "list", "--limit", "2").stdout


def test_watching_a_row_of_another_program_shows_its_own_events_only(repo: Path) -> None:
    """It has no trace until it is adopted; whoever watches waits for that and sees nothing of the others."""
    app = open_app(repo)
    app.tasks.add(NewTask("of somebody else"))
    with app.database.write() as connection:
        connection.execute(task_queue.insert().values(task_id="by-sql", description=" ", status="assigned"))
    words = [sys.executable, "-m", "proctor", "tasks", "watch", "by-sql", "--json"]
    watching = subprocess.Popen(words, cwd=repo, stdout=subprocess.PIPE, text=True)
    looked = app.writer.transact(lambda c: dispatch(c, Capacity({"sim": 1}), datetime.now(UTC), full=True))
    app.close()
    said, _ = watching.communicate(timeout=100)
    assert looked.changed == 2
    *events, last = [json.loads(line) for line in said.splitlines()]
    assert {event["task_id"] for event in events} == {"by-sql"}
    assert (watching.returncode, last["status"]) == (1, "failed")
