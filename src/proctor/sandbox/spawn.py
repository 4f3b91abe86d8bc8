"""Between fork and exec in the keeper: group, descriptors, limits, confinement; then the program.

Two ways in: `fork` for a child that confines itself (level 2, 1), `posix_spawn` for bwrap, which does it all.
Standard library only; runs in a process with one thread, so code after fork is safe.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn

from proctor.sandbox import confine
from proctor.sandbox.procfs import LINUX

__all__ = ["PR_SET_PDEATHSIG", "Child", "SpawnError", "prctl", "start"]

PR_SET_PDEATHSIG = 1
_SETUP_SECONDS = 20.0
_RESET = [
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGTTOU,
    signal.SIGTTIN,
    signal.SIGTERM,
]
_libc = ctypes.CDLL(None, use_errno=True)


class SpawnError(Exception):
    """The child did not start; carries the stage, the error number and the system's words."""

    def __init__(self, stage: str, number: int, text: str) -> None:
        super().__init__(text)
        self.stage, self.number, self.text = stage, number, text


@dataclass
class Child:
    """A started leader; for bwrap with the pipe on which it tells how far it came."""

    pid: int
    report: int | None = None
    heard: bytearray = field(default_factory=bytearray)

    def status(self) -> dict[str, Any]:
        """What bwrap said: its child, and an exit code only if the program really ran."""
        if self.report is None:
            return {}
        while chunk := _read_now(self.report):
            self.heard += chunk
        os.close(self.report)
        self.report = None
        merged: dict[str, Any] = {}
        for line in self.heard.splitlines():
            merged |= json.loads(line)
        return merged


def prctl(option: int, value: int) -> None:
    """Ask Linux for one property of this process; elsewhere there is nothing to ask."""
    if LINUX and _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def start(job: dict[str, Any], fds: list[int]) -> Child:
    """Start the job's program on these descriptors: 0, 1, 2, then extras at the numbers the job names."""
    return _start_wrapped(job, fds) if job["wrappers"] else _start_plain(job, fds)


def _start_plain(job: dict[str, Any], fds: list[int]) -> Child:
    error_read, error_write = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(job, fds, error_write, keeper)
    os.close(error_write)
    try:
        told = _read_all(error_read)
    finally:
        os.close(error_read)
    if told:
        os.waitpid(pid, 0)
        stage, number, text = json.loads(told)
        raise SpawnError(stage, number, text)
    return Child(pid)


def _become(job: dict[str, Any], fds: list[int], error: int, keeper: int) -> NoReturn:
    """Turn the forked child into the program; never returns into the keeper's loop."""
    stage, told = "setup", (0, "unexpected failure")
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(127)  # the keeper died before we could ask to die with it
        _fresh_signals()
        # A group, no session: the keeper's has no terminal, only a leader could take one, and on a busy machine
        # the scheduler makes every new session wait its turn.
        os.setpgid(0, 0)
        error = _place(fds, [0, 1, 2, *job["extra_fds"]], error)
        _set_limits(0, job["rlimits"])
        stage = "cgroup"
        _join(job["cgroup"], 0)
        stage = "chdir"
        os.chdir(job["cwd"])
        stage = "confine"
        if job["no_new_privs"] and LINUX:
            confine.no_new_privs()
        if job["landlock"] is not None:
            confine.apply(
                job["landlock"]["read"], job["landlock"]["write"], network=job["landlock"]["network"]
            )
        stage = "exec"
        os.execvpe(job["argv"][0], job["argv"], job["env"])  # noqa: S606 - this is the exec
    except (OSError, ValueError) as problem:
        told = (getattr(problem, "errno", None) or 0, f"{type(problem).__name__}: {problem}")
    finally:
        # Nothing may climb out of the forked child into the keeper's loop, whatever went wrong.
        os.write(error, json.dumps([stage, *told]).encode()[:4096])
        os._exit(127)


def _fresh_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (*_RESET, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _place(fds: list[int], targets: list[int], error: int) -> int:
    """Put descriptors at their numbers, first out of each other's way; returns where the error pipe went."""
    above = max(targets) + 1
    held = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in [*fds, error]]
    for fd, target in zip(held[:-1], targets, strict=True):
        os.dup2(fd, target, inheritable=True)
    return held[-1]


def _set_limits(pid: int, limits: dict[str, int]) -> None:
    for name, value in limits.items():
        number = getattr(resource, name)
        hard = (resource.prlimit(pid, number) if pid else resource.getrlimit(number))[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        if pid:
            resource.prlimit(pid, number, (wanted, wanted))
        else:  # the only way elsewhere than on Linux
            resource.setrlimit(number, (wanted, wanted))


def _join(group: str | None, *pids: int) -> None:
    for pid in pids if group is not None else ():
        fd = os.open(f"{group}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(pid).encode())
        finally:
            os.close(fd)


def _start_wrapped(job: dict[str, Any], fds: list[int]) -> Child:
    """Start bwrap; it waits on a pipe until its child, inside the namespaces, has the limits."""
    report, report_write = os.pipe()
    gate, gate_write = os.pipe()
    numbers = job["wrapper_fds"]
    try:
        try:
            pid = _spawn_bwrap(job, fds, {report_write: numbers["report"], gate: numbers["gate"]})
        finally:
            os.close(report_write)
            os.close(gate)
        child = Child(pid, report)
        inner = _inner_pid(child)
        if inner is not None:
            _limit_inner(inner, job["rlimits"])
            _join(job["cgroup"], pid, inner)
        _write_quietly(gate_write, b"x")
    except SpawnError:
        os.close(report)
        raise
    except OSError as problem:
        os.close(report)
        raise SpawnError("cgroup", problem.errno or 0, str(problem)) from None
    finally:
        os.close(gate_write)
    return child


def _spawn_bwrap(job: dict[str, Any], fds: list[int], own: dict[int, int]) -> int:
    wanted = dict(zip(fds, [0, 1, 2, *job["extra_fds"]], strict=True)) | own
    above = max(wanted.values()) + 1
    held = {fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above): target for fd, target in wanted.items()}
    actions = [(os.POSIX_SPAWN_DUP2, fd, target) for fd, target in held.items()]
    try:
        return os.posix_spawn(
            job["argv"][0],
            job["argv"],
            job["env"],
            file_actions=actions,
            setsigmask=[],
            setsigdef=_RESET,
        )
    except OSError as problem:
        raise SpawnError("exec", problem.errno or 0, str(problem)) from None
    finally:
        for fd in held:
            os.close(fd)


def _inner_pid(child: Child) -> int | None:
    """Wait for bwrap's first words; None when it died before them (its end will tell why)."""
    assert child.report is not None
    until = time.monotonic() + _SETUP_SECONDS
    while b"\n" not in child.heard:
        if not select.select([child.report], [], [], max(0.0, until - time.monotonic()))[0]:
            os.kill(child.pid, signal.SIGKILL)
            raise SpawnError("setup", errno.ETIMEDOUT, "bwrap did not answer")
        chunk = os.read(child.report, 4096)
        if not chunk:
            return None
        child.heard += chunk
    inner: int = json.loads(child.heard.splitlines()[0])["child-pid"]
    return inner


def _limit_inner(pid: int, limits: dict[str, int]) -> None:
    try:
        _set_limits(pid, limits)
    except ProcessLookupError:
        return  # it failed to set itself up; nothing runs
    except PermissionError as problem:
        raise SpawnError("limits", problem.errno or 0, str(problem)) from None


def _read_now(fd: int) -> bytes:
    ready = select.select([fd], [], [], 0)[0]
    return os.read(fd, 4096) if ready else b""


def _read_all(fd: int) -> bytes:
    data = b""
    while chunk := os.read(fd, 4096):
        data += chunk
    return data


def _write_quietly(fd: int, data: bytes) -> None:
    try:
        os.write(fd, data)
    except BrokenPipeError:
        return
