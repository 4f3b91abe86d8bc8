"""Chat over WebSocket and REST against the scripted model server: exact frames, history, questions, failures."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proctor.gate.task_tokens import Holder
from proctor.protocol.errors import RefusedError
from proctor.server.chat_api import SocketChat
from proctor.server.frames import Asked
from proctor.server.holding import HOLDER
from proctor.testing.model_server import ModelServer
from tests.server.conftest import Door, Socket, served

SETTINGS = """
[agents.SOLACE.api]
base_url = "{url}/v1"
key = "SOLACE_KEY"
[agents.SOLACE.env]
SOLACE_KEY = "sk-simulated-0001"
[agents.FORGE.api]
base_url = "{url}"
"""


@pytest.fixture(scope="module")
def models() -> Iterator[ModelServer]:
    """Models that follow the prompt's script."""
    with ModelServer() as running:
        yield running


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, models: ModelServer) -> Iterator[Door]:
    """A server whose SOLACE asks the scripted models; FORGE has no key."""
    place = tmp_path_factory.mktemp("chat")
    (place / "work").mkdir()
    (place / "work" / "proctor.toml").write_text(SETTINGS.format(url=models.url))
    with served(place) as made:
        (made.workspace / "a.txt").write_text("hello from a file\n")
        yield made


@pytest.fixture
def line(door: Door) -> Iterator[Socket]:
    """A WebSocket on the seeds' port."""
    with door.socket() as made:
        yield made


def script(*steps: dict[str, Any]) -> str:
    """A prompt for the scripted models."""
    return f"Please. FAKE:{json.dumps({'steps': steps})}"


def call(name: str, **args: Any) -> dict[str, Any]:
    """A step that calls a tool."""
    return {"call": {"name": name, "args": args}}


def frames(line: Socket, message: dict[str, Any], last: str = "chat_response") -> list[dict[str, Any]]:
    """All frames up to the answer."""
    line.send(message)
    found = [line.receive(60)]
    while found[-1]["type"] not in {last, "error"}:
        found.append(line.receive(60))
    return found


def test_chat_sends_status_frames_and_then_exactly_the_answer(line: Socket) -> None:
    """The seed's frames, with the message as data or at the top level."""
    text = script(call("read_file", path="a.txt"), {"text": "It says hello."})
    for message in ({"type": "chat", "data": {"message": text}}, {"type": "chat", "message": text}):
        assert frames(line, message) == [
            {"type": "status", "message": "Executing read_file..."},
            {"type": "chat_response", "message": "It says hello."},
        ]


def test_a_connections_messages_share_one_history(line: Socket, models: ModelServer) -> None:
    """What was said before is told to the model again."""
    frames(line, {"type": "chat", "message": script({"text": "first answer"})})
    frames(line, {"type": "chat", "message": "and the second question"})
    path, body = models.requests[-1]
    assert path == "/v1/responses"
    assert "first answer" in json.dumps(body["input"])
    assert "and the second question" in json.dumps(body["input"])


def test_whoever_wants_progress_gets_pieces_and_the_chats_id(line: Socket, door: Door) -> None:
    """Extra frames come only when asked for; the id in the request comes back in all of them."""
    message = {"type": "chat", "message": script({"text": "a rather long answer"}), "progress": True, "id": 7}
    found = frames(line, message)
    assert {frame["id"] for frame in found} == {7}
    assert "".join(f["message"] for f in found if f["type"] == "chat_delta") == "a rather long answer"
    told = door.get(f"/api/chats/{found[-1]['chat_id']}").json()
    assert [row["role"] for row in told["history"]] == ["user", "assistant"]
    assert (told["state"], told["agent"]) == ("idle", "SOLACE")


def test_bad_arguments_go_back_to_the_model_and_the_chat_goes_on(line: Socket, models: ModelServer) -> None:
    """Bug 8: broken JSON in a function's arguments ends nothing; the model is told and tries again."""
    broken = {"call": {"name": "read_file", "raw": '{"path": '}}
    text = script(broken, call("read_file", wrong=1), call("read_file", path="a.txt"), {"text": "now"})
    assert frames(line, {"type": "chat", "message": text})[-1] == {"type": "chat_response", "message": "now"}
    told = json.dumps(models.requests[-1][1]["input"])
    assert "not valid JSON" in told
    assert "Field required" in told
    assert "hello from a file" in told


def test_five_requests_at_most_and_always_an_answer(line: Socket, models: ModelServer) -> None:
    """The fifth request may call no tool; a model that does so anyway is ended with a clear sentence."""
    steps = [call("list_directory", path=".") for _ in range(5)]
    before = len(models.requests)
    polite = frames(line, {"type": "chat", "message": script(*steps)})
    assert len(models.requests) - before == 5
    assert models.requests[-1][1]["tool_choice"] == "none"
    assert len(models.requests[-1][1]["tools"]) > 20
    assert [frame["type"] for frame in polite] == ["status"] * 4 + ["chat_response"]
    stubborn = [*steps[:4], {**steps[4], "stubborn": True}]
    last = frames(line, {"type": "chat", "message": script(*stubborn)})[-1]
    assert last["type"] == "chat_response"
    assert "Maximum iterations reached" in last["message"]
    assert (
        frames(line, {"type": "chat", "message": script({"text": "still there"})})[-1]["message"]
        == "still there"
    )


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"http": 401}, "SOLACE_KEY"),
        ({"http": 404}, "agents.SOLACE.model"),
        ({"http": 429, "headers": {"retry-after": "120"}}, "too many requests"),
    ],
)
def test_what_the_provider_refuses_is_said_with_the_cure(
    line: Socket, step: dict[str, Any], said: str
) -> None:
    """An error frame with a sentence; the connection and the chat stay."""
    answer = frames(line, {"type": "chat", "message": script(step)})[-1]
    assert answer["type"] == "error"
    assert said in answer["message"]
    assert line.ask({"type": "ping"})["type"] == "pong"


def test_without_a_key_the_chat_says_which_one_to_set(line: Socket) -> None:
    """The agent is named, the variable too."""
    answer = line.ask({"type": "chat", "data": {"message": "hi", "agent": "FORGE"}})
    assert answer["type"] == "error"
    assert "Set ANTHROPIC_API_KEY in the environment or in .env." in answer["message"]


def test_a_chat_does_not_freeze_the_others(door: Door, line: Socket) -> None:
    """Bug 6: while one client's model thinks, another client is answered."""
    line.send({"type": "chat", "message": script({"text": "slow", "delay": 3})})
    began = time.monotonic()
    with door.socket() as other:
        assert other.ask({"type": "read_file", "data": {"path": "a.txt"}})["type"] == "file_content"
    assert time.monotonic() - began < 3
    assert line.receive(60)["message"] == "slow"


def test_the_agents_calls_are_the_agents(line: Socket, door: Door) -> None:
    """Law 8 and law 2: what the model does is done as an agent, in the one trace of its chat."""
    text = script(call("read_file", path="missing.txt"), {"text": "it is not there"})
    found = frames(line, {"type": "chat", "message": text, "progress": True})
    chat = door.get(f"/api/chats/{found[-1]['chat_id']}").json()
    tool = next(row for row in chat["history"] if row["role"] == "tool")
    assert tool["details"] == {"ok": False, "code": "not_found"}
    events = door.get(f"/api/agents/trace/{chat['trace_id']}").json()["events"]
    used = [one for one in events if one["tool_name"] in {"read_file", "model_request"}]
    assert len(used) == 6
    assert {(one["actor"], one["actor_name"]) for one in used} == {("agent", "SOLACE")}
    assert {"chat_opened", "chat_asked", "chat_answered"} <= {one["event"] for one in events}


async def test_an_agent_with_a_tasks_token_does_not_chat(door: Door) -> None:
    """A model on a person's bill is not a tool: the token of a task opens tools only."""
    holder = Holder("task_1", 1, "FORGE", "trace_1", None, None, None)
    mark = HOLDER.set(holder)
    try:
        with pytest.raises(RefusedError, match="an agent does not chat"):
            await SocketChat(door.front).answer(Asked("chat", {"message": "hi"}, {}), _nobody)
    finally:
        HOLDER.reset(mark)


async def _nobody(_frame: dict[str, Any]) -> None:
    raise AssertionError("nothing is told")


# ── REST ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rest_opens_answers_and_remembers(door: Door) -> None:
    """201 for a chat, 200 for an answer with its cost, and the history afterwards."""
    opened = door.post("/api/chats", {})
    assert opened.status_code == 201
    chat_id = opened.json()["chat_id"]
    text = script(call("read_file", path="a.txt"), {"text": "read it"})
    answer = door.post(f"/api/chats/{chat_id}/messages", {"message": text}).json()
    assert (answer["outcome"], answer["message"], answer["requests"]) == ("answered", "read it", 2)
    assert answer["usage"]["input_tokens"] == 2800
    assert answer["usage"]["cost_usd"] > 0
    listed = door.get("/api/chats").json()
    assert chat_id in [one["chat_id"] for one in listed]


def test_a_parked_chat_answers_202_refuses_new_words_and_goes_on_once_answered(door: Door) -> None:
    """The pitfall: a new prompt must not silently pass over an open question."""
    text = script(call("add_architecture_rule", feature_type="rest_rule"), {"text": "added"})
    parked = door.post("/api/chats", {"message": text})
    assert (parked.status_code, parked.json()["outcome"]) == (202, "parked")
    place, (approval,) = parked.headers["Location"], parked.json()["waiting_for"]
    refused = door.post(f"{place}/messages", {"message": "never mind"})
    assert (refused.status_code, refused.json()["code"]) == (409, "chat_waits")
    assert approval in refused.json()["error"]
    assert door.post(f"{place}/resume").status_code == 202
    door.post(f"/api/approvals/{approval}", {"approved": True})
    with ThreadPoolExecutor(2) as two:
        done = list(two.map(lambda _: door.post(f"{place}/resume").json(), range(2)))
    assert "added" in [one.get("message") for one in done]
    rules = door.post("/api/tools/search_architecture_rules", {"keyword": "rest_rule"}).json()
    assert rules["output"]["count"] == 1
    assert door.get(place).json()["state"] == "idle"


def test_an_answer_given_while_the_socket_waits_lets_the_turn_go_on(door: Door, line: Socket) -> None:
    """The chat holds for twenty seconds and says what it waits for."""
    text = script(call("add_architecture_rule", feature_type="held_rule"), {"text": "added it"})
    line.send({"type": "chat", "message": text, "progress": True})
    found = line.receive(60)
    while found["type"] != "approval_requested":
        found = line.receive(60)
    door.post(f"/api/approvals/{found['approval_id']}", {"approved": True})
    while found["type"] != "chat_response":
        found = line.receive(60)
    assert found["message"] == "added it"


def test_failures_have_their_own_status_and_a_stream_ends_with_the_end(door: Door) -> None:
    """503 with the cure; as server-sent events pieces come first."""
    failed = door.post("/api/chats", {"message": script({"http": 401})})
    assert (failed.status_code, failed.json()["code"]) == (503, "model_auth")
    streamed = door.post("/api/chats?stream=true", {"message": script({"text": "piece by piece"})})
    kinds = [row.removeprefix("event: ") for row in streamed.text.splitlines() if row.startswith("event: ")]
    assert (kinds[0], kinds[-1]) == ("text", "end")
    assert door.post("/api/chats", {"agent": "claude"}).status_code == 503
    assert door.post("/api/chats", {"agent": "nobody"}).status_code == 404
    assert door.get("/api/chats/chat_nowhere").status_code == 404
    assert door.post("/api/chats", {"message": "x\0y"}).status_code == 400


def test_a_secret_in_a_message_is_neither_kept_nor_traced(door: Door) -> None:
    """Redacted before history, transcript and trace."""
    secret = "sk-proj-" + "a1B2" * 12
    answer = door.post("/api/chats", {"message": f"my key is {secret}. " + script({"text": "ok"})}).json()
    whole = door.get(f"/api/chats/{answer['chat_id']}").text
    events = door.get(f"/api/agents/trace/{answer['trace_id']}").text
    assert secret not in whole + events
    assert secret.encode() not in Path(door.app.settings.database_url.removeprefix("sqlite:///")).read_bytes()
