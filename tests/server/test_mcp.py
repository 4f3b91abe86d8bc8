"""`/mcp` with the SDK's own client in both eras: the registry's tools, through the gate, as an agent's calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import pytest
import sqlalchemy as sa
from mcp.shared.exceptions import MCPError

from proctor.agents.slash import COMMANDS
from proctor.protocol.errors import UnavailableError
from proctor.protocol.tools import CallResult, CallState
from proctor.server import mcp_calls
from proctor.server.mcp_calls import Caller, McpCalls, Pool, client_name
from proctor.server.mcp_tools import MAX_OUTPUT, PENDING, result_of
from proctor.store.tables import calls
from tests.server.conftest import Door, served
from tests.server.mcp_clients import ERAS, body, over_http
from tests.support.rows import rows_of

era = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
def careful(tmp_path: Path) -> Iterator[Door]:
    """A server under whose profile every change asks."""
    with served(tmp_path) as door:
        door.front.profile = "careful"
        yield door


def _made(door: Door, tool: str) -> list[dict[str, Any]]:
    return rows_of(
        door.app.database, sa.select(calls).where(calls.c.tool_name == tool).order_by(calls.c.requested_at)
    )


@era
async def test_tools_are_the_registrys_with_their_schemas_and_hints(door: Door, era: str) -> None:
    """Law 3: registry, REST and MCP show one schema; the side-effect class becomes the hints."""
    async with over_http(door, era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    by_rest = {one["name"]: one for one in door.get("/api/tools").json()}
    assert set(listed) == set(by_rest) == {tool.name for tool in door.app.registry.tools()}
    for tool in door.app.registry.tools():
        shown, told = listed[tool.name], by_rest[tool.name]
        assert (
            shown.input_schema
            == told["input_schema"]
            == json.loads(json.dumps(tool.input.model_json_schema()))
        )
        assert shown.output_schema is not None
        own, question = shown.output_schema["anyOf"]
        assert {**own, **_definitions(shown.output_schema)} == told["output_schema"]
        assert question == PENDING
        hints = shown.annotations
        assert hints is not None
        assert hints.read_only_hint is tool.read_only
        assert hints.destructive_hint is (
            not tool.read_only and (tool.side_effect.value == "execute" or not tool.reversible)
        )
    assert listed["read_file"].annotations == types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )


def _definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: schema[name] for name in ("$defs",) if name in schema}


@era
async def test_a_call_is_an_agents_named_after_its_client(door: Door, era: str) -> None:
    """Structured and as text, in one trace per client, and never a person's though the token was."""
    (door.workspace / "a.txt").write_text("text")
    async with over_http(door, era) as client:
        first = await client.call_tool("read_file", {"path": "a.txt"})
        second = await client.call_tool("read_file", {"file_path": "a.txt"})
    assert body(first)["content"] == "text"
    assert isinstance(first.content[0], types.TextContent)
    assert json.loads(first.content[0].text) == body(first)
    rows = _made(door, "read_file")[-2:]
    assert [(row["actor"], row["actor_name"]) for row in rows] == [("agent", "test-client")] * 2
    assert len({row["trace_id"] for row in rows}) == 1
    assert body(second)["content_hash"] == body(first)["content_hash"]


@era
async def test_wrong_arguments_and_unknown_tools_are_results_with_the_reason(door: Door, era: str) -> None:
    """A model can mend what it is told; a protocol error would tell it nothing."""
    async with over_http(door, era) as client:
        for tool, arguments, code in (
            ("read_file", {"path": 3, "more": 1}, "invalid_input"),
            ("read_fil", {}, "not_found"),
            ("read_file", {"path": "no/such"}, None),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert body(result)["status"] == "error"
            assert body(result)["error"]
            assert code is None or body(result)["code"] == code


@era
async def test_a_large_output_is_cut_and_says_so(door: Door, era: str) -> None:
    """Within the cap in both forms, in the tool's own shape."""
    (door.workspace / "big.txt").write_text("line of text\n" * 40_000)
    async with over_http(door, era) as client:
        result = await client.call_tool("read_file", {"path": "big.txt"})
        listing = await client.call_tool("execute_command", {"command": "seq 1 60000"})
    for one in (result, listing):
        assert not one.is_error
        assert body(one)["truncated"] is True
        assert isinstance(one.content[0], types.TextContent)
        assert len(one.content[0].text) <= MAX_OUTPUT
        assert "truncated" in str(one.content[-1])


@era
async def test_progress_is_told_while_a_call_runs(door: Door, era: str) -> None:
    """What the tool says arrives before its end, with values that only rise."""
    told: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert total is None or progress <= total
        told.append((progress, message))

    command = "for i in 1 2 3 4; do echo step $i; sleep 0.4; done"
    async with over_http(door, era) as client:
        result = await client.call_tool("execute_command", {"command": command}, progress_callback=hear)
    assert body(result)["success"]
    assert [message for _, message in told if message and message.startswith("step")]
    values = [value for value, _ in told]
    assert values == sorted(set(values))


@era
async def test_a_question_is_a_normal_result_and_the_same_call_runs_once_when_answered(
    careful: Door, era: str
) -> None:
    """Repeated before the answer it is the same question; after it, it runs; from then on it is the same result."""
    act = ("execute_command", {"command": "echo ran >> count.txt; git status"})
    count = careful.workspace / "count.txt"
    async with over_http(careful, era, query="?hold=0.1") as client:
        first, second = await client.call_tool(*act), await client.call_tool(*act)
        asked = body(first)
        assert (first.is_error, asked["status"]) == (False, "approval_pending")
        assert body(second)["approval_id"] == asked["approval_id"]
        assert f"proctor approve {asked['approval_id']}" in asked["answer"]
        assert not count.exists()
        answered = careful.post(f"/api/approvals/{asked['approval_id']}", {"approved": True})
        assert answered.status_code == 200
        third = await client.call_tool(*act)
    async with over_http(careful, era, query="?hold=0.1") as client:  # also by another connection
        fourth = await client.call_tool(*act)
    assert body(third)["exit_code"] == body(fourth)["exit_code"]
    assert body(third)["duration_ms"] == body(fourth)["duration_ms"]
    assert "not run again" in str(fourth.content[-1])
    assert count.read_text() == "ran\n"


@era
async def test_an_answer_within_the_wait_lets_the_call_run_at_once(careful: Door, era: str) -> None:
    """Whoever answers in time is not asked to repeat anything."""
    async with over_http(careful, era) as client, asyncio.TaskGroup() as group:
        running = group.create_task(client.call_tool("write_file", {"path": "w.txt", "content": "now"}))
        while not (found := careful.get("/api/approvals").json()):  # noqa: ASYNC110 - a fact of the server
            await asyncio.sleep(0.05)
        careful.post(f"/api/approvals/{found[0]['approval_id']}", {"approved": True})
        result = await running
    assert not result.is_error
    assert (careful.workspace / "w.txt").read_text() == "now"


@era
async def test_no_is_said_plainly_and_stays_no(careful: Door, era: str) -> None:
    """The person's reason reaches the model; asking again changes nothing."""
    act = ("write_file", {"path": "n.txt", "content": "x"})
    async with over_http(careful, era, query="?hold=0") as client:
        asked = body(await client.call_tool(*act))["approval_id"]
        careful.post(f"/api/approvals/{asked}", {"approved": False, "reason": "not on a Sunday"})
        for _ in range(2):
            refused = await client.call_tool(*act)
            assert refused.is_error
            assert body(refused)["code"] == "approval_rejected"
            assert "not on a Sunday" in body(refused)["error"]
    assert not (careful.workspace / "n.txt").exists()


@era
async def test_a_cancelled_call_ends_with_its_command(door: Door, era: str) -> None:
    """The client stops waiting: the command's tree is gone, the call is written down as cancelled."""
    mark = door.workspace / f"begun-{era}"
    command = f"touch {mark.name}; sleep 30; touch late-{era}"
    async with over_http(door, era) as client:
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            running = group.create_task(client.call_tool("execute_command", {"command": command}))
            while not mark.exists():  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.05)
            running.cancel()
        async with asyncio.timeout(100):
            while _made(door, "execute_command")[-1]["state"] != "ended":  # noqa: ASYNC110 - facts have no event
                await asyncio.sleep(0.05)
    row = _made(door, "execute_command")[-1]
    assert row["code"] == "cancelled"
    assert not (door.workspace / f"late-{era}").exists()


def test_without_a_token_or_from_elsewhere_nobody_comes_in(door: Door) -> None:
    """401 names the token file; another Origin and another Host are refused with any token."""
    path = "/mcp"
    none = door.post(path, {}, headers={})
    assert none.status_code == 401
    assert str(door.app.settings.paths.token_file) in none.json()["hint"]
    assert door.post(path, {}, headers={"Authorization": "Bearer nonsense"}).status_code == 401
    assert door.post(path, {}, headers={**door.headers, "Origin": "https://evil.example"}).status_code == 403
    assert door.post(path, {}, headers={**door.headers, "Host": "evil.example"}).status_code == 403


def test_rubbish_is_answered_and_leaves_no_session(door: Door) -> None:
    """Whatever is sent is an answer below 500, and what opened nothing keeps nothing."""
    headers = {
        **door.headers,
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    modern = {**headers, "MCP-Protocol-Version": "2026-07-28"}
    for sent in (headers, modern):
        for content in (b"", b"[]", b"{", b"null", b'{"jsonrpc":"2.0","id":1,"method":"nope"}', b"[" * 5000):
            answer = httpx.post(f"{door.http}/mcp", headers=sent, content=content, timeout=30)
            assert answer.status_code < 500, (content, answer.text)
    assert door.get("/mcp", headers={**headers, "Mcp-Session-Id": "nobody"}).status_code == 404


async def test_sessions_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than allowed is told so, and when one ends there is room again."""
    from proctor.server import mcp_http

    monkeypatch.setattr(mcp_http.McpDoor.__init__, "__kwdefaults__", {"most_sessions": 1})
    with served(tmp_path) as door:
        async with over_http(door, "legacy") as client:
            await client.list_tools()
            refused = door.post(
                "/mcp",
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
                headers={**door.headers, "Accept": "application/json, text/event-stream"},
            )
            assert refused.status_code == 503
        async with over_http(door, "legacy") as client:
            assert (await client.list_tools()).tools


async def test_more_calls_than_the_pool_bears_are_refused_and_the_pool_ends_what_runs() -> None:
    """Bounded: the one too many hears so at once; at the end everything is cancelled and waited for."""
    pool, begun, cleaned = Pool(most=1), asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            cleaned.set()
        return "never"

    async with asyncio.TaskGroup() as group:
        async with pool.open():
            waiting = group.create_task(pool.run(work))
            await begun.wait()
            with pytest.raises(UnavailableError, match="1 calls run already"):
                await pool.run(work)
        assert cleaned.is_set()
        assert len(pool) == 0
        await asyncio.wait([waiting])
        assert waiting.cancelled()


async def test_a_call_that_is_ended_before_it_began_keeps_nobody_waiting() -> None:
    """Closing in the very moment a call comes in ends it like any other."""
    pool = Pool()

    async def work() -> None:
        raise AssertionError("it never begins")

    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        async with pool.open():
            waiting = group.create_task(pool.run(work))
            await asyncio.sleep(0)
        await asyncio.wait([waiting])
    assert waiting.cancelled()
    with pytest.raises(UnavailableError):
        await pool.run(work)


async def test_prompts_are_the_slash_commands(door: Door) -> None:
    """The texts that `proctor integrate` writes, under names that do not meet those of the written files."""
    async with over_http(door, "2026-07-28") as client:
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        shown = await client.get_prompt("proctor-orchestrate", {"arguments": "mend the tests"})
        with pytest.raises(MCPError, match="Known: orchestrate"):
            await client.get_prompt("nothing", {})
    assert names == [f"proctor-{name}" for name in COMMANDS]
    assert "mend the tests" in str(shown.messages[0].content)


def test_names_and_outputs_that_nobody_expects_are_made_fit() -> None:
    """A client without a name, or with a line break in it, is still an agent; an output that was not kept is no success."""
    assert client_name(None) == client_name(" \n") == "mcp-client"
    assert client_name("a\nb" * 100) == ("ab" * 100)[:60]
    asked = CallResult(call_id="c", tool="t", trace_id="x", state=CallState.WAITING, approval_id="appr_2")
    assert "appr_1 expired without an answer" in result_of(asked, "appr_1").structured_content["reason"]
    empty = CallResult(call_id="c", tool="t", trace_id="x", state=CallState.ENDED, replayed=True)
    assert result_of(empty).is_error
    huge = {"rows": [{"text": "x" * 50}] * 100_000, "name": "y" * 10}
    cut = result_of(CallResult(call_id="c", tool="t", trace_id="x", state=CallState.ENDED, output=huge))
    assert isinstance(cut.content[0], types.TextContent)
    assert len(cut.content[0].text) <= MAX_OUTPUT
    assert cut.structured_content["name"] == huge["name"]


async def test_runs_that_grew_old_are_let_go_once_by_calls_that_come_together(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letting go waits for the disk; whoever comes meanwhile finds other old runs, never one that is being let go."""
    made = McpCalls(door.app)

    async def ask(run: str) -> bool | None:
        who = Caller("client", run, door.workspace, "standard")
        done = await made.call(who, "list_directory", {}, lambda *_: None)
        return done.is_error

    async with made.open():
        for number in range(4):
            assert not await ask(f"old{number}")
        monkeypatch.setattr(mcp_calls, "IDLE_SECONDS", -1.0)
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(f"new{number}")) for number in range(4)]
    assert [one.result() for one in asked] == [False] * 4
