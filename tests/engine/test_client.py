"""Starting the supervisor on demand, with real processes: one stays, an older version is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import proctor
from proctor.config import Settings, load_settings
from proctor.engine import client
from proctor.protocol.errors import SupervisorUnavailableError
from tests.support.supervisors import stop_supervisor

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Settings of a home of its own; whatever supervisor is left at the end is stopped."""
    monkeypatch.chdir(home)
    found = load_settings()
    yield found
    stop_supervisor()


def test_two_starts_at_once_leave_one_supervisor(settings: Settings) -> None:
    """Four commands need it at the same moment: all are answered by the same process."""
    hellos: list[client.Hello] = []
    threads = [threading.Thread(target=lambda: hellos.append(client.ensure(settings))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({hello.pid for hello in hellos}) == 1
    assert len(hellos) == 4
    assert client.ensure(settings).pid == hellos[0].pid
    assert settings.paths.log_file.exists()


def test_another_version_is_replaced(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handshake: a supervisor of an older build leaves, the new one has its lock and socket."""
    program = (
        "import proctor; proctor.__version__ = '0.0.1'\n"
        "from proctor.cli.main import main; raise SystemExit(main(['supervisor']))"
    )
    environ = dict(os.environ)
    with subprocess.Popen([sys.executable, "-c", program], env=environ) as old:
        deadline = time.monotonic() + 60
        while (hello := client.greet(settings.paths)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (hello.pid, hello.version) == (old.pid, "0.0.1")
        new = client.ensure(settings)
        assert (new.version, old.wait(20)) == (proctor.__version__, 0)
    assert new.pid != hello.pid


def test_a_leaving_supervisor_does_not_swallow_a_wake_up(settings: Settings) -> None:
    """Asked while it leaves: the command waits and starts the next one."""
    first = client.ensure(settings)
    os.kill(first.pid, signal.SIGTERM)
    second = client.ensure(settings)
    assert second.pid != first.pid


def test_after_kill_9_the_next_command_starts_a_new_one(settings: Settings) -> None:
    """Lock and socket of a killed one are no hindrance."""
    first = client.ensure(settings)
    os.kill(first.pid, signal.SIGKILL)
    second = client.ensure(settings)
    assert second.pid != first.pid
    assert client.stop(settings.paths)
    assert client.greet(settings.paths) is None
    assert not client.stop(settings.paths)


def test_one_that_cannot_start_says_why(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason of the child is in the error, not in a file nobody knows."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("PROCTOR_DATABASE_URL", f"sqlite:////proc/nowhere/{tmp_path.name}.db")
    with pytest.raises(SupervisorUnavailableError, match="nowhere"):
        client.ensure(load_settings())


def test_a_socket_that_may_not_be_used_is_told_with_the_log(settings: Settings) -> None:
    """Whatever the system refuses is one sentence, not a defect."""
    settings.paths.socket.parent.mkdir(parents=True, exist_ok=True)
    loop = settings.paths.socket
    loop.symlink_to(loop)
    with pytest.raises(SupervisorUnavailableError, match="orchestrator"):
        client.ask(settings.paths, {"op": "hello"})
    loop.unlink()
