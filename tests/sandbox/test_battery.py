"""The attack battery: what a hostile command may try, at every level, checked from the outside.

A level that does not hold must say so in `missing`; a level that says nothing must hold.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.sandbox import procfs
from proctor.sandbox.spec import Level, Network, Result
from tests.sandbox.conftest import need

pytestmark = pytest.mark.usefixtures("place")
Sh = Callable[..., Any]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user outside the sandbox, with a secret in its environment."""
    process = subprocess.Popen(["sleep", "60"], env={"TOKEN": "SECRET-TOKEN", "PATH": "/usr/bin:/bin"})
    yield process
    process.kill()
    process.wait()


def says(result: Result, word: str) -> bool:
    """Tell whether the result admits to something."""
    return any(word in line for line in result.sandbox.missing)


async def test_ordinary_work_succeeds(sh: Sh, place: Path, level: Level) -> None:
    """Writing the workspace and the private /tmp, and running a new script, work at every level."""
    command = (
        'printf "#!/bin/sh\\necho ran" > s.sh; chmod +x s.sh; ./s.sh; echo t > "$TMPDIR/t"; cat "$TMPDIR/t"'
    )
    result = await sh(command, level)
    assert (result.exit_code, result.stdout.text, result.sandbox.level) == (0, "ran\nt\n", level)
    assert (place / "ws" / "s.sh").exists()
    assert result.survivors == 0


@pytest.mark.parametrize(
    "attack",
    [
        'echo x > "$HOME/evil"',
        'ln -s "$HOME" link; echo x > link/evil',
        'echo x > "$HOME/.ssh/authorized_keys"',
        'echo x >> "$HOME/.ssh/id_rsa"',
        'rm -rf "$HOME/.ssh"',
        'mv "$HOME/.ssh" stolen',
        'ln "$HOME/.ssh/id_rsa" hard; echo x >> hard',
        'truncate -s 0 "$HOME/.ssh/id_rsa"',
        "echo x > ../evil",
    ],
)
async def test_nothing_outside_the_workspace_changes(
    sh: Sh, place: Path, closed_level: Level, attack: str
) -> None:
    """No attempt to write outside leaves a trace there."""
    before = _tree(place)
    await sh(attack, closed_level)
    assert _tree(place) == before


async def test_modes_outside_stay_or_the_result_admits_it(sh: Sh, place: Path, closed_level: Level) -> None:
    """Landlock has no right for chmod, so level 2 says that it is open; level 3 holds."""
    before = _tree(place)
    result = await sh('chmod 777 "$HOME/.ssh" "$HOME"', closed_level)
    assert says(result, "modes") == (closed_level is Level.LANDLOCK)
    assert _tree(place) == before or closed_level is Level.LANDLOCK


def _tree(place: Path) -> dict[str, tuple[int, bytes]]:
    """Everything beside the workspace: modes and bytes. Modes of hidden directories too."""
    paths = [path for path in place.rglob("*") if not path.is_relative_to(place / "ws")]
    return {str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"") for path in paths}


async def test_limits_only_admits_that_files_are_open(sh: Sh, place: Path) -> None:
    """Without confinement the write lands, and the result says that it can."""
    result = await sh('echo x > "$HOME/evil"; cat "$HOME/.ssh/id_rsa"', Level.LIMITS)
    assert (place / "home" / "evil").exists()
    assert "SECRET" in result.stdout.text
    assert says(result, "files outside")
    assert says(result, "secrets")
    assert says(result, "network")
    assert result.sandbox.net is Network.FULL


@pytest.mark.parametrize(
    "attack",
    [
        'cat "$HOME/.ssh/id_rsa"',
        'ln -s "$HOME/.ssh" in; cat in/id_rsa',
        'cp -r "$HOME/.ssh" .; cat .ssh/*',
        'cat "/proc/self/root$HOME/.ssh/id_rsa"',
        'cat "/proc/1/root$HOME/.ssh/id_rsa"',
        'grep -r SECRET "$HOME"',
    ],
)
async def test_secrets_cannot_be_read(sh: Sh, closed_level: Level, attack: str) -> None:
    """Hidden paths give nothing away by any road."""
    result = await sh(attack, closed_level)
    assert "SECRET" not in result.stdout.text


HOOK_ATTACKS = [
    "echo evil > .git/hooks/pre-commit",
    "echo '[core] fsmonitor = evil' >> .git/config",
    "rm -rf .git/hooks; mkdir .git/hooks; echo evil > .git/hooks/post-checkout",
    "mv .git .g; mkdir -p .git/hooks; echo evil > .git/hooks/pre-push; echo evil > .git/config",
    "mv .git/hooks .git/h; ln -s /tmp .git/hooks",
    "echo ../.. > .git/commondir",
    "chmod 777 .git/hooks .git/config",
]


@pytest.mark.parametrize("attack", HOOK_ATTACKS)
async def test_git_hooks_and_config_stay_as_they_were(sh: Sh, place: Path, level: Level, attack: str) -> None:
    """Level 3 locks them; below, they are put back and the result tells of it."""
    git = place / "ws" / ".git"
    result = await sh(attack, level)
    assert (git / "config").read_text() == "[core]\n"
    assert sorted(entry.name for entry in (git / "hooks").iterdir()) == ["pre-commit.sample"]
    assert not (git / "commondir").exists()
    assert (git / "hooks").stat().st_mode & 0o022 == 0
    assert not (git / "hooks").is_symlink()
    assert "evil" not in "".join(p.read_text() for p in git.rglob("*") if p.is_file() and p.parent == git)
    if level is not Level.BWRAP:
        assert result.altered
        assert all(change.restored for change in result.altered if not change.path.endswith(".altered"))


async def test_a_worktrees_git_file_stays_as_it_was(sh: Sh, place: Path, level: Level) -> None:
    """Pointing a worktree's `.git` elsewhere would run foreign configuration outside."""
    import shutil

    shutil.rmtree(place / "ws" / ".git")
    (place / "ws" / ".git").write_text("gitdir: /somewhere\n")
    result = await sh("echo 'gitdir: /evil' > .git; rm -f .git; mkdir .git", level)
    assert (place / "ws" / ".git").read_text() == "gitdir: /somewhere\n"
    assert bool(result.altered) == (level is not Level.BWRAP)


async def test_a_new_repository_is_told_of_and_left(sh: Sh, place: Path, level: Level) -> None:
    """`git init` in a plain directory is honest work; its new configuration is named."""
    import shutil

    shutil.rmtree(place / "ws" / ".git")
    result = await sh("mkdir -p .git/hooks; echo '[core]' > .git/config", level)
    assert (place / "ws" / ".git" / "config").exists()
    assert {(Path(change.path).name, change.restored) for change in result.altered} >= {("config", False)}


async def test_protected_paths_stay_as_they_were(sh: Sh, place: Path, level: Level) -> None:
    """What the caller names protected is locked or put back."""
    keep = place / "ws" / "proctor.toml"
    keep.write_text("profile = 'careful'\n")
    await sh("echo \"profile = 'open'\" > proctor.toml", level, protected=(str(keep),))
    assert keep.read_text() == "profile = 'careful'\n"


TCP = "import socket; s = socket.create_connection(('127.0.0.1', {port}), 2); print('CONNECTED')"
UDP = "import socket; s = socket.socket(2, 2); s.sendto(b'x', ('127.0.0.1', {port})); print('SENT')"
UNIX = "import socket; s = socket.socket(1); s.connect({path!r}); print('CONNECTED')"


async def test_tcp_to_the_host_is_closed(py: Sh, closed_level: Level) -> None:
    """A server on the host's loopback hears nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = await py(TCP.format(port=server.getsockname()[1]), closed_level)
    assert "CONNECTED" not in result.stdout.text


async def test_tcp_works_when_the_network_is_allowed(py: Sh, closed_level: Level) -> None:
    """With the network on, the host's loopback is reachable, and the result says so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = await py(TCP.format(port=server.getsockname()[1]), closed_level, network=Network.FULL)
    assert "CONNECTED" in result.stdout.text
    assert says(result, "loopback")


async def test_udp_to_the_host_is_closed(py: Sh, closed_level: Level) -> None:
    """A datagram does not arrive."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.2)
        await py(UDP.format(port=server.getsockname()[1]), closed_level)
        with pytest.raises(TimeoutError):
            server.recv(1)


@pytest.mark.parametrize("network", [Network.OFF, Network.FULL])
async def test_unix_sockets_of_the_user_are_closed(
    py: Sh, place: Path, closed_level: Level, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon's socket in a hidden directory cannot be reached, with network or without."""
    state = place / "state"
    state.mkdir()
    monkeypatch.chdir(state)  # a socket's address is short; the test's directory may not be
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        server.listen()
        result = await py(UNIX.format(path=str(state / "s")), closed_level, network=network)
    assert "CONNECTED" not in result.stdout.text


async def test_abstract_sockets_of_the_user_are_closed(py: Sh, closed_level: Level) -> None:
    """A name without a file cannot be reached either."""
    name = f"\0proctor-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        result = await py(UNIX.format(path=name), closed_level)
    assert "CONNECTED" not in result.stdout.text


async def test_loopback_works_inside_the_namespace(py: Sh) -> None:
    """Test servers on 127.0.0.1 run at level 3 though the network is off."""
    need(Level.BWRAP)
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "c = socket.create_connection(s.getsockname(), 2); print('INSIDE')"
    )
    result = await py(code, Level.BWRAP)
    assert "INSIDE" in result.stdout.text


async def test_processes_of_the_user_cannot_be_signalled(
    sh: Sh, closed_level: Level, sleeper: subprocess.Popen[bytes]
) -> None:
    """Neither TERM nor KILL reaches a process outside (Landlock: from ABI 6 on, else it is told)."""
    result = await sh(
        f"kill -TERM {sleeper.pid}; kill -KILL {sleeper.pid}; kill -STOP {os.getpid()}", closed_level
    )
    assert sleeper.poll() is None or says(result, "signalled")


async def test_environments_of_others_cannot_be_read(
    sh: Sh, closed_level: Level, sleeper: subprocess.Popen[bytes]
) -> None:
    """/proc gives no secret of another process, not even to root."""
    result = await sh(
        f"cat /proc/{sleeper.pid}/environ /proc/*/environ /proc/{os.getpid()}/mem", closed_level
    )
    assert "SECRET-TOKEN" not in result.stdout.text


async def test_user_namespaces_cannot_be_nested(py: Sh, closed_level: Level) -> None:
    """A fresh user namespace would bring capabilities back."""
    code = "import ctypes; print('GOT' if ctypes.CDLL(None).unshare(0x10000000) == 0 else 'NO')"
    result = await py(code, closed_level)
    assert result.stdout.text.strip() == "NO"


async def test_io_uring_is_closed(py: Sh, closed_level: Level) -> None:
    """io_uring opens sockets past the filter, so it is not there."""
    code = "import ctypes; print(ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120)))"
    result = await py(code, closed_level)
    assert result.stdout.text.strip() == "-1"


@pytest.mark.parametrize(
    "attack", ["mount -t tmpfs x /mnt", "mknod d b 8 0", "chroot / true", "sudo -n true"]
)
async def test_privileged_acts_fail(sh: Sh, closed_level: Level, attack: str) -> None:
    """Root's capabilities are gone inside."""
    result = await sh(attack, closed_level)
    assert result.exit_code != 0


async def test_no_descriptor_of_ours_is_inherited(py: Sh, level: Level) -> None:
    """Above all not the keeper's socket: who holds it gives orders outside the sandbox."""
    code = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd') if int(n) > 2)[:-1])"
    result = await py(code, level)
    assert result.stdout.text.strip() == "[]"


async def test_the_environment_is_the_allow_list(
    sh: Sh, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens in our own environment do not reach the command."""
    monkeypatch.setenv("OPENAI_API_KEY", "SECRET-TOKEN")
    result = await sh("env", level)
    names = {line.split("=")[0] for line in result.stdout.text.splitlines()}
    allowed = {
        "PATH",
        "HOME",
        "LANG",
        "TMPDIR",
        "XDG_CACHE_HOME",
        "PROCTOR_RUN",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }
    assert names <= allowed
    assert "SECRET" not in result.stdout.text


async def test_the_wrapper_itself_gets_no_variable_of_the_command(sh: Sh) -> None:
    """LD_PRELOAD must act inside only, and no token may stand in a command line that all users can read."""
    need(Level.BWRAP)
    seen: list[bytes] = []

    def look(_stream: str, _text: str) -> None:
        for keeper in procfs.children(os.getpid()):
            for wrapper in procfs.tree(keeper)[:2]:
                seen.extend(Path(f"/proc/{wrapper}/{name}").read_bytes() for name in ("environ", "cmdline"))

    extra = {"LD_PRELOAD": "/evil.so", "TOKEN": "s3cret"}
    result = await sh("echo $TOKEN $LD_PRELOAD; sleep 0.3", Level.BWRAP, extra=extra, on_output=look)
    assert result.stdout.text == "s3cret /evil.so\n"
    assert len(seen) >= 4
    assert not any(b"s3cret" in text or b"LD_PRELOAD=" in text for text in seen)


async def test_host_processes_are_invisible_at_level_three(sh: Sh, closed_level: Level) -> None:
    """The process namespace shows only the command's own; Landlock cannot, and says so."""
    result = await sh(f"test -e /proc/{os.getpid()}/cmdline && echo SEEN", closed_level)
    if closed_level is Level.BWRAP:
        assert "SEEN" not in result.stdout.text or os.getpid() < 20
    else:
        assert says(result, "listed")


async def test_the_private_tmp_is_gone_afterwards(sh: Sh, level: Level) -> None:
    """What a command leaves in its /tmp nobody finds."""
    result = await sh('echo x > "$TMPDIR/left"; echo "$TMPDIR"', level)
    assert not (Path(result.stdout.text.strip()) / "left").exists()


def test_signal_numbers_are_what_the_keeper_sends() -> None:
    """The shell's 128 + n for a killed command rests on these."""
    assert (signal.SIGKILL, signal.SIGTERM) == (9, 15)
