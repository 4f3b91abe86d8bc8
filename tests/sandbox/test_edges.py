"""Edges of the levels: terminals, ghosts, impostors, refusals; and the macOS profile, which nobody has run yet."""

from __future__ import annotations

import os
import pty
import re
import select
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.sandbox import probe
from proctor.sandbox.run import run
from proctor.sandbox.seatbelt import UNTESTED, seatbelt_argv, seatbelt_profile
from proctor.sandbox.spec import Level, Limits, Network, Spec
from proctor.testing.permits import permit_for_tests
from tests.sandbox.conftest import SRC, need

Sh = Callable[..., Any]

# Runs a command at a level while we are its controlling terminal; prints what the command could do with it.
AT_A_TERMINAL = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from proctor.sandbox.run import run
from proctor.sandbox.spec import Level, Spec
from proctor.testing.permits import permit_for_tests
level = Level(int(sys.argv[2]))
code = '''
import fcntl, os, sys, termios
for what in ("/dev/tty", sys.argv[1]):
    try:
        fd = os.open(what, os.O_RDWR)
        for letter in b"echo PUSHED":
            fcntl.ioctl(fd, termios.TIOCSTI, bytes([letter]))
        print("PUSHED INTO", what)
    except OSError as error:
        print("NO", error.errno)
'''
words = (sys.executable, "-I", "-S", "-c", code, sys.argv[4])
spec = Spec(words, sys.argv[3], {"PATH": "/usr/bin:/bin"}, writable=(sys.argv[3],),
            readable=(sys.base_prefix, sys.prefix), level=level, level_required=level)
result = asyncio.run(run(spec, permit=permit_for_tests()))
print("RESULT", result.exit_code, result.stdout.text.split(), flush=True)
"""


def test_nobody_types_into_our_terminal(place: Path, level: Level) -> None:
    """A command cannot open the terminal of whoever started it as its own, nor push letters into it."""
    pid, master = pty.fork()
    if pid == 0:  # the child: this test's controlling terminal is the other end
        name = os.ttyname(0)
        words = [sys.executable, "-c", AT_A_TERMINAL, SRC, str(int(level)), str(place / "ws"), name]
        os.execve(sys.executable, words, dict(os.environ))
    said = _read_until(master, b"RESULT", 60.0)
    os.close(master)
    os.waitpid(pid, 0)
    (line,) = re.findall(r"RESULT .*", said)
    assert line.startswith("RESULT 0 ['NO'")  # /dev/tty leads nowhere at any level
    # Level 1 confines nothing, and to root every terminal is open by its name; its results say that files are.
    assert "PUSHED" not in line or level is Level.LIMITS


async def test_terminals_of_the_user_cannot_be_read(py: Sh, closed_level: Level) -> None:
    """What is typed into another terminal of the same user stays there."""
    master, slave = pty.openpty()
    try:
        os.write(master, b"SECRET-TYPED\n")
        code = f"import os; print(os.read(os.open({os.ttyname(slave)!r}, os.O_RDONLY | os.O_NOCTTY), 99))"
        result = await py(code, closed_level, limits={"seconds": 5})
    finally:
        os.close(master)
        os.close(slave)
    assert "SECRET" not in result.stdout.text
    assert result.exit_code != 0


def _read_until(fd: int, wanted: bytes, seconds: float) -> str:
    heard, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if not select.select([fd], [], [], 0.2)[0]:
            continue
        try:
            piece = os.read(fd, 4096)
        except OSError:
            break
        heard += piece
        if not piece or (wanted in heard and heard.rstrip().endswith(b"]")):
            break
    return heard.decode("utf-8", "replace")


async def test_disks_and_the_kernels_log_cannot_be_read(sh: Sh, closed_level: Level) -> None:
    """Raw devices hold every secret of the machine; the harmless ones work."""
    devices = [f"/dev/{name}" for name in (*os.listdir("/sys/class/block"), "kmsg", "mem", "port", "fuse")]
    there = [device for device in devices if Path(device).exists()]
    line = " ".join(there)
    result = await sh(f"for d in {line}; do head -c 1 $d >/dev/null && echo OPEN $d; done", closed_level)
    assert "OPEN" not in result.stdout.text
    works = await sh(
        "head -c 4 /dev/urandom /dev/zero | wc -c; echo x > /dev/null; cat < /dev/stdin", closed_level
    )
    assert works.exit_code == 0


async def test_devices_of_the_host_keep_their_modes(sh: Sh) -> None:
    """At level 3 not even root, to whom they belong, changes them; below, the result says that modes are open."""
    need(Level.BWRAP)
    before = os.stat("/dev/full").st_mode
    try:
        result = await sh("chmod 600 /dev/full; chown 1:1 /dev/full; : > /dev/full", Level.BWRAP)
        assert os.stat("/dev/full").st_mode == before
        assert result.exit_code == 0
    finally:
        if os.stat("/dev/full").st_mode != before:
            os.chmod("/dev/full", stat.S_IMODE(before))


async def test_nothing_is_left_in_dev_for_the_next_command(sh: Sh) -> None:
    """Keepers serve many: what one command makes or moves in /dev and /dev/shm another never finds."""
    need(Level.BWRAP)
    attacks = "touch /dev/x /dev/pts/x; echo y > /dev/shm/y; rm -f /dev/null; mv /dev/zero /dev/null"
    await sh(f"{attacks}; ln -sf /etc/passwd /dev/fd", Level.BWRAP)
    result = await sh("ls /dev /dev/shm; echo lost > /dev/null; head -c 2 /dev/zero | od -An -c", Level.BWRAP)
    words = result.stdout.text.split()
    assert {"null", "zero", "full", "random", "urandom", "tty", "pts", "shm", "ptmx"} <= set(words)
    assert not {"x", "y"} & set(words)
    assert words[-2:] == ["\\0", "\\0"]


async def test_terminals_of_its_own_work_at_level_three(py: Sh) -> None:
    """A command may open new ones, and finds nobody else's."""
    need(Level.BWRAP)
    master, slave = pty.openpty()
    try:
        code = "import os, pty; m, s = pty.openpty(); os.write(m, b'x\\n'); print(os.listdir('/dev/pts'), os.read(s, 9))"
        result = await py(code, Level.BWRAP)
    finally:
        os.close(master)
        os.close(slave)
    assert result.stdout.text == "['0', 'ptmx'] b'x\\n'\n"


async def test_a_workspace_in_shared_memory_works(level: Level) -> None:
    """/dev is replaced inside; a workspace that lies in it is still there."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        spec = Spec(
            ("/bin/sh", "-c", "echo x > made; ls"),
            place,
            writable=(place,),
            level=level,
            level_required=level,
        )
        result = await run(spec, permit=permit_for_tests())
        assert (result.stdout.text, Path(place, "made").read_text()) == ("made\n", "x\n")


async def test_signalling_its_own_group_reaches_nobody_else(sh: Sh, level: Level) -> None:
    """`kill 0` in a script that survives it ends neither wrapper nor keeper; the script goes on to its own end."""
    result = await sh("trap '' TERM; sleep 20 & kill 0; echo survived; exit 6", level)
    assert (result.stdout.text, result.exit_code, result.survivors) == ("survived\n", 6, 0)
    assert (await sh("echo again", level)).stdout.text == "again\n"


async def test_no_ghosts_appear_in_the_workspace(sh: Sh, place: Path, level: Level) -> None:
    """Nothing is made in the real workspace to be mounted over, neither while a command runs nor after it."""
    ws = place / "ws"
    before = sorted(path.name for path in ws.iterdir())
    seen: list[list[str]] = []
    missing = tuple(str(ws / name) for name in (".bashrc", ".mcp.json", "proctor.toml", ".vscode"))

    def look(_stream: str, _text: str) -> None:
        seen.append(sorted(path.name for path in ws.iterdir()))

    result = await sh("ls -A; sleep 0.1", level, protected=missing, on_output=look)
    assert result.stdout.text.split() == before
    assert seen
    assert all(names == before for names in seen)
    assert sorted(path.name for path in ws.iterdir()) == before


@pytest.mark.parametrize(
    "target", ["/etc/proctor-evil", "/usr/proctor-evil", "/proctor-evil", "/var/tmp/proctor-evil"]
)
async def test_the_system_is_read_only(sh: Sh, closed_level: Level, target: str) -> None:
    """Root's own files too: the attempt fails or lands in something that is thrown away."""
    try:
        await sh(f"echo evil > {target}", closed_level)
        assert not Path(target).exists()
    finally:
        Path(target).unlink(missing_ok=True)


async def test_a_bwrap_of_the_workspace_is_never_run(sh: Sh, place: Path) -> None:
    """The wrapper is looked for in the system's directories, whatever PATH says."""
    need(Level.BWRAP)
    fake = place / "ws" / "bwrap"
    fake.write_text(f"#!/bin/sh\ntouch {place}/fooled\n")
    fake.chmod(0o755)
    result = await sh("echo ran", Level.BWRAP, extra={"PATH": f"{place}/ws:/usr/bin:/bin"})
    assert result.stdout.text == "ran\n"
    assert not (place / "fooled").exists()


def test_a_wrapper_that_is_there_but_does_not_work_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels are found by running: with user namespaces forbidden the next level is taken and doctor says why."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(stat.S_IRWXU)
    monkeypatch.setattr(probe, "_DIRECTORIES", (str(tmp_path),))
    monkeypatch.setattr(probe, "bubblewrap", probe.bubblewrap.__wrapped__)
    monkeypatch.setattr(probe, "probe", probe.probe.__wrapped__)
    assert "Permission denied" in probe.available(Level.BWRAP)
    found = probe.probe()
    assert found.level < Level.BWRAP
    rows = {row.name: row for row in probe.describe(found)}
    assert "Permission denied" in rows["sandbox: bwrap"].detail
    assert "user namespaces" in rows["sandbox: bwrap"].cure
    assert not rows["sandbox: network by host"].ok


def test_a_command_has_five_minutes_unless_told_otherwise() -> None:
    """The default time of one command, and the grace after it."""
    assert (Limits().seconds, Limits().grace) == (300.0, 5.0)


def read_forms(text: str) -> list[Any]:
    """Read the profile's language: brackets, words and strings, nothing else."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[()]|[^\s()"]+', text)
    assert "".join(tokens) == re.sub(r'\s+(?=(?:[^"]*"[^"]*")*[^"]*$)', "", text) or '"' in text
    stack: list[list[Any]] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    assert len(stack) == 1
    return stack[0]


_PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=12).map(
    lambda name: f"/w/{name}"
)


@given(writable=st.lists(_PATHS, max_size=3), hidden=st.lists(_PATHS, max_size=3), full=st.booleans())
def test_the_macos_profile_is_well_formed_for_any_path(
    writable: list[str], hidden: list[str], full: bool
) -> None:
    """UNTESTED on a Mac; but its text is always a list of known forms, closed by default, with secrets denied last."""
    spec = Spec(
        ("true",),
        "/",
        writable=tuple(writable),
        hidden=tuple(hidden),
        network=Network.FULL if full else Network.OFF,
    )
    forms = read_forms(seatbelt_profile(spec, "/private/tmp/x", ("/w/.git/hooks",)))
    assert forms[:2] == [["version", "1"], ["deny", "default"]]
    assert {form[0] for form in forms} == {"version", "deny", "allow"}
    assert (["allow", "network*"] in forms) == full
    denied = [form for form in forms if form[:3] == ["deny", "file-read*", "file-write*"]]
    assert len(denied) == len(hidden)
    assert seatbelt_argv(spec, "/private/tmp/x", ())[-1] == "true"
    assert "untested" in UNTESTED
