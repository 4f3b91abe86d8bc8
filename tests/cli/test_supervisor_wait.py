"""`proctor supervisor --idle 0 --wait`, as a service runs it: it waits for its turn and then stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.config import load_settings
from proctor.engine import client

COMMAND = [sys.executable, "-m", "proctor", "supervisor"]


@pytest.fixture
def started(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of this test; whatever happens they are gone at its end."""
    monkeypatch.chdir(home)
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _until_pid(pid: int) -> None:
    deadline = time.monotonic() + 60
    while (hello := client.greet(load_settings().paths)) is None or hello.pid != pid:
        assert time.monotonic() < deadline, hello
        time.sleep(0.05)


@pytest.mark.slow
def test_service_waits_for_its_turn_and_takes_it(started: list[subprocess.Popen[bytes]]) -> None:
    """One that runs already is not disturbed; when it leaves, the waiting one serves; a third without --wait goes."""
    first = subprocess.Popen([*COMMAND, "--idle", "0"])
    started.append(first)
    _until_pid(first.pid)
    second = subprocess.Popen([*COMMAND, "--idle", "0", "--wait"])
    started.append(second)
    third = subprocess.run(COMMAND, timeout=60)
    assert third.returncode == 0
    assert (first.poll(), second.poll()) == (None, None)
    assert client.stop(load_settings().paths)
    assert first.wait(30) == 0
    _until_pid(second.pid)


@pytest.mark.slow
@pytest.mark.parametrize(("successor", "code"), [("99.0", 1), (None, 0)])
def test_service_that_makes_room_for_another_version_begins_again(
    started: list[subprocess.Popen[bytes]], successor: str | None, code: int
) -> None:
    """Managers start again only what failed: asked to leave for an upgrade it says so, asked by a person it stays away."""
    service = subprocess.Popen([*COMMAND, "--idle", "0", "--wait"])
    started.append(service)
    _until_pid(service.pid)
    assert client.stop(load_settings().paths, successor=successor)
    assert service.wait(30) == code
