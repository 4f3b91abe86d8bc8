"""The keeper: one small process per attempt that starts the agent and ends its whole tree, whatever
happens.

It runs this file alone (`python -I -S keeper.py <fd>`): standard library only. As subreaper it gets back
every daemon, also one with two forks, its own session and a cleared environment. It ends the tree when the
agent has ended, when told so, on SIGTERM, when the thread that spawned it dies (PDEATHSIG) and when the
control socket closes, which covers SIGKILL of the supervisor. macOS has no subreaper: group and parent
links, best effort.

Control socket, a JSON object per line. In: the spec (releases the agent), {"stop": seconds}, {"signal": n},
{"kill": true}. Out: {"started": pid} or {"error": text}, then {"exit": code, "left": n}; code < 0 is a
signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any

__all__ = ["Keeper", "main"]

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LINUX = os.uname().sysname == "Linux"
AFTER_EXIT_S = 0.3  # what helpers of the agent get to finish writing once it has ended
PATIENCE_S = 20.0  # how long we try to kill what will not die (another user's process) before we report it
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Serve one attempt on the control socket whose descriptor is the only argument."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    Keeper(control).serve()
    os._exit(0)


def prctl(option: int, value: int) -> None:
    """Ask Linux for one property of this process; elsewhere there is nothing to ask."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Keeper:
    """The state of one attempt's process tree."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.buffer = b""
        self.parent_gone = False
        self.agent = 0
        self.status: int | None = None
        self.kill_at: float | None = None
        self.asked_to_end = False
        self.wake, waker = os.pipe()
        for end in (self.wake, waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def serve(self) -> None:
        """Wait for the spec, run the agent, end the tree, report."""
        spec = self._spec()
        if spec is not None and self._start(spec):
            self._close_own_streams()
            self._watch()
            left = self._end_tree()
            self._tell({"exit": self.status, "left": left})

    def _on_signal(self, *_: object) -> None:
        self.asked_to_end = True

    def _spec(self) -> dict[str, Any] | None:
        while not (self.parent_gone or self.asked_to_end):
            for message in self._messages(None):
                return message if "argv" in message else None
        return None

    def _messages(self, timeout: float | None) -> list[dict[str, Any]]:
        """Sleep until something happens; give the complete lines the parent has sent."""
        sources = [self.wake] if self.parent_gone else [self.wake, self.control.fileno()]
        ready = select.select(sources, [], [], timeout)[0]
        if self.wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake, 4096)
        if not self.parent_gone and self.control.fileno() in ready:
            self._receive()
        *lines, self.buffer = self.buffer.split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def _receive(self) -> None:
        try:
            data = self.control.recv(1 << 20)
        except OSError:
            data = b""
        self.parent_gone = not data
        self.buffer += data

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self.control.sendall(json.dumps(message).encode() + b"\n")

    def _start(self, spec: dict[str, Any]) -> bool:
        """Fork and become the agent; a failed exec is told as an error, not as an exit."""
        report, reporter = os.pipe()  # closed by a successful exec
        keeper = os.getpid()
        self.agent = os.fork()
        if self.agent == 0:
            self._become(spec, reporter, keeper)
        os.close(reporter)
        with os.fdopen(report, "rb") as pipe:
            trouble = pipe.read().decode(errors="replace")
        if trouble:
            os.waitpid(self.agent, 0)
            self._tell({"error": trouble})
            return False
        self._tell({"started": self.agent})
        return True

    def _become(self, spec: dict[str, Any], reporter: int, keeper: int) -> None:
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:
                os._exit(127)
            signal.set_wakeup_fd(-1)
            for number in (*SIGNALS, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.chdir(spec["cwd"])
            os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - no shell is the point
        except (OSError, ValueError) as error:
            os.write(reporter, f"{type(error).__name__}: {error}".encode())
        os._exit(127)

    @staticmethod
    def _close_own_streams() -> None:
        """Leave the pipes to the agent, so that they end with its tree."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)

    def _watch(self) -> None:
        """Return when the agent has ended and its helpers had a moment, or when the tree must be killed."""
        ended_at: float | None = None
        while not (self.parent_gone or self.asked_to_end):
            alone = self._reap()
            now = time.monotonic()
            if self.status is not None:
                ended_at = ended_at or now
                if alone or now >= ended_at + AFTER_EXIT_S:
                    return
            if self.kill_at is not None and now >= self.kill_at:
                return
            deadlines = [at for at in (self.kill_at, ended_at and ended_at + AFTER_EXIT_S) if at is not None]
            for message in self._messages(max(0.0, min(deadlines) - now) if deadlines else None):
                self._obey(message)

    def _obey(self, message: dict[str, Any]) -> None:
        if "kill" in message:
            self.asked_to_end = True
        if "signal" in message and self.status is None:
            send(self.agent, message["signal"])
        if "stop" in message and self.kill_at is None:
            self.kill_at = time.monotonic() + float(message["stop"])
            if self.status is None:
                send(self.agent, signal.SIGTERM)
                send(self.agent, signal.SIGCONT)

    def _reap(self) -> bool:
        """Collect the dead; True when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.agent:
                self.status = os.waitstatus_to_exitcode(status)

    def _end_tree(self) -> int:
        """Stop, kill and reap until no descendant lives; the number of those that would not die."""
        deadline = time.monotonic() + PATIENCE_S
        pause = 0.001
        while True:
            pids = self._freeze()
            for pid in pids:
                send(pid, signal.SIGKILL)
            if not LINUX:
                send(-self.agent, signal.SIGKILL)
            if self._reap():
                return 0
            if time.monotonic() > deadline:
                return len(pids)
            time.sleep(pause)
            pause = min(pause * 2, 0.2)

    def _freeze(self) -> set[int]:
        """Stop all descendants, looking again until none is new: a chain that re-forks stands still too."""
        stopped: set[int] = set()
        for _ in range(50):
            new = descendants(os.getpid()) - stopped
            if not new:
                break
            for pid in new:
                send(pid, signal.SIGSTOP)
            stopped |= new
        return stopped


def send(pid: int, number: int) -> None:
    """Signal a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def descendants(root: int) -> set[int]:
    """All processes below one, by parent link."""
    children: dict[int, list[int]] = {}
    for pid, parent in processes():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        below = [pid for pid in children.get(todo.pop(), []) if pid not in found]
        found.update(below)
        todo += below
    return found


def processes() -> list[tuple[int, int]]:
    """Pid and parent of every process that is not a zombie."""
    if not LINUX:
        listed = subprocess.run(
            ["/bin/ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False
        )
        return [(int(line.split()[0]), int(line.split()[1])) for line in listed.stdout.splitlines()]
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - strings are enough and this must be fast
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in {b"Z", b"X"}:
                    found.append((int(name), int(fields[1])))
    return found


if __name__ == "__main__":
    main()
