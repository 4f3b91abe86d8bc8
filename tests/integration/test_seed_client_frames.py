"""One wrong frame, at any message and in any of its fields, makes the seeds' clients fail; so does a restore that is none.

A right conversation with a real server is written down once and then replayed with one answer changed.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from tests.layers.tree import ROOT
from tests.server.conftest import Door, served

Frame = dict[str, Any]
NAMES = ("websocket_client", "backup_client")
MESSAGES = {"websocket_client": 20, "backup_client": 13}
# Sentences the seeds leave open: the parser's after `Invalid JSON: `, the chat's, and why three restores are refused.
OPEN_SENTENCES = {"websocket_client": 2, "backup_client": 3}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A real server, with a file the clients did not make."""
    with served(tmp_path_factory.mktemp("served")) as made:
        (made.workspace / "coordinator.py").write_text("print('hi')\n")
        yield made


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, ModuleType]]:
    """Both clients as modules, so that hundreds of conversations take seconds."""
    sys.path.insert(0, str(ROOT / "examples" / "seed_clients"))
    try:
        yield {name: importlib.import_module(name) for name in (*NAMES, "seed_protocol")}
    finally:
        sys.path.pop(0)


@contextmanager
def _answering(answer: Callable[[int, str], Frame]) -> Iterator[str]:
    """A server that answers the n-th message of a connection as it is told."""

    def handle(line: ServerConnection) -> None:
        for number, message in enumerate(line):
            line.send(json.dumps(answer(number, str(message))))

    with serve(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join(10)


def _run(module: ModuleType, workspace: Path, answer: Callable[[int, str], Frame]) -> int:
    words = [str(workspace)] if module.__name__ == "backup_client" else []
    with _answering(answer) as url:
        code: int = module.main([*words, "--url", url])
    return code


@pytest.fixture(scope="module")
def spoken(door: Door, clients: dict[str, ModuleType]) -> dict[str, list[Frame]]:
    """What a real server answers to each message of each client."""
    heard: dict[str, list[Frame]] = {}
    for name in NAMES:
        frames = heard.setdefault(name, [])
        with door.socket() as real:

            def listen(_number: int, message: str) -> Frame:
                frames.append(real.ask(message))  # noqa: B023 - called only within this turn of the loop
                return frames[-1]  # noqa: B023

            assert _run(clients[name], door.workspace, listen) == 0
    assert {name: len(frames) for name, frames in heard.items()} == MESSAGES
    return heard


class _Replay:
    """Answers as the real server did, and changes the files as it did, but for one answer."""

    def __init__(
        self, workspace: Path, frames: list[Frame], at: int = -1, wrong: Frame | None = None
    ) -> None:
        self._workspace, self._frames, self._at, self._wrong = workspace, frames, at, wrong
        self._saved: dict[Path, bytes] = {}

    def __call__(self, number: int, message: str) -> Frame:
        frame = self._frames[number]
        self._act(json.loads(message)["data"] if '"data"' in message else {}, frame["type"])
        return frame if number != self._at or self._wrong is None else self._wrong

    def _act(self, data: Frame, answer: str) -> None:
        if answer == "write_success":
            place = self._workspace / data["path"]
            place.parent.mkdir(exist_ok=True)
            place.write_text(data["content"])
        elif answer == "backup_created":
            self._saved = {one: one.read_bytes() for one in self._workspace.rglob("*") if one.is_file()}
        elif answer == "restore_complete":
            for one in self._workspace.rglob("*"):
                if one.is_file() and one not in self._saved:
                    one.unlink()
            shutil.rmtree(self._workspace / "left_over", ignore_errors=True)
            for place, content in self._saved.items():
                place.write_bytes(content)


def _clean(workspace: Path) -> None:
    """Remove what a client left when it stopped at a wrong frame."""
    shutil.rmtree(workspace / "left_over", ignore_errors=True)
    (workspace / "seed_client_probe.txt").unlink(missing_ok=True)


def _wrong(frame: Frame, fields: dict[str, type]) -> Iterator[tuple[str, Frame]]:
    """Every way to get one frame wrong: another type, a field missing, of another kind, with another value."""
    yield "another type", {**frame, "type": "pong" if frame["type"] != "pong" else "error"}
    yield "no type", {name: value for name, value in frame.items() if name != "type"}
    yield (
        "an error",
        {"type": "error", "message": "a defect"} if frame["type"] != "error" else {"type": "error"},
    )
    for name in fields:
        yield f"{name} missing", {key: value for key, value in frame.items() if key != name}
        yield f"{name} null", {**frame, name: None}
        yield f"{name} other", {**frame, name: _other(frame[name])}


def _other(value: Any) -> Any:
    if isinstance(value, int):
        return value + 1
    if isinstance(value, list):
        return value[1:]
    return {} if isinstance(value, dict) else f"{value}?"


@pytest.mark.parametrize("name", NAMES)
def test_replayed_conversation_is_right(
    name: str, door: Door, clients: dict[str, ModuleType], spoken: dict[str, list[Frame]]
) -> None:
    """The measure for the others: nothing but the changed frame makes them fail."""
    assert _run(clients[name], door.workspace, _Replay(door.workspace, spoken[name])) == 0
    _clean(door.workspace)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_one_wrong_frame_at_any_message_makes_the_client_fail(
    name: str,
    door: Door,
    clients: dict[str, ModuleType],
    spoken: dict[str, list[Frame]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For each message and each field of its answer: exit code 1, and the wrong frame is shown."""
    fields = clients["seed_protocol"].FRAMES
    passed, tried = [], 0
    for number, frame in enumerate(spoken[name]):
        for how, wrong in _wrong(frame, fields[frame["type"]]):
            tried += 1
            answer = _Replay(door.workspace, spoken[name], number, wrong)
            if _run(clients[name], door.workspace, answer) == 0:
                passed.append((frame["type"], how))
            else:
                assert "FAILED  WrongFrameError" in capsys.readouterr().err, (number, how)
            _clean(door.workspace)
    assert tried > 5 * len(spoken[name])
    assert passed == [("error", "message other")] * OPEN_SENTENCES[name]


def test_restore_that_only_says_so_makes_the_client_fail(
    door: Door, clients: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    """The real server does everything but the restore, which somebody only claims: the trees differ."""
    with door.socket() as real:

        def pretend(_number: int, message: str) -> Frame:
            claimed = '"restore_backup"' in message
            return {"type": "restore_complete"} if claimed else real.ask(message)

        assert _run(clients["backup_client"], door.workspace, pretend) == 1
    assert "every file as it was, and nothing else" in capsys.readouterr().err
    _clean(door.workspace)


def test_write_that_only_says_so_makes_the_client_fail(
    door: Door, clients: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was not written is found on the disk, not in a frame."""
    with door.socket() as real:

        def pretend(_number: int, message: str) -> Frame:
            asked = json.loads(message)
            claimed = asked["type"] == "write_file"
            return {"type": "write_success", "path": asked["data"]["path"]} if claimed else real.ask(message)

        assert _run(clients["backup_client"], door.workspace, pretend) == 1
    assert "the file as it was written" in capsys.readouterr().err
