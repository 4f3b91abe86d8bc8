"""Questions of agents: held, parked, answered later, expired; an answer is bound to its call and used once."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.agents.scripted import ScriptedDriver
from proctor.engine.executor import Executor
from proctor.engine.tasks import NewTask, Task
from proctor.gate import approvals as gate_approvals
from proctor.gate.approvals import answer_approval
from proctor.gate.grants import Scope, list_grants, revoke_grant
from proctor.gate.humans import Human, user_at_terminal
from proctor.gate.profiles import find_profile
from proctor.protocol.errors import UsageError
from proctor.protocol.states import TaskState
from proctor.store.tables import approvals, attempts, events
from tests.engine.asking import AskingDriver
from tests.engine.conftest import FakeClock, House
from tests.support.rows import rows_of


def ask(house: House, *calls: dict[str, Any]) -> tuple[AskingDriver, Task]:
    """A task whose agent asks for these calls."""
    driver = AskingDriver(*calls)
    house.drivers["asking"] = driver
    return driver, house.tasks.add(NewTask("ask", agent="asking"))


def questions(house: House) -> list[dict[str, Any]]:
    """All of them, the oldest first."""
    return rows_of(house.database, sa.select(approvals).order_by(approvals.c.requested_at))


def _as_many(house: House, count: int) -> bool:
    return len(questions(house)) == count


def answer(house: House, executor: Executor | None, approved: bool, number: int = 0) -> bool:
    """A person answers one of them."""
    row = questions(house)[number]
    moment = row["requested_at"] + timedelta(minutes=1)
    done = house.writer.transact(
        lambda c: answer_approval(
            c, row["approval_id"], approved=approved, by="ann", reason="because", now=moment
        )
    )
    if executor is not None:
        executor.wake()
    return done


async def test_a_held_question_is_answered_through_the_open_pipe(house: House) -> None:
    """The agent waits, a person says yes, the same attempt goes on; the trace has question and answer."""
    driver, task = ask(house)
    async with house.running() as executor:
        await house.until(lambda: len(questions(house)) == 1)
        assert house.tasks.get(task.task_id).status is TaskState.IN_PROGRESS
        assert answer(house, executor, approved=True)
        (ended,) = await house.ended(task.task_id)
    assert (ended.status, ended.attempt) == (TaskState.COMPLETED, 1)
    assert driver.done == [{"command": "deploy"}]
    told = rows_of(house.database, sa.select(events.c.event).where(events.c.event.like("approval%")))
    assert [row["event"] for row in told] == ["approval_requested", "approval_received"]


async def test_a_no_reaches_the_agent_and_the_effect_does_not_happen(house: House) -> None:
    """Denied is denied."""
    driver, task = ask(house)
    async with house.running() as executor:
        await house.until(lambda: len(questions(house)) == 1)
        answer(house, executor, approved=False)
        await house.ended(task.task_id)
    assert (driver.done, driver.refused) == ([], [{"command": "deploy"}])


async def test_an_answer_is_used_once_and_for_its_call_only(house: House) -> None:
    """The same call asked twice, and another one: three questions, three answers."""
    same, other = {"command": "deploy"}, {"command": "drop"}
    driver, task = ask(house, same, same, other)
    async with house.running() as executor:
        for number, yes in enumerate((True, False, True)):
            await house.until(partial(_as_many, house, number + 1))
            answer(house, executor, yes, number)
        await house.ended(task.task_id)
    assert (driver.done, driver.refused) == ([same, other], [same])


async def test_a_parked_task_resumes_with_its_answer(house: House) -> None:
    """Nobody answered in time: parked without thread or process; answered later, a new attempt resumes and may act."""
    driver, task = ask(house)
    async with house.running(hold_s=0.1) as executor:
        await house.until(lambda: house.tasks.get(task.task_id).status is TaskState.AWAITING_APPROVAL)
        assert executor.attempts.running == {}
        assert house.tasks.get(task.task_id).owner is None
        answer(house, executor, approved=True)
        (ended,) = await house.ended(task.task_id)
    assert (ended.status, ended.attempt, driver.done) == (TaskState.COMPLETED, 2, [{"command": "deploy"}])
    assert [request.resume for request in driver.requests] == [None, f"instant-{task.task_id}"]
    outcomes = rows_of(house.database, sa.select(attempts.c.outcome).order_by(attempts.c.attempt))
    assert [row["outcome"] for row in outcomes] == ["parked", "succeeded"]
    assert len(questions(house)) == 1


async def test_a_late_no_is_told_to_the_resumed_agent(house: House) -> None:
    """Rejected after parking: the agent hears no and the effect does not happen."""
    driver, task = ask(house)
    async with house.running(hold_s=0.1) as executor:
        await house.until(lambda: house.tasks.get(task.task_id).status is TaskState.AWAITING_APPROVAL)
        answer(house, executor, approved=False)
        await house.ended(task.task_id)
    assert (driver.done, driver.refused) == ([], [{"command": "deploy"}])


async def test_an_expired_question_blocks_and_is_never_run(house: House) -> None:
    """After 24 hours on the clock: blocked, not run, not denied; an answer is too late; a retry asks anew."""
    clock = FakeClock()
    driver, task = ask(house)
    async with house.running(hold_s=0.05, clock=clock) as executor:

        def status() -> TaskState:
            executor.wake()
            clock.forward(seconds=1)  # looks happen on this clock
            return house.tasks.get(task.task_id).status

        await house.until(lambda: status() is TaskState.AWAITING_APPROVAL)
        clock.forward(hours=23, minutes=50)
        assert questions(house)[0]["status"] == "pending"
        clock.forward(minutes=20)
        await house.until(lambda: status() is TaskState.BLOCKED)
        assert not answer(house, executor, approved=True)
        assert questions(house)[0]["status"] == "timeout"
        assert (driver.done, driver.refused, len(driver.requests)) == ([], [], 1)
        house.tasks.retry(task.task_id, by="ann")
        await house.until(lambda: status() is TaskState.AWAITING_APPROVAL)
    assert [row["status"] for row in questions(house)] == ["timeout", "pending"]


async def test_a_taken_over_question_is_asked_once(house: House) -> None:
    """The executor goes away while a question is held: the next one waits for the same row."""
    driver, task = ask(house)
    async with house.running():
        await house.until(lambda: len(questions(house)) == 1)
    assert house.tasks.get(task.task_id).status is TaskState.IN_PROGRESS
    async with house.running() as executor:
        await house.until(lambda: len(driver.requests) == 2)
        await house.until(lambda: task.task_id in executor.attempts.running)
        answer(house, executor, approved=True)
        (ended,) = await house.ended(task.task_id)
    assert (ended.status, driver.done) == (TaskState.COMPLETED, [{"command": "deploy"}])
    assert len(questions(house)) == 1


async def test_cancelling_does_not_wait_for_a_held_question(house: House) -> None:
    """The pipe is let go at once, and nobody is asked for nothing any more."""
    driver, task = ask(house)
    async with house.running() as executor:
        await house.until(lambda: len(questions(house)) == 1)
        house.tasks.cancel(task.task_id, by="ann")
        executor.wake()
        (ended,) = await house.ended(task.task_id)
    assert (ended.status, driver.done) == (TaskState.CANCELLED, [])
    assert [row["status"] for row in questions(house)] == ["void"]


async def test_cancelling_a_parked_task_takes_its_question_back(house: House) -> None:
    """The row is void: an answer to it is refused."""
    _, task = ask(house)
    async with house.running(hold_s=0.05):
        await house.until(lambda: house.tasks.get(task.task_id).status is TaskState.AWAITING_APPROVAL)
    assert house.tasks.cancel(task.task_id, by="ann").status is TaskState.CANCELLED
    assert [row["status"] for row in questions(house)] == ["void"]
    assert not answer(house, None, approved=True)


def ann(house: House) -> Human:
    """A recognised person."""
    return user_at_terminal({}, token_file=house.root / "token", name="ann")


def grant(house: House, scope: Scope, number: int = 0) -> None:
    """A person says yes to one question and to its class."""
    row = questions(house)[number]
    house.writer.transact(
        lambda c: gate_approvals.answer(
            c, row["approval_id"], approved=True, by=ann(house), grant=scope, now=datetime.now(UTC)
        )
    )


def told(house: House) -> list[str]:
    """What the trace says was answered without anybody."""
    found = rows_of(house.database, sa.select(events.c.details).where(events.c.event == "note"))
    return [json.loads(row["details"]).get("what", "") for row in found]


DEPLOYS = ({"command": "deploy staging a"}, {"command": "deploy staging b"}, {"command": "deploy live"})


@pytest.mark.parametrize("scope", list(Scope))
async def test_a_grant_answers_further_questions_of_its_class(house: House, scope: Scope) -> None:
    """The class of the first covers the second without a question; the third is of another class and asks."""
    driver, task = ask(house, *DEPLOYS)
    async with house.running() as executor:
        await house.until(partial(_as_many, house, 1))
        assert questions(house)[0]["classes"] == ["command:no-rule:deploy staging"]
        grant(house, scope)
        executor.wake()
        await house.until(partial(_as_many, house, 2))
        answer(house, executor, False, 1)
        await house.ended(task.task_id)
    assert (driver.done, driver.refused) == ([*DEPLOYS[:2]], [DEPLOYS[2]])
    assert told(house) == ["allowed by grant"]


async def test_a_grant_for_a_task_ends_with_it_and_one_forever_is_a_line_that_can_be_revoked(
    house: House,
) -> None:
    """Another task asks again under `task`; under `always` it does not, until the line is taken back."""
    _, first = ask(house, DEPLOYS[0])
    async with house.running() as executor:
        await house.until(partial(_as_many, house, 1))
        grant(house, Scope.TASK)
        executor.wake()
        await house.ended(first.task_id)
        second = house.tasks.add(NewTask("again", agent="asking"))
        await house.until(partial(_as_many, house, 2))
        grant(house, Scope.ALWAYS, 1)
        executor.wake()
        third = house.tasks.add(NewTask("once more", agent="asking"))
        await house.ended(second.task_id, third.task_id)
        assert len(questions(house)) == 2
        with house.database.read() as connection:
            lines = list_grants(connection, datetime.now(UTC))
        always = next(line for line in lines if line.scope is Scope.ALWAYS)
        assert "allow command:no-rule:deploy staging always" in always.sentence()
        house.writer.transact(
            lambda c: revoke_grant(c, always.grant_id, by=ann(house), now=datetime.now(UTC))
        )
        fourth = house.tasks.add(NewTask("after that", agent="asking"))
        await house.until(partial(_as_many, house, 3))
        answer(house, executor, True, 2)
        await house.ended(fourth.task_id)


async def test_what_the_policy_denies_is_refused_without_asking_anybody(house: House) -> None:
    """A command no profile allows gets its no at once, with the rule's reason, in the trace too."""
    driver, task = ask(house, {"command": "rm -rf /"}, {"path": ".git/hooks/pre-commit"})
    async with house.running():
        await house.ended(task.task_id)
    assert (questions(house), driver.done) == ([], [])
    assert told(house) == ["denied by policy", "denied by policy"]
    assert all("the policy forbids it" in reason for reason in driver.reasons)


@pytest.mark.parametrize(
    "call",
    [
        {"command": "git push --force origin main"},
        {"command": "$TOOL now"},
        {"command": "deploy `whoami`"},
        {},
    ],
)
async def test_an_act_that_no_class_describes_can_only_be_answered_itself(
    house: House, call: dict[str, Any]
) -> None:
    """Irreversible, named at run time, or without inputs: a grant for it is refused, a plain yes is not."""
    _, task = ask(house, call)
    async with house.running() as executor:
        await house.until(partial(_as_many, house, 1))
        if call:
            assert questions(house)[0]["classes"] == []
            with pytest.raises(UsageError):
                grant(house, Scope.ALWAYS)
        answer(house, executor, True)
        (ended,) = await house.ended(task.task_id)
    assert ended.status is TaskState.COMPLETED


async def test_the_reason_of_a_no_reaches_the_agent(house: House) -> None:
    """What the person wrote is what the agent is told."""
    driver, task = ask(house)
    async with house.running() as executor:
        await house.until(partial(_as_many, house, 1))
        answer(house, executor, approved=False)
        await house.ended(task.task_id)
    assert driver.reasons == ["a person said no: because"]


async def test_under_a_profile_that_never_asks_the_answer_is_no_at_once(house: House) -> None:
    """Unattended: nobody is asked and nothing is parked; the reason is told."""
    driver, task = ask(house, *DEPLOYS)
    async with house.running(profile_of=lambda _: find_profile("unattended")):
        await house.ended(task.task_id)
    assert (questions(house), driver.done, len(driver.refused)) == ([], [], 3)
    assert driver.reasons[0] == "nobody is asked under the profile unattended"
    assert told(house) == ["denied by profile"] * 3


async def test_an_agent_that_dies_while_it_asks_is_parked_and_gets_the_answer_when_it_resumes(
    house: House,
) -> None:
    """Nobody is held for ten minutes for a dead agent, its answer is not used up by it, and nobody is asked twice."""
    house.drivers["sim"] = ScriptedDriver()
    steps = [{"ask": {"tool": "Bash", "input": {"command": "deploy"}}}, {"say": "deployed"}]
    task = house.tasks.add(NewTask(f"SCRIPT:{json.dumps({'steps': steps})}", agent="sim"))
    async with house.running() as executor:
        await house.until(lambda: len(questions(house)) == 1)
        (row,) = rows_of(house.database, sa.select(attempts.c.pid))
        os.kill(row["pid"], signal.SIGKILL)
        await house.until(lambda: house.tasks.get(task.task_id).status is TaskState.AWAITING_APPROVAL)
        answer(house, executor, approved=True)
        (ended,) = await house.ended(task.task_id)
    assert (ended.status, ended.attempt) == (TaskState.COMPLETED, 2)
    assert [one["status"] for one in questions(house)] == ["approved"]


async def test_a_question_ends_with_its_task(house: House) -> None:
    """Taken over, the agent went another way: the question that it left open is asked of nobody any more."""
    driver, task = ask(house)
    async with house.running():
        await house.until(lambda: len(questions(house)) == 1)
    driver.calls = ()
    async with house.running():
        (ended,) = await house.ended(task.task_id)
    assert ended.status is TaskState.COMPLETED
    assert [one["status"] for one in questions(house)] == ["void"]
