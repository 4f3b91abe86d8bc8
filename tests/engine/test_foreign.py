"""Rows that other programs put in: none of them stops or hides the others, and each says what is wrong with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from proctor.agents.driver import AttemptEnd, AttemptRequest, Outcome
from proctor.engine.foreign import Reading, defect_of
from proctor.engine.reconciler import Reconciler
from proctor.engine.tasks import NewTask, Task
from proctor.protocol.errors import UsageError
from proctor.protocol.states import TaskState
from proctor.store.tables import task_queue
from proctor.testing.instant import InstantDriver, InstantRun
from tests.engine.conftest import House
from tests.support.rows import NOON

GOOD: dict[str, Any] = {
    "task_id": "t-1",
    "description": "d",
    "priority": 5,
    "attempt": 0,
    "retry_count": 0,
    "max_retries": 2,
    "depends_on_task_ids": [],
    "file_paths": None,
    "context": {},
    "created_at": NOON,
    "assigned_at": None,
    "started_at": None,
    "completed_at": None,
    "deadline": "",
    "not_before": None,
}
# What only SQLite lets in, as SQL text: each beside what the failed task must name.
RUBBISH = {
    "depends_on_task_ids": "'not json'",
    "context": "'{''a'': 1}'",
    "deadline": "'tomorrow'",
    "created_at": "x'ff00'",
    "retry_count": "'many'",
    "file_paths": "'" + "[" * 100_000 + "'",
}
# What both databases let in.
SHAPES = {
    "depends_on_task_ids": '{"a": 1}',
    "file_paths": '["a", 7]',
    "context": "[1, 2]",
}


def _insert(house: House, task_id: str, **columns: str) -> None:
    """Put a row in as another program does: by SQL, ready for the agent."""
    values = {"task_id": f"'{task_id}'", "description": "'x'", "status": "'assigned'"}
    values |= {"assigned_to_agent": "'instant'", **columns}
    sql = f"INSERT INTO task_queue ({', '.join(values)}) VALUES ({', '.join(values.values())})"
    with house.database.write() as connection:
        connection.exec_driver_sql(sql)


async def _failed(house: House, bad: dict[str, str]) -> dict[str, str]:
    """Run a good row beside bad ones; the reasons of those that failed before anybody ran them."""
    for name, value in bad.items():
        _insert(house, f"bad-{name}", **{name: value})
    _insert(house, "good")
    async with house.running():
        good, *rest = await house.ended("good", *[f"bad-{name}" for name in bad])
    assert good.status is TaskState.COMPLETED
    assert {task.task_id for task in house.tasks.list(status=["failed"])} == {task.task_id for task in rest}
    return {task.task_id.removeprefix("bad-"): task.error or "" for task in rest if task.attempt == 0}


async def test_a_row_of_the_wrong_shape_fails_with_its_reason_and_stops_nobody(house: House) -> None:
    """JSON of another shape than ours ends its own task, before anybody runs it."""
    found = await _failed(house, {name: f"'{value}'" for name, value in SHAPES.items()})
    assert {name for name, reason in found.items() if f"{name} is not" in reason} == set(SHAPES)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_row_that_cannot_be_read_fails_with_its_reason_and_stops_nobody(house: House) -> None:
    """SQLite keeps anything anywhere (PostgreSQL refuses it): what is no JSON, time or number is named."""
    found = await _failed(house, RUBBISH)
    assert {name for name, reason in found.items() if f"{name} is not" in reason} == set(RUBBISH)


async def test_a_name_that_is_no_directory_or_branch_is_refused(house: House) -> None:
    """The id of a row becomes a path and a branch: one that could leave its place never runs."""
    names = ["../escape", "a b", ".hidden", "x.lock", "a..b", "dot."]
    for name in names:
        _insert(house, name)
    _insert(house, "silent", description="'  '")
    async with house.running():
        *ended, silent = await house.ended(*names, "silent")
    assert [(task.status, task.attempt) for task in ended] == [(TaskState.FAILED, 0)] * len(names)
    assert all("task_id" in (task.error or "") for task in ended)
    assert "description is empty" in (silent.error or "")


async def test_a_defect_in_looking_stops_no_agent(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a look raises, what runs goes on to its end; the next look finds the rest."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def hold(_request: AttemptRequest, _run: InstantRun) -> AttemptEnd:
        began.set()
        await asyncio.wait_for(go_on.wait(), 60)
        return AttemptEnd(Outcome.SUCCEEDED, "done")

    house.drivers["held"] = InstantDriver(hold)
    looked, broken = asyncio.Event(), True
    look = Reconciler.look

    async def faulty(self: Reconciler, *, full: bool) -> int:
        if began.is_set() and broken:
            looked.set()
            raise TypeError("a defect")
        return await look(self, full=full)

    monkeypatch.setattr(Reconciler, "look", faulty)
    first = house.tasks.add(NewTask("runs", agent="held"))
    async with house.running() as executor:
        me = executor.executor_id
        await asyncio.wait_for(looked.wait(), 60)
        assert not executor.lost
        go_on.set()
        broken = False
        second = house.tasks.add(NewTask("later", agent="instant"))
        ended = await house.ended(first.task_id, second.task_id)
    assert {task.status for task in ended} == {TaskState.COMPLETED}
    attempts = house.tasks.show(first.task_id).attempts
    assert [(row["attempt"], row["owner"]) for row in attempts] == [(1, me)]


ANYTHING = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers()), st.just({"a": 1})
)


@given(
    name=st.sampled_from([name for name in GOOD if name not in {"task_id", "description"}]), value=ANYTHING
)
def test_reading_never_raises_and_names_what_it_left_out(name: str, value: object) -> None:
    """Whatever stands in a column, reading it gives something of the column's kind."""
    row = {**GOOD, name: value}
    defect = defect_of(row)
    assert defect is None or name in defect
    read = Reading(row)
    assert isinstance(read.texts("depends_on_task_ids"), tuple)
    assert isinstance(read.number("attempt"), int)
    assert read.facts("context") is None or read.facts("context") == {**(read.facts("context") or {})}


def test_a_row_of_ours_has_no_defect(house: House) -> None:
    """What the front door writes is what the reader wants."""
    task = house.tasks.add(NewTask("x", file_paths=["a"], context={"k": 1}, deadline=NOON))
    with house.database.read() as connection:
        row = connection.execute(sa.select(task_queue)).mappings().one()
    assert defect_of(row) is None
    assert Task.of(row) == house.tasks.get(task.task_id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"description": "a\0b"},
        {"task_type": "t" * 51},
        {"task_type": ""},
        {"context": {"a": float("nan")}},
        {"context": {"a": object()}},
        {"context": {"a": "x" * 1_000_001}},
    ],
    ids=["zero", "long type", "no type", "not a number", "no JSON", "huge"],
)
def test_what_one_database_would_not_keep_is_refused_at_the_front_door(wrong: dict[str, Any]) -> None:
    """The same task is refused on both, as the caller's mistake and with a sentence."""
    with pytest.raises(UsageError):
        NewTask(**{"description": "x", **wrong}).check()
