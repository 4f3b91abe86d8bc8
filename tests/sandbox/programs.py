"""Hostile and heavy programs for the tests, as Python text; every one is bounded by itself too."""

from __future__ import annotations

__all__ = ["BOMB", "CHAIN", "DAEMONS", "EATER", "HOG", "SPIN", "SPINNER", "STUBBORN"]

# A child, a grandchild, a daemon after two forks and setsid, and one with a cleared environment and closed files.
DAEMONS = """
import os, sys, time
def spawn(action):
    if os.fork() == 0:
        action()
        os._exit(0)
def sleeper():
    time.sleep(60)
def daemon():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.setsid()
    sleeper()
def bare():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 64)
    os.execve("/bin/sleep", ["sleep", globals().get("nap", "60")], {})
spawn(lambda: (spawn(sleeper), sleeper()))
spawn(daemon)
spawn(bare)
time.sleep(0.3)
print("ready", flush=True)
"""

# Forks and lets the parent die every 2 ms, for at most ten seconds.
CHAIN = """
import os, time
os.setsid()
end = time.monotonic() + 10
print("ready", flush=True)
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.002)
"""

# Ignores TERM, for at most thirty seconds.
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(30)
"""

# At most 300 sleepers, whatever happens.
BOMB = """
import os, time
for _ in range(300):
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""

# Three children with 60 MB each, touched page by page; the limit is for all of them together.
HOG = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        held = bytearray(60 << 20)
        for i in range(0, len(held), 4096):
            held[i] = 1
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""

# Two busy processes.
SPIN = """
import os, time
end = time.monotonic() + 3
os.fork()
while time.monotonic() < end:
    pass
"""

# What a daemon does whose parent sleeps: eat 180 MB page by page.
EATER = """
    held = bytearray(180 << 20)
    for i in range(0, len(held), 4096):
        held[i] = 1
time.sleep(20)
"""

# What a daemon does whose parent sleeps: spin for three seconds.
SPINNER = """
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass
    os._exit(0)
time.sleep(3)
"""
