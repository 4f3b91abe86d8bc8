"""Talking to the supervisor from a command: is it there, start it, wake it, stop it. Never imports dbos.

One line of JSON each way over the user's unix socket. A supervisor of another version is asked to leave and a new one is
started: what it ran is taken over.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from proctor import __version__
from proctor.config import Paths, Settings
from proctor.engine import address
from proctor.protocol.errors import SupervisorUnavailableError

__all__ = ["Hello", "ask", "ensure", "greet", "stop", "wake"]

ANSWER_SECONDS = 5.0
START_SECONDS = 30.0
LEAVE_SECONDS = 20.0
MAX_ANSWER = 1_000_000


@dataclass(frozen=True, slots=True)
class Hello:
    """What a supervisor says of itself."""

    pid: int
    version: str
    executor_id: str
    started_at: str
    running: tuple[str, ...]


def ask(paths: Paths, request: dict[str, Any], *, seconds: float = ANSWER_SECONDS) -> dict[str, Any] | None:
    """Send one request; None when nobody listens."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as line:
        line.settimeout(seconds)
        try:
            address.connect(line, paths.socket)
            line.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(_read_line(line))
        except (FileNotFoundError, ConnectionError):
            return None
        except (TimeoutError, ValueError) as error:
            raise SupervisorUnavailableError(
                reason=f"no sensible answer ({error})", log=paths.log_file
            ) from error
        return answer


def _read_line(line: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n") and len(received) < MAX_ANSWER:
        part = line.recv(65_536)
        if not part:
            raise ConnectionResetError("it hung up")
        received += part
    return received


def greet(paths: Paths) -> Hello | None:
    """Ask the supervisor who it is; None when there is none."""
    answer = ask(paths, {"op": "hello"})
    if answer is None:
        return None
    return Hello(
        int(answer["pid"]),
        str(answer["version"]),
        str(answer["executor_id"]),
        str(answer["started_at"]),
        tuple(answer["running"]),
    )


def wake(paths: Paths) -> bool:
    """Tell it that something may have changed; False when nobody listens."""
    return ask(paths, {"op": "wake"}) is not None


def stop(paths: Paths) -> bool:
    """Ask it to leave and wait until it has; False when there was none."""
    hello = greet(paths)
    if hello is None:
        return False
    ask(paths, {"op": "stop"})
    deadline = time.monotonic() + LEAVE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(SupervisorUnavailableError):
            current = greet(paths)
            if current is None or current.pid != hello.pid:
                return True
        time.sleep(0.05)
    raise SupervisorUnavailableError(reason=f"pid {hello.pid} does not leave", log=paths.log_file)


def ensure(settings: Settings) -> Hello:
    """Make sure that a supervisor of this version runs, and wake it."""
    paths = settings.paths
    hello = greet(paths)
    if hello is not None and hello.version != __version__:
        stop(paths)
        hello = None
    if hello is None:
        hello = _start(settings)
    wake(paths)
    return hello


def _start(settings: Settings) -> Hello:
    """Start one in the background; when two commands do so at once, one supervisor stays."""
    paths = settings.paths
    paths.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    complaint = paths.state_dir / "supervisor.err"
    with complaint.open("wb") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "proctor", "supervisor"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd="/",
            env=dict(settings.environ),
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        hello = greet(paths)
        if hello is not None:
            return hello
        # Exit code 0 means that another one was quicker; anything else is a failure.
        if child.poll() not in {None, 0}:
            break
        time.sleep(0.02)
    said = complaint.read_text(errors="replace").strip().splitlines()
    reason = said[-1] if said else f"it did not answer within {START_SECONDS:.0f} s"
    raise SupervisorUnavailableError(reason=reason, log=paths.log_file)
