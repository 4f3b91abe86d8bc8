"""The clients of the seeds' kind run against a real server; a server that answers wrongly makes them fail."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from tests.layers.tree import ROOT
from tests.server.conftest import Door

CLIENTS = ROOT / "examples" / "seed_clients"


def _run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CLIENTS / name), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=110)


def test_websocket_client_with_the_token(door: Door) -> None:
    """Every request of seed 000, checked frame by frame by a program of its own."""
    done = _run(
        "websocket_client.py", "--url", door.ws, "--token-file", str(door.app.settings.paths.token_file)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "All frames were right." in done.stdout


def test_websocket_client_at_the_path_without_auth(open_door: Door) -> None:
    """The same on `/ws`, where no token is needed."""
    done = _run("websocket_client.py", "--url", open_door.http.replace("http", "ws") + "/ws")
    assert (done.returncode, done.stderr) == (0, "")


def test_backup_client_really_restores(door: Door) -> None:
    """Seed 001's client with its fourth test: after the restore every byte is as before, version control included."""
    (door.workspace / "coordinator.py").write_text("print('hi')\n")
    (door.workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    file = str(door.app.settings.paths.token_file)
    done = _run("backup_client.py", str(door.workspace), "--url", door.ws, "--token-file", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "TEST 4" in done.stdout


def test_clients_fail_without_the_token(door: Door) -> None:
    """Nobody comes in by accident."""
    for name, words in (("websocket_client.py", ()), ("backup_client.py", (str(door.workspace),))):
        done = _run(name, *words, "--url", door.ws)
        assert done.returncode == 1
        assert "401" in done.stderr


@contextmanager
def _liar(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[str]:
    """A server that answers what it likes."""

    def handle(line: ServerConnection) -> None:
        for message in line:
            line.send(json.dumps(answer(json.loads(message))))

    with serve(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join(10)


@pytest.mark.parametrize(
    "lie",
    [
        lambda _m: {"type": "pong"},
        lambda _m: {"type": "error", "message": "no"},
        lambda m: {"type": "pong", "timestamp": "t"} if m["type"] == "ping" else {"type": "write_success"},
    ],
    ids=["no timestamp", "errors", "no path"],
)
def test_a_wrong_frame_makes_the_client_fail(lie: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The clients can fail: a wrong frame is exit code 1 and is shown."""
    with _liar(lie) as url:
        done = _run("websocket_client.py", "--url", url)
    assert done.returncode == 1
    assert "WrongFrameError" in done.stderr


def test_a_backup_that_is_none_makes_the_client_fail(tmp_path: Path) -> None:
    """A server that only says that it restored does not get away with it."""
    answers: dict[str, dict[str, Any]] = {
        "create_backup": {"type": "backup_created", "backup_path": f"/b/{tmp_path.name}_20251017_120000"},
        "execute_command": {"type": "command_output", "stdout": "1", "stderr": "", "exit_code": 0},
        "write_file": {"type": "write_success", "path": "x"},
        "restore_backup": {"type": "restore_complete"},
    }
    with _liar(lambda message: answers[message["type"]]) as url:
        done = _run("backup_client.py", str(tmp_path), "--url", url)
    assert done.returncode == 1
    assert "WrongFrameError" in done.stderr
