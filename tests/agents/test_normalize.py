"""Native streams of the real CLIs, recorded, in our words: the same for every cut, and nothing is invented."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.agents.claude import ClaudeNormalizer
from proctor.agents.codex import CodexNormalizer
from proctor.agents.driver import AgentEvent, AttemptEnd, Failure, Outcome, Usage
from proctor.agents.embedded import claims
from proctor.agents.failures import from_http_status, from_text
from proctor.agents.lines import Line, LineSplitter
from proctor.agents.process import Exit
from proctor.agents.scripted import ScriptedNormalizer
from proctor.agents.stream import Normalizer, judge, parse_line
from proctor.protocol.events import WORKER, EventStatus

GOLDEN = Path(__file__).parent / "golden"
MAKERS: dict[str, Callable[[], Normalizer]] = {
    "claude": ClaudeNormalizer,
    "codex": CodexNormalizer,
    "scripted": lambda: ScriptedNormalizer(None),
}
FILES = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))


def split(data: bytes, *cuts: int) -> list[Line]:
    """Cut a stream into chunks and put the lines together again."""
    splitter = LineSplitter(1 << 20)
    places = [0, *cuts, len(data)]
    lines = [line for a, b in pairwise(places) for line in splitter.feed(data[a:b])]
    return lines + splitter.finish()


def translate(name: str, lines: list[Line]) -> tuple[list[AgentEvent], Normalizer]:
    """Run lines through the translator that the file's name begins with."""
    normalizer = MAKERS[name.partition("_")[0]]()
    events: list[AgentEvent] = []
    for line in lines:
        native = parse_line(line)
        events += [native] if isinstance(native, AgentEvent) else normalizer.feed(native)
    return events, normalizer


def golden(name: str) -> tuple[list[AgentEvent], Normalizer]:
    """Translate a recorded stream."""
    return translate(name, split((GOLDEN / f"{name}.jsonl").read_bytes()))


def end(normalizer: Normalizer, code: int, cause: AttemptEnd | None = None) -> AttemptEnd:
    """Judge a recorded stream with an exit code."""
    return judge(normalizer.terminal, Exit(code), "", "", cause)


@pytest.mark.parametrize("name", FILES)
def test_every_cut_gives_the_same_lines_and_events(name: str) -> None:
    """Cut at every single byte, the stream means the same."""
    data = (GOLDEN / f"{name}.jsonl").read_bytes()
    lines = split(data)
    assert lines
    for cut in range(len(data)):
        assert split(data, cut) == lines
    events, _ = translate(name, lines)
    assert {event.event for event in events} <= WORKER
    assert translate(name, split(data, *range(1, len(data))))[0] == events


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "claude_ok",
            "status tool_use task tool_result tool_use tool_result message progress usage milestone",
        ),
        (
            "codex_ok",
            "status status tool_use tool_result task tool_use tool_result message progress usage milestone",
        ),
    ],
)
def test_a_task_done_is_told_step_by_step(name: str, expected: str) -> None:
    """Write, failing command, message with an own progress line, cost and end: each in our words."""
    events, normalizer = golden(name)
    assert [event.event for event in events] == expected.split()
    failed = [event for event in events if event.status is EventStatus.ERROR]
    assert [event.event for event in failed] == ["tool_result"]
    assert next(e for e in events if e.event == "task").details["file"] == "/repo/wt/hello.txt"
    assert next(e for e in events if e.event == "progress").details == {"progress": 50.0, "claimed": True}
    assert normalizer.native_id
    assert end(normalizer, 0).outcome is Outcome.SUCCEEDED
    assert end(normalizer, 1).outcome is Outcome.FAILED
    assert normalizer.usage.tokens > 0


def test_cost_is_the_conversations_and_can_be_split() -> None:
    """Claude counts the whole conversation; what one attempt used is the difference."""
    _, normalizer = golden("claude_ok")
    assert normalizer.usage == Usage(3600, 102, 600, 0.01251, cumulative=True)
    own = normalizer.usage.since(Usage(1200, 34, 200, 0.00417))
    assert (own.input_tokens, own.output_tokens, own.cached_input_tokens) == (2400, 68, 400)
    assert own.cost_usd == pytest.approx(0.00834)
    assert golden("codex_ok")[1].usage.cost_usd is None


@pytest.mark.parametrize("name", ["claude_milestone_in_output", "codex_milestone_in_output"])
def test_tool_output_invents_nothing(name: str) -> None:
    """Milestone JSON inside a command's output stays output."""
    events, _ = golden(name)
    assert any("invented" in event.text for event in events if event.event == "tool_result")
    assert [event.text for event in events if event.event == "milestone"] == ["Read it."]


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("claude_refused", Failure.AUTH),
        ("codex_refused", Failure.AUTH),
        ("claude_rate_limited", Failure.RATE_LIMIT),
        ("codex_rate_limited", Failure.RATE_LIMIT),
    ],
)
def test_refusals_are_classified(name: str, failure: Failure) -> None:
    """is_error with subtype success is a failure of a known class, whatever the exit code; retries are no
    progress.
    """
    events, normalizer = golden(name)
    for code in (0, 1):
        verdict = end(normalizer, code)
        assert (verdict.outcome, verdict.failure) == (Outcome.FAILED, failure)
    assert verdict.retryable is (failure is Failure.RATE_LIMIT)
    retries = [event for event in events if event.event == "error" and event.status is EventStatus.WARNING]
    assert not any(event.useful for event in retries)


def test_interrupted_claude_exits_0_and_is_no_success() -> None:
    """SIGINT gives exit code 0 with an error result: interrupted when we asked for it, failed otherwise."""
    _, normalizer = golden("claude_interrupted")
    assert end(normalizer, 0).outcome is Outcome.FAILED
    asked = AttemptEnd(Outcome.INTERRUPTED, "asked")
    assert end(normalizer, 0, asked).outcome is Outcome.INTERRUPTED


def test_interrupted_codex_has_no_word_at_all() -> None:
    """The stream just stops; the thread id is known and the attempt can be resumed."""
    _, normalizer = golden("codex_interrupted")
    assert normalizer.native_id
    assert end(normalizer, 1).failure is Failure.NO_RESULT
    assert end(normalizer, -9).outcome is Outcome.INTERRUPTED


def test_the_last_of_two_results_decides() -> None:
    """A background sub-agent may bring a second result line; its text and cost are the final ones."""
    events, normalizer = golden("claude_two_results")
    assert normalizer.final_text == "Background part done too."
    assert normalizer.usage.cost_usd == 0.02
    assert [event.event for event in events].count("milestone") == 2


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@settings(max_examples=60)
@given(
    native=st.dictionaries(
        st.sampled_from(
            ["type", "subtype", "message", "item", "error", "session_id", "is_error", "result", "usage"]
        ),
        st.one_of(
            st.none(),
            st.integers(),
            st.sampled_from(
                ["system", "assistant", "user", "result", "init", "item.completed", "turn.failed", "error"]
            ),
            st.fixed_dictionaries(
                {"type": st.text(max_size=8), "content": st.lists(st.none() | st.text(max_size=3))}
            ),
        ),
    )
)
def test_strange_objects_never_break_a_translator(
    maker: Callable[[], Normalizer], native: dict[str, Any]
) -> None:
    """Whatever a newer CLI prints, the run goes on and every object leaves an event of the worker set."""
    events = maker().feed(native)
    assert events
    assert {event.event for event in events} <= WORKER


def test_unknown_events_are_kept_raw() -> None:
    """A type nobody knows is stored as it came, or cut when it is huge."""
    (event,) = ClaudeNormalizer().feed({"type": "hologram", "x": [1]})
    assert (event.event, event.details["raw"]) == ("native", {"type": "hologram", "x": [1]})
    (large,) = CodexNormalizer().feed({"type": "hologram", "x": "y" * 200_000})
    assert "truncated" in large.details["raw"]


def test_only_whole_json_lines_of_known_types_are_claims() -> None:
    """Quoted, nested, unknown and malformed JSON in a message is only words."""
    text = "\n".join(
        [
            'I saw {"type":"milestone"} there',
            '{"type":"milestone","text":"flat"}',
            '{"type":"tool_result","text":"no"}',
            '{"type":"blocker","payload":"plain"}',
            '{"type":"progress","payload":{"progress":900}}',
            '{"type":"milestone"',
            "[1]",
        ]
    )
    found = claims(text)
    assert [(event.event, event.text) for event in found] == [
        ("milestone", "flat"),
        ("blocker", "plain"),
        ("progress", ""),
    ]
    assert found[2].details["progress"] == 100.0
    assert all(event.details["claimed"] for event in found)


def test_native_texts_of_today_are_classified() -> None:
    """The texts measured on the real CLIs each have their class."""
    texts = {
        "Not inside a trusted directory and --skip-git-repo-check was not specified.": Failure.DIRECTORY,
        "Missing environment variable: FAKE_KEY": Failure.AUTH,
        "Not logged in · Please run /login": Failure.AUTH,
        "Prompt is too long · 210000 tokens": Failure.CONTEXT,
        "API Error: Connection refused (ECONNREFUSED)": Failure.NETWORK,
        "You've hit your usage limit.": Failure.QUOTA,
        "We're currently experiencing high demand": Failure.OVERLOADED,
        "error: unknown option '--x'": Failure.LAUNCH,
        "it went well": Failure.NONE,
    }
    assert {text: from_text(text) for text in texts} == texts
    assert [from_http_status(n) for n in (403, 404, 500, 418)] == [
        Failure.AUTH, Failure.MODEL, Failure.OVERLOADED, Failure.NONE,
    ]  # fmt: skip


def test_long_json_line_is_parsed_whole() -> None:
    """A line of a megabyte is one event."""
    line = json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": "x" * 1_000_000}})
    events, normalizer = translate("codex_x", [Line(line)])
    assert len(events) == 1
    assert len(normalizer.final_text) == 1_000_000
