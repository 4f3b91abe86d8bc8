"""A fix file is worked on once, however often, and by however many, its run is begun."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proctor.engine.fix_run import FixRun
from proctor.engine.tasks import Task
from proctor.protocol.states import TaskState
from tests.engine.conftest import House

_HEAD = {"review_id": "001_signs", "component": "calc", "date": "2027-01-31", "assigned_to": "executor"}


def _sent(root: Path, count: int = 1) -> Path:
    fix = {"severity": "major", "file": "calc.py", "line": 2, "issue": "Lost.", "fix": "Keep it."}
    fixes = [{"id": n, **fix, "verification": "Run the tests."} for n in range(1, count + 1)]
    file = root / "orchestrator" / "outgoing" / "001_signs_fixes.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**_HEAD, "instructions": "Add a result to each fix.", "fixes": fixes}))
    return file


def _run(house: House, file: Path) -> FixRun:
    return FixRun(house.tasks, house.database, house.writer, file, house.root)


def _results(file: Path) -> list[Any]:
    return [fix.get("result") for fix in json.loads(file.read_text())["fixes"]]


def _quiet(_fix_id: str, _task: Task) -> None:
    """Nobody listens."""


async def test_what_ended_while_nobody_watched_is_written_down_and_not_done_again(house: House) -> None:
    """`fixes run` again waits for its tasks, as it says; also for those that have ended meanwhile."""
    file = _sent(house.root)
    first = _run(house, file).add("instant")
    async with house.running():
        await house.ended(*first.values())
    again = _run(house, file)
    assert again.add("instant") == first
    again.follow(first, seconds=5, tell=_quiet)
    assert [result["task_id"] for result in _results(again.finish())] == list(first.values())


def test_a_result_that_a_person_removed_is_worked_on_anew(house: House) -> None:
    """The earlier task's answer is not written a second time."""
    file = _sent(house.root)
    before = file.read_text()
    first = _run(house, file).add(None)
    house.tasks.cancel(first["1"], by="test")
    _run(house, file).follow(first, seconds=5, tell=_quiet)
    assert _results(file)[0]["status"] == "FAILED"
    file.write_text(before)
    second = _run(house, file).add(None)
    assert second.keys() == first.keys()
    assert second != first


def test_two_runs_at_once_add_each_task_once(house: House) -> None:
    """Whoever comes second waits for the tasks of the first."""
    file = _sent(house.root, count=3)
    with ThreadPoolExecutor(4) as pool:
        added = list(pool.map(lambda _: _run(house, file).add(None), range(4)))
    assert all(one == added[0] for one in added)
    assert len(house.tasks.list()) == 3


def test_a_run_whose_file_was_moved_by_another_finds_it_there(house: House) -> None:
    """Both runs end well and name the same place; an answer that is there is not written over."""
    file = _sent(house.root)
    runs = _run(house, file), _run(house, file)
    tasks = runs[0].add(None)
    house.tasks.cancel(tasks["1"], by="test")
    runs[0].follow(tasks, seconds=5, tell=_quiet)
    came = runs[0].finish()
    told = came.read_text()
    runs[1].follow(tasks, seconds=5, tell=_quiet)
    assert (runs[1].finish(), came.read_text()) == (came, told)
    assert (came.parent.name, file.exists()) == ("incoming", False)


def test_an_answer_that_came_back_before_is_kept(house: House) -> None:
    """The file stays where it went out when another of its name lies among what came back."""
    file = _sent(house.root)
    other = file.parent.parent / "incoming" / file.name
    other.parent.mkdir()
    other.write_text("{}")
    tasks = _run(house, file).add(None)
    house.tasks.cancel(tasks["1"], by="test")
    run = _run(house, file)
    run.follow(tasks, seconds=5, tell=_quiet)
    assert (run.finish(), other.read_text()) == (file, "{}")
    assert house.tasks.get(tasks["1"]).status is TaskState.CANCELLED


@pytest.mark.parametrize("place", ["elsewhere", "incoming"])
def test_a_file_outside_the_exchange_stays_where_it_is(house: House, place: str) -> None:
    """Only what went out comes back."""
    file = _sent(house.root)
    moved = house.root / place / file.name
    moved.parent.mkdir()
    file.rename(moved)
    tasks = _run(house, moved).add(None)
    house.tasks.cancel(tasks["1"], by="test")
    run = _run(house, moved)
    run.follow(tasks, seconds=5, tell=_quiet)
    assert run.finish() == moved
