"""Whatever anybody sends to any tool, the answer is a result or a sentence, never a crash."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.protocol.errors import ProctorError
from proctor.protocol.tools import Actor, Call, CallState
from proctor.store.database import Database
from proctor.tools.catalog import standard_registry
from tests.tools.conftest import AGENT, HUMAN, Desk, MakeDesk

REGISTRY = standard_registry()
# Commands are judged by a policy with a fuzzer of its own; here only their other parameters are of interest.
COMMANDS = st.sampled_from(["true", "exit 3", "cat /dev/null", "", "\0", "echo ü", "ls nothing"])
TEXT = st.text(max_size=60) | st.sampled_from(
    [
        "",
        ".",
        "..",
        "/",
        "~",
        "a\0b",
        "\ud800",
        "src/app.py",
        "../../etc/passwd",
        "x" * 5000,
        "-rf",
        "\u202e",
        "a/../..",
    ]
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
ANY = st.recursive(
    PLAIN, lambda one: st.lists(one, max_size=3) | st.dictionaries(TEXT, one, max_size=3), max_leaves=6
)


def inputs_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Inputs for a tool: some of its own parameters, some of the seeds' names, some nonsense."""
    tool = REGISTRY.find(name)
    near = TEXT | st.integers(-2, 12) | st.lists(TEXT, max_size=2)
    own = {key: near | ANY for key in tool.input.model_fields if key != "command"}
    needed = {key: own.pop(key) for key in list(own) if tool.input.model_fields[key].is_required()}
    aliases = st.sampled_from([key for key in tool.parameter_aliases if key != "command"])
    odd = st.dictionaries(aliases | TEXT, ANY, max_size=2)
    fitting = st.fixed_dictionaries(needed, optional=own)
    loose = fitting | st.tuples(fitting, odd).map(lambda both: {**both[0], **both[1]}) | odd
    if "command" not in tool.input.model_fields:
        return loose
    return st.tuples(loose, COMMANDS).map(lambda both: {**both[0], "command": both[1], "timeout_seconds": 5})


@pytest.mark.parametrize("name", [tool.name for tool in REGISTRY.tools()])
async def test_no_input_crashes_a_tool(desk: Desk, name: str) -> None:
    """Result, question, or an error with a code; and outside the workspace nothing has changed."""
    outside = desk.root.parent / "outside"
    outside.write_text("keep")
    await _attempt(desk, name)
    assert outside.read_text() == "keep"


@pytest.mark.postgres
@pytest.mark.parametrize("name", [tool.name for tool in REGISTRY.tools() if tool.domain == "database"])
async def test_no_input_crashes_a_tool_on_postgresql(
    postgres_database: Database, make_desk: MakeDesk, name: str
) -> None:
    """Characters and numbers that only the other database refuses are refused with a sentence too."""
    desk = make_desk(postgres_database)
    await _attempt(desk, name)
    assert (await desk.call("verify_system_running"))["status"] == "running"


async def _attempt(desk: Desk, name: str) -> None:
    """Send many inputs from a thread, since hypothesis knows no event loop."""
    loop = asyncio.get_running_loop()

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(
        inputs=inputs_of(name),
        actor=st.sampled_from([HUMAN, AGENT]),
        adapter=st.sampled_from(["real", "mock"]),
    )
    def attempt(inputs: dict[str, Any], actor: Actor, adapter: str) -> None:
        asking = _ask(desk, name, inputs, actor, adapter)
        asyncio.run_coroutine_threadsafe(asking, loop).result(60)

    await asyncio.to_thread(attempt)


async def _ask(desk: Desk, name: str, inputs: dict[str, Any], actor: Actor, adapter: str) -> None:
    call = Call(
        tool=name, inputs=inputs, actor=actor, adapter=adapter, workspace=desk.root, trace_id=desk.trace_id
    )
    try:
        done = await desk.gate.run(call)
    except ProctorError:
        return  # the request made no sense, and its sender hears why
    assert done.state in {CallState.ENDED, CallState.WAITING}
    if done.error is not None:
        assert done.error.code not in {"", "defect"}, done.error
        assert done.error.message
    else:
        assert done.output is not None or done.waiting
