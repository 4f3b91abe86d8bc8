"""The scripted model server: it follows the prompt's script, speaks every protocol and fails as told."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from proctor.testing.model_script import SIDE_ANSWER
from proctor.testing.model_server import ModelServer

WRITE = {"tool": "write", "path": "/w/a.txt", "content": "hi"}
CLAUDE_TOOLS = [{"name": "Write"}, {"name": "Bash"}]
CODEX_TOOLS = [{"name": "exec_command", "type": "function"}, {"name": "apply_patch", "type": "custom"}]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A running server."""
    with ModelServer() as running:
        yield running


def prompt(*steps: dict[str, Any]) -> str:
    """Make a prompt that carries a script."""
    return f"Please. FAKE:{json.dumps({'steps': steps})}"


def post(server: ModelServer, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """Send one request; the status and the whole answer."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        try:
            return answer.status, answer.read().decode()
        except http.client.IncompleteRead as error:
            return answer.status, error.partial.decode()
    finally:
        connection.close()


def claude(server: ModelServer, *messages: dict[str, Any], stream: bool = False) -> tuple[int, str]:
    """Ask as Claude does."""
    body = {"model": "m", "messages": list(messages), "tools": CLAUDE_TOOLS, "stream": stream}
    return post(server, "/v1/messages?beta=true", body)


def frames(text: str) -> list[dict[str, Any]]:
    """Read server-sent events."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def test_a_step_is_repeated_until_the_client_tells_of_a_tool(server: ModelServer) -> None:
    """As often as it takes, also when a request comes twice; what follows is counted from there."""
    wait = {"tool": "shell", "command": "sleep 1", "until_told": ["mcp__", "house"]}
    asked = {"role": "user", "content": prompt(wait, {"tool": "read", "path": "a"}, {"text": "over"})}
    result: dict[str, Any] = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}],
    }
    told: list[dict[str, Any]] = [asked]

    def next_of(*more: str) -> str:
        body = {"model": "m", "messages": told, "tools": [*CLAUDE_TOOLS, *({"name": one} for one in more)]}
        (block,) = json.loads(post(server, "/v1/messages", body)[1])["content"]
        return str(block.get("name") or block["text"])

    assert next_of() == "Bash"
    for _ in range(2):
        told += [{"role": "assistant", "content": "…"}, result]
        assert [next_of(), next_of()] == ["Bash", "Bash"]
    told += [{"role": "assistant", "content": "…"}, result]
    assert next_of("mcp__house__look") == "Read"
    told += [{"role": "assistant", "content": "…"}, result]
    assert next_of("mcp__house__look") == "over"


def test_messages_follow_the_script_step_by_step(server: ModelServer) -> None:
    """The tool results after the script say which step is next; beyond its end it says so."""
    asked = {"role": "user", "content": prompt(WRITE, {"text": "done"})}
    result: dict[str, Any] = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}],
    }
    first = json.loads(claude(server, asked)[1])
    assert first["content"][0]["input"] == {"file_path": "/w/a.txt", "content": "hi"}
    assert first["stop_reason"] == "tool_use"
    said = {"role": "assistant", "content": first["content"]}
    assert json.loads(claude(server, asked, said, result)[1])["content"][0]["text"] == "done"
    beyond = json.loads(claude(server, asked, said, result, said, result)[1])
    assert "simulated" in beyond["content"][0]["text"]


def test_a_new_script_after_a_resume_counts_from_its_own_start(server: ModelServer) -> None:
    """Only results after the last script count."""
    old = {"role": "user", "content": prompt(WRITE)}
    result: dict[str, Any] = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}],
    }
    new = {"role": "user", "content": [{"type": "text", "text": prompt({"tool": "shell", "command": "ls"})}]}
    answer = json.loads(claude(server, old, result, new)[1])
    assert answer["content"][0]["name"] == "Bash"


def test_stream_says_the_same_as_the_whole(server: ModelServer) -> None:
    """The streamed tool call carries the same input."""
    asked = {"role": "user", "content": prompt(WRITE)}
    events = frames(claude(server, asked, stream=True)[1])
    assert [event["type"] for event in events][0::5] == ["message_start", "message_stop"]
    delta = next(event["delta"] for event in events if event["type"] == "content_block_delta")
    assert json.loads(delta["partial_json"]) == {"file_path": "/w/a.txt", "content": "hi"}


def test_responses_offer_the_clients_own_tools(server: ModelServer) -> None:
    """Codex gets a patch where it has the tool, a shell command where not, JavaScript in code mode."""
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt(WRITE)}]}
    kinds = []
    for tools, extra in (
        (CODEX_TOOLS, []),
        (CODEX_TOOLS[:1], []),
        ([], [{"type": "additional_tools", "tools": []}]),
    ):
        body = {"model": "m", "input": [*extra, user], "tools": tools, "stream": True}
        events = frames(post(server, "/v1/responses", body)[1])
        assert [event["type"] for event in events][-1] == "response.completed"
        kinds.append(events[-2]["item"]["name"])
    assert kinds == ["apply_patch", "exec_command", "exec"]


def test_requests_without_tools_or_script_get_a_side_answer(server: ModelServer) -> None:
    """Titles and summaries do not consume the script."""
    status, text = post(server, "/v1/messages", {"messages": [{"role": "user", "content": prompt(WRITE)}]})
    assert (status, json.loads(text)["content"][0]["text"]) == (200, SIDE_ANSWER)
    assert SIDE_ANSWER in claude(server, {"role": "user", "content": "no script"})[1]


def test_faults_strike_as_often_as_told(server: ModelServer) -> None:
    """A status twice, then the answer; both error dialects."""
    asked = {"role": "user", "content": prompt({"http": 529, "times": 2, "text": "back"})}
    assert [claude(server, asked)[0] for _ in range(3)] == [529, 529, 200]
    user = {"type": "message", "role": "user", "content": prompt({"http": 401})}
    status, text = post(server, "/v1/responses", {"input": [user], "tools": CODEX_TOOLS})
    assert (status, json.loads(text)["error"]["type"]) == (401, "authentication_error")


def test_dropped_stream_ends_in_the_middle(server: ModelServer) -> None:
    """A dropped answer has a beginning and no end."""
    events = frames(
        claude(server, {"role": "user", "content": prompt({"text": "x", "drop": True})}, stream=True)[1]
    )
    names = [event["type"] for event in events]
    assert "message_start" in names
    assert "message_stop" not in names


def test_hanging_step_never_answers(server: ModelServer) -> None:
    """A hang lasts until the client gives up."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=0.3)
    body = {"messages": [{"role": "user", "content": prompt({"hang": True})}], "tools": CLAUDE_TOOLS}
    connection.request("POST", "/v1/messages", json.dumps(body))
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()


def test_nonsense_is_refused(server: ModelServer) -> None:
    """No JSON, an unknown path and an unreadable script each have an answer."""
    assert post(server, "/v1/other", {})[0] == 404
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    connection.request("POST", "/v1/messages", "{")
    assert connection.getresponse().status == 400
    connection.close()
    assert "cannot be read" in claude(server, {"role": "user", "content": "FAKE:{oops"})[1]


def test_it_runs_as_a_program() -> None:
    """Started by hand it says where it listens."""
    with subprocess.Popen(
        [sys.executable, "-m", "proctor.testing.model_server"], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["url"].startswith("http://127.0.0.1:")
        program.terminate()
