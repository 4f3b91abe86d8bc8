"""`proctor serve` as a user types it: it listens, executes, takes the background's place and leaves cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect as async_connect
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from proctor.config import load_settings
from proctor.engine import client
from proctor.engine.doors import read_address

SERVE = [sys.executable, "-m", "proctor", "serve", "--port", "0", "--ws-port", "0", "--json"]
CONNECTIONS = 500
MOST_MB = 200


class Served:
    """A server process and its addresses."""

    def __init__(self, place: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [*SERVE, *words], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        self.said: dict[str, Any] = json.loads(line)
        self.http, self.ws = self.said["http"], self.said["ws"]

    @property
    def headers(self) -> dict[str, str]:
        """What lets in."""
        return {"Authorization": f"Bearer {Path(self.said['token_file']).read_text().strip()}"}

    def leave(self, number: int = signal.SIGTERM) -> int:
        """End it and give its code."""
        self.process.send_signal(number)
        code = self.process.wait(60)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    """A workspace with an agent that is simulated."""
    made = tmp_path / "work"
    made.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=made, check=True)
    name = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", *name, "commit", "-q", "--allow-empty", "-m", "begin"], cwd=made, check=True)
    (made / "proctor.toml").write_text('[agents.scripted-1]\ndriver = "scripted"\n')
    return made


@pytest.fixture
def served(place: Path) -> Iterator[list[Served]]:
    """Servers of this test; whatever happens they are gone at its end."""
    made: list[Served] = []
    yield made
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(30)


def _until(done: Any, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.mark.slow
def test_serve_executes_what_is_asked_over_rest(place: Path, served: list[Served]) -> None:
    """One process: a task given by REST is executed here, its events come over the socket, SIGTERM ends it with 0."""
    one = Served(place)
    served.append(one)
    assert set(one.said) == {"http", "ws", "token_file"}
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", one.http)
    with connect(one.ws, additional_headers=one.headers, proxy=None) as line:
        line.send('{"type": "list_directory"}')
        assert json.loads(line.recv(timeout=30))["type"] == "directory_listing"
    body = {"task_type": "task", "description": "Write hello.txt", "agent_name": "scripted-1"}
    made = httpx.post(f"{one.http}/api/v1/agents/tasks", json=body, headers=one.headers, timeout=30).json()
    assert made["assigned_to"] == "scripted-1"
    task = f"{one.http}/api/v1/agents/tasks/{made['task_id']}"

    def ended() -> dict[str, Any] | None:
        row: dict[str, Any] = httpx.get(task, headers=one.headers, timeout=30).json()
        return row if row["status"] in {"completed", "failed"} else None

    assert _until(ended)["status"] == "completed"
    trace = httpx.get(
        f"{one.http}/api/agents/trace/{made['trace_id']}", headers=one.headers, timeout=30
    ).json()
    assert {"task_added", "attempt_started", "task_completed"} <= {
        event["event"] for event in trace["events"]
    }
    assert one.leave() == 0
    assert client.greet(load_settings(place).paths) is None


@pytest.mark.slow
def test_serve_takes_the_place_of_the_background_and_not_of_another_server(
    place: Path, served: list[Served]
) -> None:
    """A background supervisor leaves for it, also from its port; a second `proctor serve` hears the address of the first."""
    settings = load_settings(place)
    one = Served(place, "--port", client.open_doors(settings).http.rpartition(":")[2])
    served.append(one)
    hello = client.greet(settings.paths)
    assert hello is not None
    assert hello.pid == one.process.pid
    words = [*SERVE, "--port", one.http.rpartition(":")[2]]
    second = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=60)
    assert second.returncode == 5
    assert one.http in second.stderr
    assert one.leave() == 0


@pytest.mark.slow
def test_stopping_a_server_ends_the_streams_that_watch_it(place: Path, served: list[Served]) -> None:
    """`proctor supervisor stop` is not held up by who watches."""
    one = Served(place)
    served.append(one)
    paths = load_settings(place).paths
    with httpx.stream("GET", f"{one.http}/api/events", headers=one.headers, timeout=30) as watching:
        lines = watching.iter_lines()
        assert next(lines) == ": connected"
        assert client.stop(paths)
        for _ in lines:
            continue
    assert one.process.wait(30) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--auth", "none", "--host", "0.0.0.0"], 2, "loopback"),
        (["--host", "no.such.name.invalid"], 2, "address"),
        (["--port", "70000"], 2, "70000"),
    ],
)
def test_wrong_wishes_are_refused(place: Path, words: list[str], code: int, text: str) -> None:
    """Before anything is opened, with a sentence."""
    done = subprocess.run([*SERVE, *words], cwd=place, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert text in done.stderr


def _free_port() -> int:
    """A free port that the kernel gives to nobody by itself while the program that will use it starts."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return int(free.getsockname()[1])


@pytest.mark.slow
def test_uvicorn_serves_the_application(place: Path) -> None:
    """`uvicorn proctor.server.main:app` works with the environment's settings, and the token never reaches its log."""
    port = _free_port()
    command = [sys.executable, "-m", "uvicorn", "proctor.server.main:app", "--port", str(port)]
    environ = {**os.environ, "PROCTOR_PROFILE": "careful"}
    process = subprocess.Popen(
        command, cwd=place, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        _until(lambda: _answers(f"http://127.0.0.1:{port}/health"))
        token = load_settings(place).paths.token_file.read_text().strip()
        me = httpx.get(
            f"http://127.0.0.1:{port}/api/me", headers={"Authorization": f"Bearer {token}"}, timeout=30
        )
        assert (me.json()["profile"], me.json()["workspace"]) == ("careful", str(place))
        with connect(f"ws://127.0.0.1:{port}/ws?api_key={token}", proxy=None) as line:
            line.send('{"type": "ping"}')
            assert "pong" in str(line.recv(timeout=30))
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert "/ws" in output
    assert token not in output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_signal_ends_everything_that_is_open_within_its_deadline(
    place: Path, served: list[Served], number: signal.Signals
) -> None:
    """Idle sockets, traces, streams and running calls over both doors: all end, their commands are gone, rows say so."""
    one = Served(place)
    served.append(one)
    mark = f"mark-{time.monotonic_ns()}"
    command = f": {mark}; touch began-{{0}}; sleep 120; touch survived-{{0}}"

    def rest() -> None:
        body = {"command": command.format("rest")}
        with contextlib.suppress(httpx.TransportError):
            httpx.post(f"{one.http}/api/tools/execute_command", json=body, headers=one.headers, timeout=100)

    waiting = threading.Thread(target=rest)
    waiting.start()
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(_line(one, one.ws)) for _ in range(5)]
        base = one.http.replace("http", "ws")
        lines.append(stack.enter_context(_line(one, f"{base}/ws/traces/t")))
        stream = stack.enter_context(
            httpx.stream("GET", f"{one.http}/api/events", headers=one.headers, timeout=100)
        )
        assert next(stream.iter_lines()) == ": connected"
        lines[0].send(json.dumps({"type": "execute_command", "data": {"command": command.format("ws")}}))
        _until(lambda: len(list(place.glob("began-*"))) == 2 and _running(mark))
        began = time.monotonic()
        one.process.send_signal(number)
        assert one.process.wait(60) == 0
        assert time.monotonic() - began < 40
    waiting.join(60)
    assert not waiting.is_alive()
    assert not list(place.glob("survived-*"))
    assert _running(mark) == []
    settings = load_settings(place)
    assert read_address(settings.paths) is None
    with contextlib.closing(sqlite3.connect(settings.paths.proctor_db)) as database:
        found = database.execute("SELECT state FROM calls WHERE tool_name = 'execute_command'").fetchall()
    assert [state for (state,) in found] == ["ended", "ended"]


@contextlib.contextmanager
def _line(one: Served, address: str) -> Iterator[Any]:
    with (
        contextlib.suppress(ConnectionClosed),
        connect(address, additional_headers=one.headers, proxy=None) as line,
    ):
        yield line


def _running(mark: str) -> list[str]:
    """Processes of this machine whose words hold the mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.slow
def test_names_of_a_proxy_come_in(place: Path, served: list[Served]) -> None:
    """`--name` is a Host and its pages are our own, also with TLS before us; other names stay out."""
    one = Served(place, "--name", "proctor.example")
    served.append(one)
    by = {**one.headers, "Host": "proctor.example"}
    assert httpx.get(f"{one.http}/api/me", headers=by, timeout=30).status_code == 200
    own = {**by, "Origin": "https://proctor.example"}
    assert httpx.get(f"{one.http}/api/me", headers=own, timeout=30).status_code == 200
    other = {**by, "Origin": "https://other.example"}
    assert httpx.get(f"{one.http}/api/me", headers=other, timeout=30).status_code == 403
    wrong = {**one.headers, "Host": "other.example"}
    assert httpx.get(f"{one.http}/api/me", headers=wrong, timeout=30).status_code == 403
    assert one.leave() == 0


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _rss_mb(pid: int) -> float:
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(said.stdout) / 1024


@pytest.mark.slow
async def test_five_hundred_idle_connections_stay_small(place: Path, served: list[Served]) -> None:
    """500 open sockets together cost less than 200 MB, and each still answers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    one = await asyncio.to_thread(Served, place)
    served.append(one)
    before = _rss_mb(one.process.pid)
    async with contextlib.AsyncExitStack() as stack:
        lines = [
            await stack.enter_async_context(
                async_connect(one.ws, additional_headers=one.headers, proxy=None, compression=None)
            )
            for _ in range(CONNECTIONS)
        ]
        for line in lines:
            await line.send('{"type": "ping"}')
            assert "pong" in str(await asyncio.wait_for(line.recv(), 30))
        grown = _rss_mb(one.process.pid) - before
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert grown < MOST_MB
    assert await asyncio.to_thread(one.leave, signal.SIGINT) == 0
