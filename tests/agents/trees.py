"""Programs that try to outlive their parents, for the tests of the keeper."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

__all__ = ["DAEMON", "PYTHON", "REFORK", "alive", "living", "noted", "wait_for", "wait_gone"]

# Two forks, its own session, an empty environment: nothing but the parent link of a subreaper finds it.
DAEMON = """
import os, sys, time
note = sys.argv[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(note, "w").write(str(os.getpid()))
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"], {})
    os._exit(0)
os.wait()
while not (os.path.exists(note) and open(note).read()): time.sleep(0.01)
"""
# A chain whose every link forks the next and ends: by the time one is found, it is gone.
REFORK = """
import os, sys, time
note = sys.argv[1]
open(note, "w").write("0")
if os.fork() == 0:
    end = time.time() + 60
    while time.time() < end:
        if os.fork() > 0: os._exit(0)
        os.setsid() if os.getpid() != os.getsid(0) else None
        time.sleep(0.002)
        open(note, "w").write(str(os.getpid()))
time.sleep(0.1)
"""


def living(sign: str) -> list[int]:
    """Pids whose command line contains a sign, by a scan of all processes."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
                state = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            except OSError:
                continue
            if sign in line and state != "Z":
                found.append(int(name))
    return found


def alive(pid: int) -> bool:
    """Whether a process runs and is not only waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def noted(path: Path) -> int:
    """The pid a program wrote down; -1 when it was killed while writing or has not written one."""
    return int(path.read_text() or 0) or -1


def wait_for(path: Path, seconds: float = 60.0) -> str:
    """Wait until a file has text."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.01)
    raise TimeoutError(path)


def wait_gone(pid: int, seconds: float = 20.0) -> bool:
    """Wait until a process has ended; False when it still lives."""
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


PYTHON = (sys.executable, "-I", "-S")
