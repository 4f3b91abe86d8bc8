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
from pathlib import Path
from typing import Any

from proctor import __version__
from proctor.agents.identity import start_time
from proctor.config import Paths, Settings
from proctor.engine import address
from proctor.protocol.errors import SupervisorUnavailableError

__all__ = ["Hello", "ask", "ensure", "greet", "open_doors", "stop", "wake"]

ANSWER_SECONDS = 5.0
START_SECONDS = 30.0
# Longer than all graces of an ordered end together: agents, desks, doors that are just being opened, DBOS.
LEAVE_SECONDS = 60.0
AGAIN_SECONDS = 2.0
MAX_TRIES = 5
MAX_ANSWER = 1_000_000
_STARTED: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class Hello:
    """What a supervisor says of itself."""

    pid: int
    version: str
    executor_id: str
    started_at: str
    running: tuple[str, ...]
    leaving: bool = False
    http: str = ""
    """Where its surfaces are; empty while they are closed."""
    no_http: str = ""
    """Why they could not be opened."""


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
        except (OSError, ValueError) as error:  # also no right to the socket, or one whose queue is full
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


def greet(paths: Paths, *, doors: bool = False) -> Hello | None:
    """Ask the supervisor who it is; None when there is none. With `doors` it opens its HTTP port now rather than soon."""
    answer = ask(paths, {"op": "hello", "doors": doors})
    if answer is None:
        return None
    try:
        return Hello(
            int(answer["pid"]),
            str(answer["version"]),
            str(answer["executor_id"]),
            str(answer["started_at"]),
            tuple(answer["running"]),
            bool(answer.get("leaving", False)),
            str(answer.get("http", "")),
            str(answer.get("no_http", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = f"it does not say who it is ({error!r})"
        raise SupervisorUnavailableError(reason=reason, log=paths.log_file) from error


def wake(paths: Paths) -> bool:
    """Tell it that something may have changed; False when nobody listens who would act on it."""
    answer = ask(paths, {"op": "wake"})
    return answer is not None and bool(answer.get("ok"))


def stop(paths: Paths, *, successor: str | None = None) -> bool:
    """Ask it to leave and wait until it has; False when there was none. `successor`: for another version of it."""
    hello = greet(paths)
    if hello is None:
        return False
    ask(paths, {"op": "stop", "for": successor})
    _wait_until_gone(paths, hello)
    return True


def _wait_until_gone(paths: Paths, hello: Hello) -> None:
    """Its socket goes first, its lock with the process: only then a new one can begin."""
    began = start_time(hello.pid)
    deadline = time.monotonic() + LEAVE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(SupervisorUnavailableError):
            current = greet(paths)
            same = current is not None and current.pid == hello.pid
            if not same and (began is None or start_time(hello.pid) != began):
                return
        time.sleep(0.02)
    raise SupervisorUnavailableError(reason=f"pid {hello.pid} does not leave", log=paths.log_file)


def ensure(settings: Settings) -> Hello:
    """Make sure that a supervisor of this version runs, and wake it."""
    paths = settings.paths
    for _ in range(MAX_TRIES):
        hello = greet(paths)
        if hello is not None and hello.leaving:
            _wait_until_gone(paths, hello)
            hello = None
        elif hello is not None and hello.version != __version__:
            stop(paths, successor=__version__)
            hello = None
        if hello is None:
            hello = _start(settings)
        # One that was about to leave when we greeted it does not take the wake-up.
        if wake(paths):
            return hello
    raise SupervisorUnavailableError(reason="it leaves again and again", log=paths.log_file)


def open_doors(settings: Settings) -> Hello:
    """Make sure that a supervisor runs and listens for HTTP."""
    hello = ensure(settings)
    deadline = time.monotonic() + START_SECONDS
    while not hello.http:
        if hello.no_http or time.monotonic() > deadline:
            reason = hello.no_http or f"no HTTP port within {START_SECONDS:.0f} s"
            raise SupervisorUnavailableError(reason=reason, log=settings.paths.log_file)
        time.sleep(0.05)
        hello = greet(settings.paths, doors=True) or ensure(settings)
    return hello


def _start(settings: Settings) -> Hello:
    """Start one in the background; when two commands do so at once, one supervisor stays."""
    paths = settings.paths
    paths.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    complaint = paths.state_dir / "supervisor.err"
    child = _spawn(settings, complaint)
    deadline = time.monotonic() + START_SECONDS
    again = time.monotonic() + AGAIN_SECONDS
    while time.monotonic() < deadline:
        hello = greet(paths)
        if hello is not None and not hello.leaving:
            return hello
        ended = child.poll()
        if ended not in {None, 0}:
            break
        # Exit code 0 means that another one had the lock; that one may have been about to leave.
        if ended == 0 and time.monotonic() > again:
            child, again = _spawn(settings, complaint), time.monotonic() + AGAIN_SECONDS
        time.sleep(0.02)
    said = complaint.read_text(errors="replace").strip().splitlines()
    reason = said[-1] if said else f"it did not answer within {START_SECONDS:.0f} s"
    raise SupervisorUnavailableError(reason=reason, log=paths.log_file)


def _spawn(settings: Settings, complaint: Path) -> subprocess.Popen[bytes]:
    # It outlives this process; when this one lives long, children that have ended are reaped here.
    _STARTED[:] = [child for child in _STARTED if child.poll() is None]
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
    _STARTED.append(child)
    return child
