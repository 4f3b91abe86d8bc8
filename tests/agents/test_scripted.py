"""The driver port, proven on the scripted agent: a real process behind every guarantee."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.agents.driver import Answer, Failure, Limits, NotSupportedError, Outcome, Usage
from proctor.agents.identity import survivors
from proctor.agents.scripted import ScriptedDriver
from proctor.protocol.events import WORKER, ActorKind, EventStatus
from tests.agents.runs import attempt, request, script
from tests.agents.trees import alive

DRIVER = ScriptedDriver()
SAID_OK = {"type": "result", "ok": True, "text": "ok"}


async def test_success_needs_word_and_code(tmp_path: Path) -> None:
    """Steps are done in order, the end tells text, tokens and money, and all of it says simulated."""
    prompt = script(
        {"progress": 10, "text": "on it"},
        {"write": "a/b.txt", "content": "hi"},
        {"run": "cat a/b.txt"},
        {"tokens": [100, 20], "cost": 0.5},
        {"milestone": "written"},
        {"say": "all done"},
    )
    events, end, run = await attempt(DRIVER, request(tmp_path, prompt))
    assert (tmp_path / "worktree/a/b.txt").read_text() == "hi"
    names = "status progress tool_use tool_result tool_use tool_result usage milestone message status"
    assert [e.event for e in events] == names.split()
    assert {e.event for e in events} <= WORKER
    assert events[5].text == "hi"
    assert end.outcome is Outcome.SUCCEEDED
    assert (end.exit_code, end.final_text, end.simulated, end.left) == (0, "all done", True, 0)
    assert end.usage == Usage(100, 20, 0, 0.5, cumulative=True)
    assert end.native_id == run.native_id
    draft = events[0].draft("t", agent="s1", task_id="task_1", attempt=1, simulated=True)
    assert (draft.actor, draft.details["simulated"]) == (ActorKind.AGENT, True)


async def test_without_a_script_it_writes_one_file(tmp_path: Path) -> None:
    """The default leaves a file named after the task that says it is simulated."""
    _, end, _ = await attempt(DRIVER, request(tmp_path, "Add a README"))
    assert end.outcome is Outcome.SUCCEEDED
    assert "Simulated" in (tmp_path / "worktree/task_1.txt").read_text()


@pytest.mark.parametrize(
    ("steps", "outcome", "failure", "code", "words"),
    [
        ([{"fail": "no way"}], Outcome.FAILED, Failure.AGENT, 1, "no way"),
        ([{"exit": 0}], Outcome.FAILED, Failure.NO_RESULT, 0, "without a result"),
        ([{"exit": 3}], Outcome.FAILED, Failure.NO_RESULT, 3, "exit code 3"),
        ([{"crash": 9}], Outcome.INTERRUPTED, Failure.CRASHED, -9, "signal 9"),
        ([{"native": SAID_OK}, {"exit": 5}], Outcome.FAILED, Failure.CRASHED, 5, "said success"),
    ],
)
async def test_the_end_is_told_truly(
    tmp_path: Path, steps: list[dict[str, object]], outcome: Outcome, failure: Failure, code: int, words: str
) -> None:
    """Neither an exit code nor a claim alone makes a success."""
    _, end, run = await attempt(DRIVER, request(tmp_path, script(*steps)))
    assert (end.outcome, end.failure, end.exit_code) == (outcome, failure, code)
    assert words in end.reason
    assert run.identity is not None
    assert survivors(run.identity) == []


async def test_unreadable_script_fails_with_the_reason(tmp_path: Path) -> None:
    """A script with an unknown step is refused by name."""
    _, end, _ = await attempt(DRIVER, request(tmp_path, script({"fly": 1})))
    assert end.outcome is Outcome.FAILED
    assert "unknown step 'fly'" in end.reason


async def test_torn_and_strange_output_is_kept(tmp_path: Path) -> None:
    """Half lines join, garbage and unknown events stay raw, a long line arrives whole."""
    prompt = script(
        {"half_line": "grüße", "pause": 0.05},
        {"garbage": "not json"},
        {"native": {"type": "odd", "n": 1}},
        {"long_line": 3_000_000},
    )
    events, end, _ = await attempt(DRIVER, request(tmp_path, prompt))
    assert end.outcome is Outcome.SUCCEEDED
    assert events[1].text == "grüße"
    assert (events[2].event, events[2].useful, events[2].status) == ("native", False, EventStatus.WARNING)
    assert events[3].details["raw"] == {"type": "odd", "n": 1}
    assert "truncated" in events[4].text
    assert len(events[4].text) < 40_000


async def test_overlong_line_is_cut_not_fatal(tmp_path: Path) -> None:
    """A line beyond the limit is kept as truncated raw text and the rest goes on."""
    limits = Limits(timeout_s=30, silence_s=20, line_bytes=10_000)
    events, end, _ = await attempt(DRIVER, request(tmp_path, script({"long_line": 50_000}), limits=limits))
    assert end.outcome is Outcome.SUCCEEDED
    assert events[1].details["truncated"] is True


async def test_endless_output_is_stopped(tmp_path: Path) -> None:
    """Output beyond the cap ends the attempt."""
    limits = Limits(timeout_s=30, silence_s=20, output_bytes=100_000, grace_s=0.2)
    _, end, _ = await attempt(DRIVER, request(tmp_path, script({"long_line": 500_000}), limits=limits))
    assert (end.outcome, end.failure) == (Outcome.FAILED, Failure.LIMIT)


async def test_deadline_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    """An agent that hangs and ignores SIGTERM is gone after time-out and grace, with the daemon it left."""
    note = tmp_path / "pid"
    prompt = script({"ignore_sigterm": True}, {"spawn_grandchild": 300, "note": str(note)}, {"hang": True})
    for seconds in (1.5, 6, 24):  # a busy machine may not have come to the daemon by then
        limits = Limits(timeout_s=seconds, silence_s=60, grace_s=0.2)
        _, end, run = await attempt(DRIVER, request(tmp_path, prompt, limits=limits))
        if note.exists() and note.read_text():
            break
    assert (end.outcome, end.failure, end.exit_code) == (Outcome.TIMED_OUT, Failure.DEADLINE, -9)
    assert not alive(int(note.read_text()))
    assert run.identity is not None
    assert survivors(run.identity) == []


async def test_memory_of_the_whole_tree_is_limited(tmp_path: Path) -> None:
    """An agent whose child takes more than it may have is killed, and the end says for what."""
    hog = f"{sys.executable} -I -S -c 'x = bytearray(300 << 20); import time; time.sleep(60)'"
    limits = Limits(timeout_s=60, silence_s=60, memory_mb=200)
    _, end, run = await attempt(DRIVER, request(tmp_path, script({"run": hog}), limits=limits))
    assert (end.outcome, end.failure) == (Outcome.FAILED, Failure.LIMIT)
    assert "200 MiB" in end.reason
    assert run.identity is not None
    assert survivors(run.identity) == []


async def test_cpu_of_the_whole_tree_is_held_to_its_share(tmp_path: Path) -> None:
    """A busy child gets a fraction of one core, and the agent still succeeds."""
    code = "import time; end = time.monotonic() + 2.5\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    spin = f"{sys.executable} -I -S -c {shlex.quote(code)}"
    limits = Limits(timeout_s=60, silence_s=60, cpu_percent=20)
    events, end, _ = await attempt(DRIVER, request(tmp_path, script({"run": spin}), limits=limits))
    assert end.outcome is Outcome.SUCCEEDED
    used = next(float(e.text) for e in events if e.event == "tool_result")
    assert used < 0.5 * 2.5


async def test_silence_is_a_time_out_of_its_own(tmp_path: Path) -> None:
    """Garbage does not count as progress: the watchdog looks at useful events."""
    steps: list[dict[str, Any]] = [{"say": "up"}, {"say": "up"}] + [{"garbage": "x"}, {"sleep": 0.2}] * 50
    limits = Limits(timeout_s=30, silence_s=1.0, grace_s=0.2)
    _, end, _ = await attempt(DRIVER, request(tmp_path, script(*steps), limits=limits))
    assert (end.outcome, end.failure) == (Outcome.TIMED_OUT, Failure.SILENT)


async def test_slow_reader_is_not_taken_for_silence(tmp_path: Path) -> None:
    """When we are slow ourselves, the agent is not blamed."""
    limits = Limits(timeout_s=60, silence_s=2)
    async with DRIVER.launch(request(tmp_path, script({"say": "a"}), limits=limits)) as run:
        async for event in run.events():
            if event.event == "message":
                await asyncio.sleep(2.5)
        assert (await run.end()).outcome is Outcome.SUCCEEDED


async def test_cancel_and_interrupt_are_told_apart(tmp_path: Path) -> None:
    """Both stop the agent; only an interrupted attempt may be resumed."""
    for number, (action, outcome) in enumerate(
        (("cancel", Outcome.CANCELLED), ("interrupt", Outcome.INTERRUPTED))
    ):
        wanted = request(tmp_path / str(number), script({"say": "up"}, {"hang": True}))
        async with DRIVER.launch(wanted) as run:
            async for event in run.events():
                if event.event == "message":
                    await getattr(run, action)()
            end = await run.end()
        assert end.outcome is outcome
        assert end.retryable is (outcome is Outcome.INTERRUPTED)


async def test_resume_does_not_repeat_finished_steps(tmp_path: Path) -> None:
    """After a crash the same conversation goes on behind the last finished step."""
    steps = [
        {"append": "log", "content": "1"},
        {"run": "test -e ../go || kill -9 $PPID"},
        {"append": "log", "content": "2"},
    ]
    _, first, _ = await attempt(DRIVER, request(tmp_path, script(*steps)))
    assert first.outcome is Outcome.INTERRUPTED
    (tmp_path / "go").touch()
    _, second, _ = await attempt(DRIVER, request(tmp_path, script(*steps), resume=first.native_id, attempt=2))
    assert second.outcome is Outcome.SUCCEEDED
    assert second.native_id == first.native_id
    assert (tmp_path / "worktree/log").read_text() == "12"


@pytest.mark.parametrize("allow", [True, False])
async def test_permission_is_asked_and_answered(tmp_path: Path, allow: bool) -> None:
    """What was denied is not done, what was allowed is."""
    step = {"ask": {"tool": "write", "input": {"path": "x"}}, "then": [{"write": "x", "content": "1"}]}
    async with DRIVER.launch(request(tmp_path, script(step))) as run:
        async for event in run.events():
            if event.event == "permission_blocker":
                assert event.tool_name == "write"
                await run.answer(event.details["request_id"], Answer(allow, "because"))
        assert (await run.end()).outcome is Outcome.SUCCEEDED
    assert (tmp_path / "worktree/x").exists() is allow


async def test_delegation_is_a_wish_in_the_end(tmp_path: Path) -> None:
    """An agent that hands work on is heard as data, not acted on here."""
    wish = {"agent": "s2", "description": "the rest", "guidance": "gently"}
    events, end, _ = await attempt(DRIVER, request(tmp_path, script({"delegate": wish})))
    assert [(d.agent, d.description, d.guidance) for d in end.delegations] == [("s2", "the rest", "gently")]
    assert events[1].details["delegate_to"] == "s2"


async def test_false_claim_changes_nothing(tmp_path: Path) -> None:
    """A claim is only words: marked as claimed, and no file appears."""
    events, _, _ = await attempt(DRIVER, request(tmp_path, script({"claim": "wrote proof.txt"})))
    assert [e.details.get("claimed") for e in events if e.event == "milestone"] == [True]
    assert list((tmp_path / "worktree").iterdir()) == []


async def test_nothing_happens_before_the_events_are_read(tmp_path: Path) -> None:
    """The caller can write the identity down before the first effect."""
    async with DRIVER.launch(request(tmp_path, script({"write": "x", "content": "1"}))) as run:
        assert run.identity is not None
        assert run.native_id is not None
        await asyncio.sleep(0.3)
        assert not (tmp_path / "worktree/x").exists()
        end = await run.end()
    assert end.outcome is Outcome.SUCCEEDED
    assert (tmp_path / "worktree/x").exists()


async def test_missing_worktree_is_a_launch_failure(tmp_path: Path) -> None:
    """A directory that is not there is told as such."""
    _, end, _ = await attempt(DRIVER, request(tmp_path, "x", worktree=tmp_path / "nowhere"))
    assert (end.outcome, end.failure, end.retryable) == (Outcome.FAILED, Failure.LAUNCH, False)


async def test_what_a_driver_cannot_do_is_refused(tmp_path: Path) -> None:
    """Speaking to an agent that does not listen is an error, not silence."""
    async with DRIVER.launch(request(tmp_path, "x")) as run:
        with pytest.raises(NotSupportedError):
            await run.send("hello")


async def test_agent_sees_only_the_given_environment(tmp_path: Path) -> None:
    """Nothing of ours leaks into the agent: the environment is what the request says."""
    os.environ["PROCTOR_TEST_SECRET"] = "leak"
    try:
        events, _, _ = await attempt(DRIVER, request(tmp_path, script({"run": "env"})))
    finally:
        del os.environ["PROCTOR_TEST_SECRET"]
    text = next(e.text for e in events if e.event == "tool_result")
    assert "leak" not in text
    assert f"TMPDIR={tmp_path / 'tmp'}" in text
