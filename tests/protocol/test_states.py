"""The state machines: only lawful steps, everything can end, and the seeds' words never lie."""

from __future__ import annotations

from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.protocol.errors import InvalidTransitionError
from proctor.protocol.states import DIALECTS, PLAN, SESSION, TASK, Machine, TaskState, translate

MACHINES: list[Machine[StrEnum]] = [TASK, SESSION, PLAN]  # type: ignore[list-item]  # Machine is invariant; read only here
any_machine = st.sampled_from(MACHINES)


@given(any_machine, st.data())
def test_any_walk_stays_lawful_and_ends_only_in_terminal_states(
    machine: Machine[StrEnum], data: st.DataObject
) -> None:
    """Whatever targets are asked for, the state is one of the machine's and ends keep it."""
    states = list(machine.steps)
    current = machine.initial
    for target in data.draw(st.lists(st.sampled_from(states), max_size=30)):
        if machine.allows(current, target):
            assert current not in machine.terminal
            current = machine.step(current, target)
        else:
            with pytest.raises(InvalidTransitionError, match="Invalid transition"):
                machine.step(current, target)
    assert current in states


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.name))
def test_every_state_is_reachable_and_can_reach_an_end(machine: Machine[StrEnum]) -> None:
    """No state is an island and no open state is a trap."""
    reached, frontier = {machine.initial}, [machine.initial]
    while frontier:
        for target in machine.steps[frontier.pop()] - reached:
            reached.add(target)
            frontier.append(target)
    assert reached == set(machine.steps)
    ending = set(machine.terminal)
    while more := {s for s in machine.steps if s not in ending and machine.steps[s] & ending}:
        ending |= more
    assert ending == set(machine.steps)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.name))
def test_sources_are_the_inverse_of_steps(machine: Machine[StrEnum]) -> None:
    """The WHERE of a guarded update names exactly the states that allow the step."""
    for target in machine.steps:
        assert machine.sources(target) == {s for s in machine.steps if machine.allows(s, target)}


def test_only_work_that_ran_can_complete() -> None:
    """A task that never started cannot be completed, whatever somebody writes."""
    assert TASK.sources(TaskState.COMPLETED) == {TaskState.IN_PROGRESS, TaskState.VERIFYING}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_each_dialect_has_a_word_for_every_state(dialect: str) -> None:
    """A reader of a seed's surface always gets a word of that seed."""
    assert set(DIALECTS[dialect]) == set(TaskState)


@pytest.mark.parametrize("dialect", sorted(set(DIALECTS) - {"fix", "instruction"}))
def test_no_dialect_calls_open_work_finished(dialect: str) -> None:
    """Words for completed are used for completed tasks only."""
    done = translate(TaskState.COMPLETED, dialect)
    assert [state for state in TaskState if translate(state, dialect) == done] == [TaskState.COMPLETED]
