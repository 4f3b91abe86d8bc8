"""Requests and instructions: each step once, each instruction to one caller, in its request's own order."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from proctor.protocol.errors import NotFoundError, RefusedError, UsageError
from proctor.store.tables import github_instruction_queue, solace_user_requests
from proctor.tools.analysis import analyze, guess_type
from proctor.tools.models import now
from tests.support.rows import rows_of
from tests.tools.conftest import AGENT, Desk

REQUEST_COLUMNS = {
    *("id", "request_text", "request_type", "complexity_score", "architecture_rules_used", "files_affected"),
    *("estimated_instructions", "status", "analysis_notes", "final_outcome", "created_at", "started_at"),
    "completed_at",
}
INSTRUCTION_COLUMNS = {
    *("id", "parent_task_id", "instruction_sequence", "instruction_text", "target_file_path"),
    *("expected_outcome", "status", "github_response", "verification_notes", "retry_count", "created_at"),
    *("started_at", "completed_at", "verified_at"),
}


async def planned(desk: Desk, text: str = "Fix the bug in src/app.py") -> int:
    """A request with its instructions; gives its id."""
    made = await desk.call("create_user_request", request_text=text)
    await desk.call("analyze_request", id=made["id"])
    await desk.call("generate_instructions", request_id=made["id"])
    number: int = made["id"]
    return number


async def test_request_goes_its_whole_way(each_desk: Desk) -> None:
    """analyzing → planned → executing → verifying → complete, with the seeds' words in every answer (bug 11)."""
    desk = each_desk
    made = await desk.call(
        "create_user_request", request_text="Fix the health monitoring in src/app.py and README.md"
    )
    assert set(made) >= REQUEST_COLUMNS
    assert (made["status"], made["architecture_rules_used"], made["files_affected"]) == ("analyzing", [], [])
    seen = await desk.call("analyze_request", id=made["id"])
    assert (seen["request_id"], seen["status"], seen["request_type"]) == (made["id"], "planned", "bug_fix")
    assert seen["architecture_rules_used"] == ["health_monitoring"]
    assert seen["files_affected"] == ["README.md", "src/app.py"]
    assert seen["estimated_instructions"] == 4
    plan = await desk.call("generate_instructions", id=made["id"])
    assert (plan["count"], plan["status"], len(plan["instructions"])) == (4, "executing", 4)
    assert set(plan["instructions"][0]) == INSTRUCTION_COLUMNS
    for number in range(1, 5):
        got = await desk.call("get_next_instruction")
        assert got["has_next"] is True
        assert got["instruction"]["instruction_sequence"] == number
        assert got["instruction"]["status"] == "in_progress"
        done = await desk.call("update_instruction", id=got["instruction"]["id"], status="completed")
        assert done["request_status"] == ("executing" if number < 4 else "verifying")
    assert await desk.call("get_next_instruction") == {
        "has_next": False,
        "message": "No pending instructions",
        "instruction": None,
        "simulated": False,
    }
    for one in (await desk.call("list_instructions", id=made["id"]))["instructions"]:
        last = await desk.call(
            "update_instruction", id=one["id"], status="verified", verification_notes="seen"
        )
    assert last["request_status"] == "complete"
    final = await desk.call("get_user_request", id=made["id"])
    assert (final["status"], final["final_outcome"]) == ("complete", "All instructions are verified.")
    assert final["completed_at"] is not None


async def test_bug_12_fifty_callers_claim_one_instruction_once(each_desk: Desk) -> None:
    """One gets it, forty-nine hear that there is none."""
    desk = each_desk
    await planned(desk)
    first = await desk.call("get_next_instruction")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(desk.call("get_next_instruction")) for _ in range(50)]
    got = [task.result() for task in tasks]
    winners = [one["instruction"]["id"] for one in got if one["has_next"]]
    assert len(winners) == 1
    assert winners[0] != first["instruction"]["id"]


async def test_bug_12_fifty_callers_share_many_instructions_without_doubles(each_desk: Desk) -> None:
    """Every instruction goes to exactly one, older requests first, each in its own order."""
    desk = each_desk
    requests = [await planned(desk) for _ in range(10)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(desk.call("get_next_instruction")) for _ in range(50)]
    claimed = [task.result()["instruction"]["id"] for task in tasks if task.result()["has_next"]]
    assert len(claimed) == len(set(claimed)) == 20
    rows = rows_of(desk.database, sa.select(github_instruction_queue))
    assert {row["parent_task_id"] for row in rows} == set(requests)
    assert {row["status"] for row in rows} == {"in_progress"}


async def test_bug_12_order_holds_within_each_request(desk: Desk) -> None:
    """The second request's first instruction does not come between the first one's."""
    one, two = await planned(desk), await planned(desk)
    order = [(await desk.call("get_next_instruction"))["instruction"] for _ in range(4)]
    assert [(row["parent_task_id"], row["instruction_sequence"]) for row in order] == [
        (one, 1),
        (one, 2),
        (two, 1),
        (two, 2),
    ]
    three = await planned(desk)
    got = await desk.call("get_next_instruction", request_id=three)
    assert got["instruction"]["parent_task_id"] == three


async def test_steps_out_of_order_are_refused(desk: Desk) -> None:
    """Instructions only from a plan, once; unknown numbers are not found."""
    made = await desk.call("create_user_request", request_text="x", request_type="refactor")
    with pytest.raises(UsageError, match="planned"):
        await desk.call("generate_instructions", id=made["id"])
    await desk.call("analyze_request", id=made["id"])
    await desk.call("generate_instructions", id=made["id"])
    with pytest.raises(UsageError):
        await desk.call("generate_instructions", id=made["id"])
    with pytest.raises(UsageError):
        await desk.call("analyze_request", id=made["id"])
    for tool in ("get_user_request", "analyze_request", "generate_instructions", "list_instructions"):
        with pytest.raises(NotFoundError):
            await desk.call(tool, id=999)
    with pytest.raises(NotFoundError):
        await desk.call("get_next_instruction", request_id=999)
    with pytest.raises(NotFoundError):
        await desk.call("update_instruction", id=999, status="completed")


async def test_two_generate_at_once_and_one_wins(each_desk: Desk) -> None:
    """The instructions are there once."""
    made = await each_desk.call("create_user_request", request_text="x")
    await each_desk.call("analyze_request", id=made["id"])
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(each_desk.result("generate_instructions", id=made["id"])) for _ in range(5)
        ]
    assert sorted(task.result().ok for task in tasks) == [False] * 4 + [True]
    assert len(rows_of(each_desk.database, sa.select(github_instruction_queue))) == 2


async def test_agent_reports_but_does_not_verify(desk: Desk) -> None:
    """An agent's word is a claim."""
    await planned(desk)
    got = await desk.call("get_next_instruction", actor=AGENT)
    number = got["instruction"]["id"]
    await desk.call("update_instruction", actor=AGENT, id=number, status="completed", github_response="done")
    with pytest.raises(RefusedError, match="claim"):
        await desk.call("update_instruction", actor=AGENT, id=number, status="verified")
    done = await desk.call("update_instruction", id=number, status="verified")
    assert done["instruction"]["github_response"] == "done"


async def test_failed_instruction_can_be_tried_again(desk: Desk) -> None:
    """The request fails with its last open instruction and goes on when one is given back."""
    await planned(desk)
    numbers = [(await desk.call("get_next_instruction"))["instruction"]["id"] for _ in range(2)]
    await desk.call("update_instruction", id=numbers[0], status="completed")
    done = await desk.call("update_instruction", id=numbers[1], status="failed")
    assert done["request_status"] == "failed"
    back = await desk.call("update_instruction", id=numbers[1], status="pending")
    assert (back["request_status"], back["instruction"]["retry_count"]) == ("executing", 1)
    with pytest.raises(UsageError, match="cannot go"):
        await desk.call("update_instruction", id=numbers[0], status="in_progress")
    again = await desk.call("get_next_instruction")
    assert again["instruction"]["id"] == numbers[1]


async def test_instruction_of_a_silent_caller_comes_again_three_times_at_most(desk: Desk) -> None:
    """A crash leaves nothing in progress for ever, and nothing is tried for ever."""
    await planned(desk)
    wanted = (await desk.call("get_next_instruction"))["instruction"]["id"]
    tries = []
    for _ in range(4):
        with desk.database.write() as connection:
            old = {"started_at": now() - timedelta(hours=2)}
            connection.execute(
                sa.update(github_instruction_queue)
                .where(github_instruction_queue.c.id == wanted)
                .values(**old)
            )
        got = await desk.call("get_next_instruction")
        tries.append((got["instruction"] or {}).get("id") == wanted)
    assert tries == [True, True, True, False]


async def test_mock_stores_no_request(desk: Desk) -> None:
    """Simulated, and said so, from first to last."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("create_user_request", {"request_text": "x"}),
        ("get_user_request", {"id": 1}),
        ("analyze_request", {"id": 1}),
        ("generate_instructions", {"id": 1}),
        ("list_instructions", {"id": 1}),
        ("get_next_instruction", {}),
        ("update_instruction", {"id": 1, "status": "completed"}),
    ]
    for name, inputs in calls:
        assert "SIMULATED" in str(await desk.call(name, adapter="mock", **inputs))
    assert rows_of(desk.database, sa.select(solace_user_requests)) == []


@given(text=st.text(max_size=500), paths=st.lists(st.text(max_size=40), max_size=50))
def test_analysis_of_anything_is_bounded_and_repeatable(text: str, paths: list[str]) -> None:
    """Complexity 1 to 10, two instructions per file, at most twenty files."""
    found = analyze(text, None, [], paths)
    assert found == analyze(text, None, [], paths)
    assert 1 <= found.complexity <= 10
    assert len(found.files) <= 20
    assert found.estimate == 2 * max(1, len(found.files))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Fix the crash on start", "bug_fix"),
        ("Refactor the parser", "refactor"),
        ("Integrate the payment API", "feature_integration"),
        ("A page with prices", "new_feature"),
    ],
)
def test_kind_is_guessed_from_the_words(text: str, kind: str) -> None:
    """When nobody said it."""
    assert guess_type(text) == kind
