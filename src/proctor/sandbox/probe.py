"""Which confinement this machine gives, found by running each mechanism once, never by version numbers.

The answer is kept for the life of the process. `describe` is what `proctor doctor` prints.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from proctor.sandbox import confine
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.seatbelt import SANDBOX_EXEC
from proctor.sandbox.spec import Level, LevelUnavailableError

__all__ = [
    "Check",
    "Probe",
    "apart",
    "available",
    "best_level",
    "bubblewrap",
    "by_host",
    "describe",
    "landlock",
    "probe",
]

_DIRECTORIES = (
    "/usr/bin",
    "/usr/local/bin",
    "/bin",
    "/run/current-system/sw/bin",
    "/home/linuxbrew/.linuxbrew/bin",
)
_SECONDS = 15
_HELD = {
    "cgroup": "held by the kernel (cgroup pids)",
    "rlimit": "held by the kernel at level 3 (RLIMIT_NPROC); below, watched forty times a second",
    "polled": "watched forty times a second, not held by the kernel",
}
_ROOT = str(Path(__file__).resolve().parents[2])
_TRIAL = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
from proctor.sandbox import confine
confine.apply(["/usr", "/lib", "/lib64", "/bin"], ["/dev/null"], network=False)
for attempt in (lambda: os.listdir("/etc"), lambda: os.open("/dev/zero", os.O_RDWR), socket.socket):
    try:
        attempt()
    except PermissionError:
        continue
    sys.exit("not held")
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the doctor's answer."""

    name: str
    ok: bool
    detail: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found; an empty reason means that the mechanism works."""

    platform: str
    level: Level
    bwrap: Bubblewrap | None
    bwrap_reason: str
    landlock_abi: int
    landlock_reason: str
    pidfd: bool
    cgroup_reason: str
    by_host_reason: str = ""
    processes: str = "polled"
    """Who keeps the number of processes: cgroup, rlimit (not for root) or polled."""


@functools.cache
def bubblewrap() -> tuple[Bubblewrap | None, str]:
    """Find bwrap outside any workspace and run it with what we need; give it, or the reason against it."""
    if sys.platform != "linux":
        return None, "bwrap is for Linux"
    places = [f"{directory}/bwrap" for directory in _DIRECTORIES]
    path = next((place for place in places if os.access(place, os.X_OK)), None)
    if path is None:
        return None, "bwrap is not installed"
    reason = ""
    for candidate in (Bubblewrap(path), Bubblewrap(path, disable_userns=False, size=False)):
        reason = _try_bwrap(candidate)
        if not reason:
            return candidate, ""
    return None, reason


def _try_bwrap(candidate: Bubblewrap) -> str:
    words = [
        candidate.path,
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
    ]
    words += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
    words += ["--disable-userns"] if candidate.disable_userns else []
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--size", "65536"] if candidate.size else []
    words += ["--tmpfs", "/tmp", "--", "/bin/sh", "-c", "exit 42"]  # noqa: S108 - inside the namespace
    return _trial(words, 42)


def _trial(words: list[str], wanted: int) -> str:
    """Run one trial; give "" when it ended as wanted, or the reason in one line."""
    try:
        done = subprocess.run(
            words, capture_output=True, check=False, timeout=_SECONDS, env={"PATH": os.defpath}, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{words[0]}: {error}"
    if done.returncode == wanted:
        return ""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1][:300] if said else f"{words[0]} ended with {done.returncode}"


@functools.cache
def landlock() -> tuple[int, str]:
    """Ask for Landlock's version and let a process confine itself; give the version, or 0 and the reason."""
    if sys.platform != "linux":
        return 0, "Landlock is for Linux"
    abi = confine.landlock_abi()
    if abi == 0:
        return 0, "the kernel has no Landlock, or it is switched off at boot (lsm=)"
    if not confine.seccomp_works():
        return 0, f"no seccomp filter for {os.uname().machine}"
    reason = _trial([sys.executable, "-I", "-S", "-c", _TRIAL, _ROOT], 0)
    return (0, reason) if reason else (abi, "")


@functools.cache
def apart() -> str:
    """Say why a keeper cannot have devices and a network of its own; "" when it can. Network by host needs one."""
    if sys.platform != "linux":
        return "network namespaces are for Linux"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from proctor.sandbox import apart;"
        "apart.enter(offline=True); apart.listen(0); open('/dev/pts/null', 'w').write('x')"
    )
    return _trial([sys.executable, "-I", "-S", "-c", code, _ROOT], 0)


def by_host() -> str:
    """Say why the network cannot be a list of hosts; "" when it can."""
    return bubblewrap()[1] or apart()


@functools.cache
def _seatbelt() -> bool:
    if not os.access(SANDBOX_EXEC, os.X_OK):
        return False
    return not _trial([SANDBOX_EXEC, "-p", "(version 1)(allow default)", "/usr/bin/true"], 0)


def available(level: Level) -> str:
    """Say why a level cannot be had; "" when it can."""
    if level is Level.BWRAP:
        return bubblewrap()[1]
    if level is Level.LANDLOCK:
        return "" if _seatbelt() else landlock()[1]
    return ""


def best_level(required: Level, exact: Level | None = None) -> Level:
    """Choose the level for a command: exactly the one named, or the best; never below what is required."""
    wanted = [exact] if exact is not None else [Level.BWRAP, Level.LANDLOCK, Level.LIMITS]
    reasons = []
    for level in wanted:
        reason = available(level)
        if not reason and level >= required and level is not Level.REFUSE:
            return level
        reasons += [reason] if reason else []
    needed = max(required, exact or required)
    cure = "Install bubblewrap (for instance `apt install bubblewrap`); `proctor doctor` says more."
    raise LevelUnavailableError(
        wanted=int(needed), found=int(_found()), why="; ".join(reasons) or "refused", cure=cure
    )


def _found() -> Level:
    return next(level for level in (Level.BWRAP, Level.LANDLOCK, Level.LIMITS) if not available(level))


@functools.cache
def probe() -> Probe:
    """Run every mechanism once and tell all that was found."""
    bwrap, bwrap_reason = bubblewrap()
    abi, landlock_reason = landlock()
    return Probe(
        platform=sys.platform,
        level=_found(),
        bwrap=bwrap,
        bwrap_reason=bwrap_reason,
        landlock_abi=abi,
        landlock_reason=landlock_reason,
        pidfd=_pidfd(),
        cgroup_reason=_cgroup(),
        by_host_reason=by_host(),
        processes=_processes(),
    )


def _processes() -> str:
    from proctor.sandbox.pids import places

    if sys.platform == "linux" and places():
        return "cgroup"
    return "rlimit" if os.geteuid() != 0 and not bubblewrap()[1] else "polled"


def _pidfd() -> bool:
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _cgroup() -> str:
    """Say why memory and CPU cannot be limited by the kernel; "" when a group was made and removed again."""
    from proctor.sandbox.cgroup import delegated

    return delegated()[1]


def describe(found: Probe) -> list[Check]:
    """Tell what was found in rows, each failure with its cure."""
    names = {Level.BWRAP: "bwrap", Level.LANDLOCK: "Landlock + seccomp", Level.LIMITS: "limits only"}
    userns = "Allow unprivileged user namespaces (Ubuntu: an AppArmor profile for bwrap)."
    cure = "apt install bubblewrap" if "not installed" in found.bwrap_reason else userns
    return [
        Check(
            "sandbox level",
            found.level >= Level.LANDLOCK,
            f"{int(found.level)} ({names[found.level]})",
            ""
            if found.level >= Level.LANDLOCK
            else "Install bubblewrap, or use a kernel with Landlock (5.13).",
        ),
        Check(
            "sandbox: bwrap",
            found.bwrap is not None,
            found.bwrap_reason or _words(found.bwrap),
            _if(found.bwrap_reason, cure),
        ),
        Check(
            "sandbox: Landlock + seccomp",
            not found.landlock_reason,
            found.landlock_reason or f"ABI {found.landlock_abi}",
            _if(found.landlock_reason, "Boot with lsm=landlock,… or a newer kernel."),
        ),
        Check(
            "sandbox: cgroup",
            not found.cgroup_reason,
            found.cgroup_reason or "delegated: the kernel keeps memory and CPU limits",
            _if(
                found.cgroup_reason,
                "Optional: run Proctor in a systemd user session; until then limits are polled.",
            ),
        ),
        Check(
            "sandbox: network by host",
            not found.by_host_reason,
            found.by_host_reason or "a list of hosts is held by a proxy in a network of its own",
            _if(found.by_host_reason, "Optional: level 3 and user namespaces; until then hosts are refused."),
        ),
        Check(
            "sandbox: processes",
            found.processes != "polled",
            _HELD[found.processes],
            _if(found.processes == "polled", "Optional: a writable cgroup with the pids controller."),
        ),
        Check("sandbox: pidfd", found.pidfd, "works" if found.pidfd else "the kernel has none", ""),
    ]


def _words(bwrap: Bubblewrap | None) -> str:
    return bwrap.path if bwrap is not None else ""


def _if(condition: object, text: str) -> str:
    return text if condition else ""
