"""The module functions of seed 000's `coordinator.py`, in processes of their own, under their bare names."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from proctor.compat import swarm
from proctor.compat.house import House
from proctor.gate.humans import load_token
from proctor.testing.model_server import ModelServer
from tests.layers.tree import PACKAGE, ROOT

BARE = PACKAGE / "compat" / "path"


def _python(code: str, home: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(BARE), "PATH": "/usr/bin:/bin", "HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        **more,
    )


@pytest.mark.slow
def test_bare_names_do_real_work_in_a_process_of_their_own(project: Path, home: Path) -> None:
    """The seed's own import lines, its functions and its class, against the user's state."""
    code = (
        "from file_operations import create_backup, restore_backup; print('Functions available')\n"
        "from file_operations import read_file, write_file, list_directory\n"
        "from coordinator import AgentCoordinator, get_db_connection, get_openai_tools\n"
        "from coordinator import query_architecture_rules, handle_websocket, start_websocket_server, main\n"
        "import agent_coordinator, json; assert agent_coordinator.AgentCoordinator is AgentCoordinator\n"
        "write_file('a.txt', 'one'); saved = create_backup('.'); write_file('a.txt', 'two')\n"
        "restore_backup(saved, '.'); print(read_file('a.txt'))\n"
        "print(len(list_directory('.', False)), len(query_architecture_rules()))\n"
        "print([one['function']['name'] for one in get_openai_tools()])\n"
        "with get_db_connection() as c, c.cursor() as rows:\n"
        "    rows.execute('SELECT count(*) AS n FROM calls'); print(rows.fetchone()['n'] > 3)\n"
        "print(json.dumps(AgentCoordinator().get_pending_tasks()))\n"
    )
    done = _python(code, home, cwd=project)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["Functions available", "one"]
    assert lines[3] == str(
        [
            *("read_file", "write_file", "list_directory", "query_architecture", "create_backup"),
            *("restore_backup", "execute_command"),
        ]
    )
    assert lines[4:] == ["True", "[]"]
    assert done.stderr == ""


def test_model_tools_say_what_the_seed_says(users: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven functions with the seed's parameters; the descriptions tell to back up first."""
    monkeypatch.setattr(swarm, "users_house", lambda: users)
    tools = {one["function"]["name"]: one["function"] for one in swarm.get_openai_tools()}
    assert tuple(tools) == swarm.CHAT_TOOLS
    assert "Always call this before modifying files." in tools["create_backup"]["description"]
    assert {"path", "recursive", "max_depth"} <= set(tools["list_directory"]["parameters"]["properties"])
    assert {"command", "cwd"} <= set(tools["execute_command"]["parameters"]["properties"])
    assert tools["write_file"]["parameters"]["required"] == ["path", "content"]


@pytest.fixture
def served(project: Path, home: Path) -> Iterator[str]:
    """`python coordinator.py --websocket` on a free port, as the seed starts it."""
    code = (
        "import asyncio, coordinator\n"
        "asyncio.run(coordinator.start_websocket_server('127.0.0.1', 0, ready=lambda p: print(p, flush=True)))"
    )
    environment = {"PYTHONPATH": str(BARE), "PATH": "/usr/bin:/bin", "HOME": str(home)}
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=project, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout is not None
    yield f"ws://127.0.0.1:{int(child.stdout.readline())}"
    child.send_signal(signal.SIGINT)
    child.wait(30)


def _token(home: Path) -> dict[str, str]:
    return {"X-SOLACE-API-KEY": load_token(home / ".local" / "state" / "proctor" / "token")}


@pytest.mark.slow
def test_websocket_of_the_facade_is_the_real_one(served: str, home: Path, project: Path) -> None:
    """The seeds' client finds every frame right, against the façade's own server."""
    token = home / ".local" / "state" / "proctor" / "token"
    client = ROOT / "examples" / "seed_clients" / "websocket_client.py"
    with connect(served, proxy=None) as line, pytest.raises(ConnectionClosed, match="needs a token"):
        line.recv(timeout=20)
    words = [sys.executable, str(client), "--url", served, "--token-file", str(token)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_item_1_page_from_elsewhere_cannot_use_the_facades_server(served: str, home: Path) -> None:
    """A foreign Origin is closed with the reason, also with the token."""
    with connect(served, proxy=None):
        pass  # its first visitor makes the token
    evil, headers = Origin("https://evil.example"), _token(home)
    with (
        connect(served, proxy=None, origin=evil, additional_headers=headers) as line,
        pytest.raises(ConnectionClosed, match=r"may not call this server"),
    ):
        line.recv(timeout=20)


async def test_handler_serves_a_server_of_the_callers_own(
    users: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`websockets.serve(handle_websocket, …)`, as the seed has it: one bad message never closes the line."""
    from websockets.asyncio.client import connect as connect_async
    from websockets.asyncio.server import serve

    monkeypatch.setattr(swarm, "users_house", lambda: users)
    token = await asyncio.to_thread(load_token, users.app.settings.paths.token_file)
    async with serve(swarm.handle_websocket, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect_async(f"ws://127.0.0.1:{port}/?api_key={token}", proxy=None) as line:
            for message in ("{", "[]", '{"type": "read_file", "data": null}'):
                await line.send(message)
                assert json.loads(await line.recv())["type"] == "error"
            await line.send('{"type": "ping"}')
            assert json.loads(await line.recv())["type"] == "pong"


CHAT = """
import asyncio, json, sys
from coordinator import handle_chat_message
class Line:
    async def send(self, text): print(text)
async def main():
    line = Line()
    for message in json.loads(sys.argv[1]):
        print(json.dumps(await handle_chat_message(message, line)))
asyncio.run(main())
"""


def _chat(project: Path, home: Path, *messages: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(BARE), "PATH": "/usr/bin:/bin", "HOME": str(home), **env}
    return subprocess.run(
        [sys.executable, "-c", CHAT, json.dumps(messages)],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
    )


@pytest.mark.slow
def test_chat_uses_tools_through_the_gate_and_tells_each(project: Path, home: Path) -> None:
    """The model asks for a file tool, a status frame tells it, the answer comes back; the line is one conversation."""
    with ModelServer() as model:
        (project / "proctor.toml").write_text(
            f'[agents.SOLACE]\ndriver = "model"\n[agents.SOLACE.api]\nbase_url = "{model.url}/v1"\n'
        )
        read = {"call": {"name": "read_file", "args": {"path": "README.md"}}}
        steps = json.dumps({"steps": [read, {"text": "It is a project."}]})
        done = _chat(project, home, f"What is this? FAKE:{steps}", "And now?", OPENAI_API_KEY="sk-test")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[:2] == [{"type": "status", "message": "Executing read_file..."}, "It is a project."]
    assert len(lines) == 3


@pytest.mark.slow
def test_item_8_broken_arguments_go_back_to_the_model(project: Path, home: Path) -> None:
    """The origin's chat ended at arguments that are no JSON; here the model hears it and answers."""
    with ModelServer() as model:
        (project / "proctor.toml").write_text(
            f'[agents.SOLACE]\ndriver = "model"\n[agents.SOLACE.api]\nbase_url = "{model.url}/v1"\n'
        )
        broken = {"call": {"name": "read_file", "raw": "{not json"}}
        steps = json.dumps({"steps": [broken, {"text": "I got it wrong."}]})
        done = _chat(project, home, f"Read. FAKE:{steps}", OPENAI_API_KEY="sk-test")
        heard = json.dumps([body for _, body in model.requests])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == "I got it wrong."
    assert "JSON" in heard


@pytest.mark.slow
def test_chat_without_a_key_says_which_one(project: Path, home: Path) -> None:
    """A sentence with the variable's name, and nobody is asked."""
    (project / "proctor.toml").write_text("")
    done = _chat(project, home, "hello")
    assert done.returncode == 1
    assert "OPENAI_API_KEY" in done.stderr


@pytest.mark.parametrize(("port", "wanted"), [("", ("localhost", 8765)), ("0", ("10.0.0.1", 0))])
def test_seeds_variables_choose_the_address(
    home: Path, monkeypatch: pytest.MonkeyPatch, port: str, wanted: tuple[str, int]
) -> None:
    """`WEBSOCKET_HOST` and `WEBSOCKET_PORT`; a port that is none is refused."""
    monkeypatch.setenv("WEBSOCKET_PORT", port)
    monkeypatch.setenv("WEBSOCKET_HOST", "10.0.0.1" if port else "")
    assert swarm._address() == wanted
    monkeypatch.setenv("WEBSOCKET_PORT", "many")
    with pytest.raises(ValueError, match="many"):
        swarm._address()


@pytest.mark.slow
def test_script_keeps_the_queue_executed_and_ends_on_ctrl_c(project: Path, home: Path) -> None:
    """`python coordinator.py --interval 1` does a task that was added before it began."""
    environment = {"PYTHONPATH": str(BARE), "PATH": "/usr/bin:/bin", "HOME": str(home)}

    def proctor(*words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "proctor", *words, "--json"],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=100,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    task = proctor("tasks", "add", "something", "--agent", "sim")["task_id"]
    subprocess.run(
        [sys.executable, "-m", "proctor", "supervisor", "stop"], env=environment, check=True, timeout=60
    )
    child = subprocess.Popen(
        [sys.executable, str(BARE / "coordinator.py"), "--interval", "1"], cwd=project, env=environment
    )
    try:
        deadline = time.monotonic() + 60
        while proctor("tasks", "show", task)["status"] != "completed":
            assert time.monotonic() < deadline
            time.sleep(0.5)
    finally:
        child.send_signal(signal.SIGINT)
        code = child.wait(30)
        subprocess.run(
            [sys.executable, "-m", "proctor", "supervisor", "stop"], env=environment, check=False, timeout=60
        )
    assert code == 0
