"""Bugs of the seeds' origins that plans, coordinators and façades must not have, where no other file holds them already.

docs/SPEC.md has the whole table, each bug with its tests.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proctor.compat import approval_manager, coordinator
from proctor.compat.agent_coordinator import AgentCoordinator
from proctor.compat.house import House
from proctor.compat.orchestrator import AGENTSCoordinator, ExecutionContext, Plan, PlanStep, TraceEmitter
from proctor.config import load_settings
from proctor.engine.tasks import NewTask
from tests.layers.tree import PACKAGE, modules, parse
from tests.server.conftest import Door, served
from tests.support.supervisors import stop_supervisor


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A state of the test's own."""
    made = House(tmp_path / "state")
    yield made
    made.close()


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A real server."""
    with served(tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.fixture
def queue(home: Path, tmp_path: Path) -> Iterator[House]:
    """A project with a scripted agent, in the user's own state."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "proctor.toml").write_text('[agents.sim]\ndriver = "scripted"\n')
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=T", "-c", "user.email=t@t", "commit", "-qm", "B"],
    ):
        subprocess.run(["git", *words], cwd=project, check=True, timeout=60)
    made = House(settings=load_settings(project))
    yield made
    made.close()
    stop_supervisor()


@pytest.mark.slow
def test_bug_9_two_coordinators_run_a_task_once(queue: House) -> None:
    """The origin selected, then updated: whoever looked at the same time ran it too."""
    project = queue.app.settings.workspace
    assert project is not None
    task = queue.app.tasks.add(NewTask("once", agent="sim", workspace=str(project)))
    both = [AgentCoordinator(house=queue, workspace=project, task_seconds=60) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda one: one.execute_task(task.task_id), both))
    assert [one["success"] for one in results] == [True, True]
    assert len(queue.app.tasks.show(task.task_id).attempts) == 1


def test_bug_15_nobody_is_killed_for_a_name(house: House, tmp_path: Path) -> None:
    """The origin's clean-up killed every Python whose command line said `coordinator`, itself included."""
    words = [sys.executable, "-c", "import time; time.sleep(60)", "coordinator", "powershell"]
    bystander = subprocess.Popen(words)
    try:
        made = AgentCoordinator(house=house, workspace=tmp_path)
        made.stop()
        made.run(0.1)
        made.close_db()
        time.sleep(0.2)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait(30)
    named = [
        path.name for path in modules(PACKAGE) if {"pkill", "killall"} & set(path.read_text().split('"'))
    ]
    assert set(named) <= {"programs.py", "wrappers.py", "names.py", "words.py"}  # the policy's own lists


def test_bug_26_plan_of_one_trace_stays_out_of_another(house: House) -> None:
    """Two coordinators, two traces: none sees the other's events."""
    first, second = (AGENTSCoordinator(profile="technical", house=house) for _ in range(2))
    plan = Plan(plan_id="p", goal="g", steps=[PlanStep(tool="t")])
    asyncio.run(first.execute_plan(plan, ExecutionContext(trace_id=first.trace_emitter.trace_id)))
    assert first.get_trace() != []
    assert second.get_trace() == []


def test_bug_28_events_before_a_reader_came_are_there_and_no_loop_is_needed(house: House) -> None:
    """The origin lost what came before a viewer, and warned of a coroutine nobody awaited."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        emitter = TraceEmitter(house=house)
        emitter.emit("plan_created", {"n": 1}, status="success")
    late = [TraceEmitter(emitter.trace_id, house=house) for _ in range(2)]
    assert [[event["details"]["n"] for event in one.get_trace()] for one in late] == [[1], [1]]


def test_bug_29_what_a_coordinator_remembers_is_bounded(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The origin's coordinators and events grew for ever; here the log is on disk and memory holds the newest."""
    monkeypatch.setattr(coordinator, "_MAX_TRACES", 3)
    monkeypatch.setattr(approval_manager, "_MAX_KNOWN", 2)
    made = AGENTSCoordinator(profile="enterprise", house=house)
    for number in range(5):
        context = ExecutionContext(trace_id=f"trace-{number}")
        asyncio.run(made.execute_plan(Plan(plan_id=f"p{number}", goal="g", steps=[]), context))
        made.approval_manager.request_approval("a", "t", {}, "r", "execute")
    assert len(made._traces) == 3
    assert len(made.approval_manager.pending_approvals) == 2
    assert len(made.approval_manager.list_pending()) == 5


def test_bug_31_every_module_compiles_and_no_route_is_doubled(door: Door) -> None:
    """The origin's capability routes never existed: their file did not compile, and the prefix stood twice."""
    assert all(parse(path).body for path in modules(PACKAGE))
    paths = door.get("/openapi.json").json()["paths"]
    assert len(paths) > 50
    assert [one for one in paths if "/api/api" in one or "//" in one] == []


def test_bug_33_figures_are_facts_or_an_error(door: Door) -> None:
    """The origin's UI made budgets up and called addresses that were not there; here what is shown was counted."""
    run = "trace_of_bug_33"
    assert _used(door, run) == 0
    for number in (1, 2):
        body = {"tool": "t", "input": {}, "metadata": {"domain": "test"}}
        plan = {
            "plan_id": f"p33_{number}",
            "goal": "g",
            "steps": [body],
            "profile": "technical",
            "trace_id": run,
        }
        assert door.post("/api/agents/execute", plan).status_code == 200
        assert _used(door, run) == number
    assert door.get("/api/agents/budget/nobody").status_code == 404
    assert door.get("/api/approve").status_code == 405  # it exists, and only a POST answers
    assert door.post("/api/approve", {"request_id": "nobody", "approved": True}).status_code == 404


def _used(door: Door, run: str) -> int:
    found: int = door.get(f"/api/agents/budget/technical?run={run}").json()["used_calls"]
    return found
