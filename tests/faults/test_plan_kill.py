"""A plan whose runner dies at event boundaries, on both databases: it goes on, loses nothing and repeats nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from proctor.protocol.plans import Plan, PlanStep
from proctor.protocol.states import PLAN, PlanState
from proctor.store.database import Database
from proctor.store.tables import calls
from proctor.trace.reader import stream
from proctor.trace.redact import Redactor
from proctor.trace.verify import verify
from proctor.trace.writer import TraceWriter
from tests.engine.conftest import KEY
from tests.faults.plan_victim import LOST, PlanOrder, front, start
from tests.faults.victim import EXITED

STEPS = 6


def _run(database: Database, root: Path, exit_after: Sequence[int | None], most: int) -> int:
    """Start victims until the plan has ended; gives how many died on the way."""
    url = database.url.render_as_string(hide_password=False)
    steps = tuple(PlanStep(tool="count", input={"number": n}) for n in range(STEPS))
    with TraceWriter(database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        plans = front(database, writer, root)
        row = plans.submit(Plan(goal="count", steps=steps, profile="technical", plan_id="plan_k"))
        died = 0
        while plans.get(row.plan_id).stage not in PLAN.terminal:
            assert died <= most, "no progress"
            victim = start(PlanOrder(url, root, row.plan_id, exit_after[died % len(exit_after)]))
            victim.join(90)
            # On a busy machine a lease of a second may be lost: another death, and the next one goes on.
            assert victim.exitcode in {0, EXITED, LOST}
            died += victim.exitcode == EXITED
        _check(database, root, plans.get(row.plan_id).trace_id)
        assert plans.get(row.plan_id).stage is PlanState.COMPLETED
    return died


def _check(database: Database, root: Path, trace_id: str) -> None:
    """Each step completed once, and nothing of it happened after that; the trace is whole."""
    ended = Counter(
        e.details["call_id"] for e in stream(database, trace_id) if e.event == "tool_call_complete"
    )
    assert list(ended.values()) == [1] * STEPS
    with database.read() as connection:
        rows = connection.execute(sa.select(calls.c.inputs, calls.c.ended_at)).all()
    done = {row.inputs["number"]: row.ended_at.timestamp() for row in rows}
    for line in (root / "effects").read_text().splitlines():
        number, moment = line.split()
        assert float(moment) <= done[int(number)] + 0.01
    assert verify(database, KEY).ok


@pytest.mark.slow
def test_plan_goes_on_after_each_death_and_repeats_nothing(database: Database, tmp_path: Path) -> None:
    """The runner dies right after its fourth event, again and again; the steps that were done stay done."""
    assert _run(database, tmp_path, [4], 30) >= 2


@pytest.mark.slow
def test_plan_goes_on_after_a_death_at_any_event(sqlite_database: Database, tmp_path: Path) -> None:
    """Each runner dies at another place: before, inside and after a call, and right after taking the plan."""
    assert _run(sqlite_database, tmp_path, range(1, 8), 60) >= STEPS


@pytest.mark.slow
def test_plan_without_a_death_has_each_effect_once(database: Database, tmp_path: Path) -> None:
    """The measure for the others."""
    assert _run(database, tmp_path, [None], 0) == 0
    assert len((tmp_path / "effects").read_text().splitlines()) == STEPS
