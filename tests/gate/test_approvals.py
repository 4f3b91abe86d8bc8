"""Questions to a person: bound to what was shown, answered once by a human, never silently denied or run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from proctor.gate.approvals import Waiter, expire_approvals, pending
from proctor.gate.consequences import MAX_LINES
from proctor.gate.grants import Scope, list_grants, revoke_grant
from proctor.gate.humans import Human, user_at_terminal
from proctor.protocol.errors import NotFoundError, RefusedError, UsageError
from tests.gate.world import HUMAN, World

PUSH = {"command": "git push origin main"}


async def test_answered_call_runs_when_it_comes_again(world: World) -> None:
    """Waiting, answered, run once: the answer opens one call and no second one."""
    asked = await world.run("command", inputs=PUSH)
    assert asked.waiting
    assert asked.approval_id is not None
    assert world.ran.names == []
    assert (await world.run("command", inputs=PUSH)).approval_id == asked.approval_id
    world.answer(asked.approval_id, reason="go on")
    done = await world.run("command", inputs=PUSH)
    assert done.ok
    assert done.approval_id == asked.approval_id
    again = await world.run("command", inputs=PUSH)
    assert again.waiting
    assert again.approval_id != asked.approval_id
    assert world.ran.names == ["command"]
    names = [event.event for event in world.events()]
    assert names[:4] == ["approval_requested", "approval_received", "tool_call_start", "tool_call_complete"]


async def test_answer_while_the_caller_waits_lets_it_run(world: World) -> None:
    """A held call goes on as soon as the row is answered, without polling per question."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(world.run("send", hold_s=20))
        await world.asked()
        await asyncio.to_thread(world.answer, world.questions[0]["approval_id"])
    assert running.result().ok


async def test_no_stays_a_no_within_the_task(world: World) -> None:
    """The same act is not asked again; the reason is told; another task may ask."""
    asked = await world.run("send", task_id="task_1")
    world.answer(asked.approval_id or "", approved=False, reason="not on Friday")
    for _ in range(2):
        result = await world.run("send", task_id="task_1")
        assert result.error is not None
        assert result.error.code == "approval_rejected"
        assert "ada said no: not on Friday" in result.error.message
    assert (await world.run("send", task_id="task_2")).waiting
    assert world.ran.names == []


async def test_answer_is_void_when_the_call_changes(world: World) -> None:
    """Approved was one content; another one asks anew, and the first answer is not used for it."""
    asked = await world.run("send", inputs={"content": "hello"})
    world.answer(asked.approval_id or "")
    other = await world.run("send", inputs={"content": "goodbye"})
    assert other.waiting
    assert other.approval_id != asked.approval_id
    assert world.ran.names == []


async def test_answer_is_void_when_the_ground_changes(world: World) -> None:
    """The person saw a difference to a file; when the file changes, that answer opens nothing."""
    secret = world.workspace / ".env"
    secret.write_text("A=1\n")
    change = {"path": ".env", "content": "A=2\n"}
    asked = await world.run("write", inputs=change)
    shown = world.questions[0]["consequences"]
    assert "-A=1" in shown
    assert "+A=2" in shown
    world.answer(asked.approval_id or "")
    secret.write_text("A=1\nB=1\n")
    again = await world.run("write", inputs=change)
    assert again.waiting
    assert [row["status"] for row in world.questions] == ["void", "pending"]
    assert secret.read_text() == "A=1\nB=1\n"
    world.answer(again.approval_id or "")
    assert (await world.run("write", inputs=change)).ok


async def test_ground_that_changes_while_the_caller_waits_voids_the_answer(world: World) -> None:
    """The question is worked out anew after the wait."""
    secret = world.workspace / ".env"
    secret.write_text("A=1\n")

    def change_and_answer() -> None:
        secret.write_text("A=9\n")
        world.answer(world.questions[0]["approval_id"])

    async with asyncio.TaskGroup() as group:
        call = world.run("write", inputs={"path": ".env", "content": "A=2\n"}, hold_s=3)
        running = group.create_task(call)
        await world.asked()
        await asyncio.to_thread(change_and_answer)
    assert running.result().waiting
    assert secret.read_text() == "A=9\n"


async def test_unanswered_question_expires_and_is_neither_yes_nor_no(world: World) -> None:
    """After 24 hours it is a timeout with its event; the call asks anew."""
    asked = await world.run("send")
    world.clock.ahead = timedelta(hours=23, minutes=59)
    assert (await world.run("send")).approval_id == asked.approval_id
    world.clock.ahead = timedelta(hours=24, minutes=1)
    with pytest.raises(UsageError, match="expired"):
        world.answer(asked.approval_id or "")
    assert world.writer.transact(lambda c: expire_approvals(c, world.clock.now())) == 1
    assert [row["status"] for row in world.questions] == ["timeout"]
    assert len(world.events("approval_timeout")) == 1
    again = await world.run("send")
    assert again.waiting
    assert again.approval_id != asked.approval_id
    assert world.ran.names == []


async def test_question_shows_what_the_call_would_do(world: World) -> None:
    """Risk by side effect, the command as the policy resolved it, and whether there is a way back."""
    await world.run("command", inputs={"command": "cd . && git push --force origin main"})
    await world.run("write", inputs={"path": ".env", "content": "x\n" * 5000})
    command, write = world.questions
    assert (command["risk_level"], write["risk_level"]) == ("high", "medium")
    text = "\n".join(command["consequences"])
    assert "runs in .: cd . && git push --force origin main" in text
    assert "ask: git push --force origin main" in text
    assert command["consequences"][-1] == "cannot be taken back"
    assert write["consequences"][0] == "creates .env (10000 bytes)"
    assert "proctor undo" in write["consequences"][-1]
    assert len(write["consequences"]) <= MAX_LINES
    assert write["asked_by"] == "forge"


async def test_budget_is_checked_before_a_person_is_bothered(make_world: Callable[..., World]) -> None:
    """Nobody is asked for what could not run anyway, and nothing is held while one waits."""
    world = make_world(toml="[limits]\ncalls = 1\n")
    assert (await world.run("send")).waiting
    assert (await world.run("look")).ok
    refused = await world.run("send", inputs={"content": "other"})
    assert refused.error is not None
    assert refused.error.reason == "budget_exceeded:total"
    assert len(world.questions) == 1


# ── who answers ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_only_a_person_answers(world: World) -> None:
    """No token, no answer; a child of an agent is refused; nobody makes a person by hand."""
    asked = await world.run("send")
    token = world.settings().paths.token_file
    with pytest.raises(RefusedError, match="only a person may answer"):
        user_at_terminal({"PROCTOR_ATTEMPT_MARK": "x"}, token_file=token, name="forge")
    with pytest.raises(RefusedError, match="only a person may answer"):
        Human("forge", b"guess")
    world.answer(asked.approval_id or "")
    assert world.questions[0]["answered_by"] == "ada"
    (event,) = world.events("approval_received")
    assert (event.actor, event.actor_name) == ("human", "ada")


async def test_question_is_answered_once(world: World) -> None:
    """The second answer, and one to a question that does not exist, are refused."""
    asked = await world.run("send")
    world.answer(asked.approval_id or "", approved=False)
    with pytest.raises(UsageError, match="rejected"):
        world.answer(asked.approval_id or "")
    with pytest.raises(NotFoundError):
        world.answer("appr_none")
    assert world.questions[0]["status"] == "rejected"


async def test_equal_questions_are_answered_together(world: World) -> None:
    """Two tasks ask exactly the same: one answer serves both, a different one stays open."""
    for task in ("task_1", "task_2"):
        await world.run("send", task_id=task)
    other = await world.run("send", task_id="task_1", inputs={"content": "other"})
    done = world.answer(world.questions[0]["approval_id"])
    assert len(done.equal) == 1
    statuses = {row["approval_id"]: row["status"] for row in world.questions}
    assert statuses.pop(other.approval_id or "") == "pending"
    assert set(statuses.values()) == {"approved"}
    assert (await world.run("send", task_id="task_2")).ok
    with world.database.read() as connection:
        assert [row["approval_id"] for row in pending(connection, world.clock.now())] == [other.approval_id]


# ── grants ────────────────────────────────────────────────────────────────────────────────────────────────────────

FETCH = {"command": "curl -O https://example.org/a"}
FETCH_OTHER = {"command": "curl -O https://example.org/b"}


async def test_grant_covers_its_class_for_the_task_only(world: World) -> None:
    """The same class runs without a question in this task, and asks in another."""
    asked = await world.run("command", inputs=FETCH, task_id="task_1")
    done = world.answer(asked.approval_id or "", grant=Scope.TASK)
    assert len(done.grants) == 1
    assert (await world.run("command", inputs=FETCH, task_id="task_1")).ok
    assert (await world.run("command", inputs=FETCH, task_id="task_1")).ok
    assert (await world.run("command", inputs=FETCH, task_id="task_2")).waiting
    assert (
        await world.run("command", inputs={"command": "wget https://example.org"}, task_id="task_1")
    ).waiting


async def test_timed_grant_ends_after_half_an_hour(world: World) -> None:
    """Thirty minutes, in this workspace, for all tasks."""
    asked = await world.run("command", inputs=FETCH, task_id="task_1")
    world.answer(asked.approval_id or "", grant=Scope.TIME)
    assert (await world.run("command", inputs=FETCH, task_id="task_2")).ok
    world.clock.ahead = timedelta(minutes=31)
    assert (await world.run("command", inputs=FETCH, task_id="task_2")).waiting


async def test_grant_is_a_visible_line_that_can_be_revoked(world: World) -> None:
    """What always holds is listed, says who gave it, and is gone after revoking."""
    asked = await world.run("command", inputs=FETCH)
    world.answer(asked.approval_id or "", grant=Scope.ALWAYS, reason="documentation")
    with world.database.read() as connection:
        (line,) = list_grants(connection, world.clock.now())
    assert (line.granted_by, line.reason) == ("ada", "documentation")
    assert line.sentence().startswith("allow command:network.fetch:curl")
    assert (await world.run("command", inputs=FETCH)).ok
    who = user_at_terminal(world.environ, token_file=world.settings().paths.token_file, name="ada")
    world.writer.transact(lambda c: revoke_grant(c, line.grant_id, by=who, now=world.clock.now()))
    assert (await world.run("command", inputs=FETCH)).waiting
    with pytest.raises(NotFoundError):
        world.writer.transact(lambda c: revoke_grant(c, line.grant_id, by=who, now=world.clock.now()))


async def test_no_grant_covers_what_cannot_be_taken_back(world: World) -> None:
    """An irreversible act is answered one by one, and a no grants nothing."""
    asked = await world.run("send")
    with pytest.raises(UsageError, match="only be answered for this one call"):
        world.answer(asked.approval_id or "", grant=Scope.ALWAYS)
    asked = await world.run("command", inputs=FETCH)
    with pytest.raises(UsageError):
        world.answer(asked.approval_id or "", approved=False, grant=Scope.TASK)
    assert [row["status"] for row in world.questions] == ["pending", "pending"]


async def test_careful_asks_once_per_class_and_task(world: World) -> None:
    """After the first answer the same class is free in the task, another class and another task ask."""
    more: dict[str, Any] = {"profile": "careful", "task_id": "task_1"}
    asked = await world.run("write", **more)
    world.answer(asked.approval_id or "")
    assert (await world.run("write", **more)).ok
    assert (await world.run("write", inputs={"content": "second"}, **more)).ok
    assert (await world.run("act", **more)).waiting
    assert (await world.run("write", profile="careful", task_id="task_2")).waiting


async def test_human_needs_no_answer(world: World) -> None:
    """A person's direct request makes no question."""
    assert (await world.run("send", HUMAN, profile="enterprise")).ok
    assert world.questions == []


async def test_waiting_can_be_cancelled_and_ends_in_time(world: World) -> None:
    """A waiter gives `pending` at its deadline, ends at once when cancelled, and knows what is gone."""
    asked = await world.run("send")
    waiter = Waiter(world.database, world.clock)
    assert await waiter.wait(asked.approval_id or "", 0.1) == "pending"
    assert await waiter.wait("appr_none", 5) == "void"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(waiter.wait(asked.approval_id or "", 60))
        await asyncio.sleep(0.1)
        task.cancel()
    assert task.cancelled()
