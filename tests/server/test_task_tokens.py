"""A task's token over REST, WebSocket and MCP: the agent's own tools in its worktree, and a refusal for everything else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from websockets.exceptions import InvalidStatus

from proctor.config import load_settings
from proctor.engine.doors import write_address
from proctor.gate.task_tokens import VARIABLE, hash_of, new_token
from proctor.store.tables import approvals, attempts, budget_nodes, calls, task_queue
from tests.server.conftest import Door, served
from tests.server.mcp_clients import ERAS, Desk, body, over_http
from tests.support.rows import NOON, insert, rows_of


@dataclass
class Agent:
    """An agent at work on a task, as it sees the server."""

    door: Door
    worktree: Path
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """What it shows."""
        return {"Authorization": f"Bearer {self.token}"}

    def request(self, method: str, path: str, body: object = None) -> httpx.Response:
        """One request of its own."""
        return self.door.request(method, path, json=body, headers=self.headers)

    def rows(self) -> list[dict[str, Any]]:
        """The calls of its task."""
        mine = sa.select(calls).where(calls.c.task_id == "task-1").order_by(calls.c.requested_at)
        return rows_of(self.door.app.database, mine)

    def end(self) -> None:
        """Its attempt has ended."""
        with self.door.app.database.write() as connection:
            connection.execute(attempts.update().values(ended_at=NOON))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """A running attempt in a worktree of a careful repository."""
    with served(tmp_path) as door:
        (door.workspace / "proctor.toml").write_text('profile = "careful"\n')
        worktree, token = tmp_path / "wt", new_token("task-1", 1)
        worktree.mkdir()
        (worktree / "a.txt").write_text("of the worktree")
        (worktree / "proctor.toml").write_text('profile = "standard"\n')
        task = {
            "task_id": "task-1",
            "description": "d",
            "attempt": 1,
            "trace_id": "trace-1",
            "session_id": "s-1",
        }
        insert(door.app.database, task_queue, **task, status="in_progress", workspace=str(door.workspace))
        tried = {
            "task_id": "task-1",
            "attempt": 1,
            "agent_name": "forge",
            "owner": "x",
            "worktree": str(worktree),
        }
        insert(door.app.database, attempts, **tried, token_hash=hash_of(token))
        yield Agent(door, worktree, token)


def test_its_rest_calls_are_the_tasks(agent: Agent) -> None:
    """Actor, task, attempt, trace, session, worktree, profile and budget are those of the task."""
    for method, path, sent in (
        ("POST", "/api/tools/read_file", {"path": "a.txt"}),
        ("POST", "/api/v1/solace-orch/file/read", {"file_path": "a.txt"}),
    ):
        answer = agent.request(method, path, sent)
        assert answer.status_code == 200, answer.text
        assert "of the worktree" in answer.text
    for row in agent.rows():
        assert (row["actor"], row["actor_name"], row["attempt"]) == ("agent", "forge", 1)
        assert (row["trace_id"], row["session_id"], row["workspace"]) == (
            "trace-1",
            "s-1",
            str(agent.worktree),
        )
        assert row["profile"] == "careful"
    assert len(agent.rows()) == 2
    nodes = rows_of(agent.door.app.database, sa.select(budget_nodes.c.node_id, budget_nodes.c.used_calls))
    assert {"task:task-1", "session:s-1"} <= {row["node_id"] for row in nodes}


def test_its_websocket_calls_are_the_tasks(agent: Agent) -> None:
    """On `/ws` and on the seeds' port, by header and by address."""
    for path, more in (
        ("/ws", {"additional_headers": agent.headers}),
        ("", {"additional_headers": agent.headers}),
    ):
        with agent.door.socket(path, **more) as line:
            assert line.ask({"type": "read_file", "data": {"path": "a.txt"}})["content"] == "of the worktree"
    with agent.door.socket(f"/ws?api_key={agent.token}", additional_headers={}) as line:
        assert line.ask({"type": "read_file", "data": {"path": "a.txt"}})["content"] == "of the worktree"
    assert {(row["actor"], row["task_id"]) for row in agent.rows()} == {("agent", "task-1")}
    assert len(agent.rows()) == 3


@pytest.mark.parametrize("era", ERAS)
async def test_its_mcp_calls_are_the_tasks_and_its_session_is_its_own(agent: Agent, era: str) -> None:
    """Whatever the client calls itself; another's session id is worth nothing."""
    async with over_http(agent.door, era, headers=agent.headers, query="?hold=0") as client:
        read = await client.call_tool("read_file", {"path": "a.txt"})
        asked = await client.call_tool("write_file", {"path": "b.txt", "content": "x"})
        stopped = await client.call_tool("stop_tasks", {})
    assert body(read)["content"] == "of the worktree"
    assert body(asked)["status"] == body(stopped)["status"] == "approval_pending"
    assert {(row["actor_name"], row["trace_id"]) for row in agent.rows()} == {("forge", "trace-1")}


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_proctor_mcp_passes_on_to_the_server_that_knows_the_task(
    agent: Agent, tmp_path: Path, era: str
) -> None:
    """An agent whose own environment leads to another state: calls, errors and questions go through all the same."""
    (tmp_path / "elsewhere").mkdir()
    desk = Desk(tmp_path / "elsewhere", "", {VARIABLE: agent.token, "PROCTOR_RUN": "mark"})
    paths = load_settings(desk.work, desk.environ).paths
    write_address(paths, agent.door.http)
    async with desk.client(era, "--hold", "0") as client:
        read = await client.call_tool("read_file", {"path": "a.txt"})
        wrong = await client.call_tool("read_file", {})
        asked = await client.call_tool("write_file", {"path": "b.txt", "content": "x"})
    assert body(read)["content"] == "of the worktree"
    assert wrong.is_error
    assert body(asked)["status"] == "approval_pending"
    assert {(row["actor_name"], row["task_id"]) for row in agent.rows()} == {("forge", "task-1")}
    assert not list(desk.home.rglob("proctor.db"))
    agent.end()
    refused = desk.proctor("mcp", ok=False)
    assert refused.returncode == 5
    assert "PROCTOR_TASK_TOKEN" in refused.stderr


async def test_a_session_belongs_to_who_opened_it(agent: Agent) -> None:
    """A person's session cannot be used with a task's token, nor the other way round."""
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }  # fmt: skip
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    for opens, other in ((agent.door.headers, agent.headers), (agent.headers, agent.door.headers)):
        opened = agent.door.post("/mcp", hello, headers={**headers, **opens})
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        assert agent.door.post("/mcp", listing, headers={**headers, **other, **session}).status_code == 404
        assert agent.door.post("/mcp", listing, headers={**headers, **opens, **session}).status_code == 200


CLOSED: list[tuple[str, str, object]] = [
    ("POST", "/api/approvals/appr_1", {"approved": True}),
    ("POST", "/api/approvals/appr_1", {"approved": True, "grant": "always"}),
    ("POST", "/api/agents/approve", {"approval_id": "appr_1", "approved": True}),
    ("POST", "/api/approval/appr_1/approve", {}),
    ("GET", "/api/approvals", None),
    ("GET", "/api/calls/call_1", None),
    ("POST", "/api/profile", {"profile_id": "unattended"}),
    ("POST", "/api/v1/agents/tasks", {"task_type": "task", "description": "x"}),
    ("POST", "/api/plans", {}),
    ("GET", "/api/events", None),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
    ("GET", "/mcpx", None),
]


def test_it_opens_nothing_but_tools(agent: Agent) -> None:
    """No answer, no grant, no setting, nobody else's work: refused with the cure, and nothing has changed."""
    question = {
        "approval_id": "appr_1",
        "trace_id": "t",
        "action": "a",
        "tool_name": "x",
        "risk_level": "high",
    }
    insert(agent.door.app.database, approvals, **question, expires_at=NOON.replace(year=2099))
    for method, path, sent in CLOSED:
        answer = agent.request(method, path, sent)
        assert answer.status_code == 403, (path, answer.text)
        assert "tools only" in answer.json()["error"]
    (row,) = rows_of(agent.door.app.database, sa.select(approvals.c.status))
    assert row["status"] == "pending"


def test_it_sees_no_traces_and_does_not_choose_where_or_how_it_is_judged(agent: Agent) -> None:
    """Trace sockets are closed to it; workspace, profile, trace and name are not its to say."""
    with (
        pytest.raises(InvalidStatus, match="403"),
        agent.door.socket("/ws/traces/trace-1", additional_headers=agent.headers),
    ):
        pass
    for query in ("profile=unattended", f"workspace={agent.door.workspace}", "trace_id=t-9", "agent=other"):
        answer = agent.request("POST", f"/api/tools/read_file?{query}", {"path": "a.txt"})
        assert answer.status_code == 400, answer.text
    assert agent.rows() == []


def test_it_is_void_when_its_attempt_has_ended(agent: Agent) -> None:
    """Also for a made-up one; the refusal does not tell which it was."""
    assert agent.request("GET", "/api/tools").status_code == 200
    agent.end()
    ended = agent.request("GET", "/api/tools")
    agent.token = new_token("task-9", 1)
    made_up = agent.request("GET", "/api/tools")
    assert (ended.status_code, made_up.status_code) == (401, 401)
    assert ended.json() == made_up.json()


def test_host_and_origin_count_for_it_too(agent: Agent) -> None:
    """A page from elsewhere that got hold of a token still does not come in."""
    for more in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        answer = agent.door.request("GET", "/api/tools", headers={**agent.headers, **more})
        assert answer.status_code == 403


def test_two_tasks_keys_do_not_meet(agent: Agent) -> None:
    """The same idempotency key of an agent and of a person are two calls."""
    headers = {"Idempotency-Key": "same"}
    (agent.door.workspace / "a.txt").write_text("of the person")
    first = agent.door.post("/api/tools/read_file", {"path": "a.txt"}, headers={**agent.headers, **headers})
    second = agent.door.post(
        "/api/tools/read_file", {"path": "a.txt"}, headers={**agent.door.headers, **headers}
    )
    assert first.json()["output"]["content"] == "of the worktree"
    assert second.json()["output"]["content"] == "of the person"
