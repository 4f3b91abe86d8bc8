"""From a spec and a level to a job for the keeper: mounts or rules, private /tmp, limits, memory of what is guarded.

Blocking (files are looked at): called in a thread. `clear` takes everything away again.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

from proctor.sandbox import bubblewrap, confine, probe
from proctor.sandbox.cgroup import Group, make_group
from proctor.sandbox.landlock import landlock_missing, landlock_rules
from proctor.sandbox.paths import mounts
from proctor.sandbox.process import MARK, Job, TreeLimits
from proctor.sandbox.protected import Memory, git_anchors, git_guarded
from proctor.sandbox.seatbelt import UNTESTED, seatbelt_argv
from proctor.sandbox.spec import Confinement, Level, Network, Spec, SpecError

__all__ = ["Prepared", "prepare"]

_OPEN = (
    "files outside the workspace can be read and written",
    "the network is open",
    "secrets, state and sockets of the user are not hidden",
    "processes of the user can be listed and signalled",
    "git hooks and protected files are compared after, not locked",
)


@dataclass
class Prepared:
    """All that a run needs, and what must be taken away after it."""

    job: Job
    confinement: Confinement
    memory: Memory
    extra: list[int] = field(default_factory=list)
    group: Group | None = None
    temporary: str | None = None

    def clear(self) -> None:
        """Close, remove, forget."""
        for fd in self.extra:
            os.close(fd)
        self.extra = []
        if self.group is not None:
            self.group.remove()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


def prepare(spec: Spec, level: Level, run_id: str) -> Prepared:
    """Get everything ready for one run."""
    if not os.path.isdir(spec.cwd):  # noqa: PTH112 - one look at one path
        raise SpecError(problem=f"the directory {spec.cwd} does not exist", cure="Make it first.")
    roots = tuple(os.path.realpath(path) for path in spec.writable)
    guarded = git_guarded(roots)
    memory = Memory((*guarded, *(os.path.realpath(path) for path in spec.protected)))
    limits = spec.limits
    group = make_group(memory_mb=limits.memory_mb, cpu_percent=limits.cpu_percent, processes=limits.processes)
    if level is Level.BWRAP:
        return _wrapped(spec, memory, group, run_id, roots, guarded)
    return _plain(spec, level, memory, group, run_id, guarded)


def _wrapped(
    spec: Spec,
    memory: Memory,
    group: Group | None,
    run_id: str,
    roots: tuple[str, ...],
    guarded: tuple[str, ...],
) -> Prepared:
    bwrap, _reason = probe.bubblewrap()
    assert bwrap is not None
    plan = mounts(spec, guarded, git_anchors(roots))
    argv = bubblewrap.bwrap_argv(bwrap, spec, plan, os.path.realpath(spec.cwd))
    numbers = {"report": bubblewrap.REPORT_FD, "gate": bubblewrap.GATE_FD}
    job = _job(spec, argv, "/", run_id, "/tmp", group, wrappers=bubblewrap.WRAPPERS, wrapper_fds=numbers)  # noqa: S108
    missing = (
        ("the host's loopback and abstract sockets are reachable",) if spec.network is Network.FULL else ()
    )
    confinement = Confinement(Level.BWRAP, spec.network, (*missing, *_polled(spec, group)))
    return Prepared(job, confinement, memory, extra=[_seccomp_file()], group=group)


def _seccomp_file() -> int:
    fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(fd, confine.seccomp_program(sockets="all"))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _plain(
    spec: Spec, level: Level, memory: Memory, group: Group | None, run_id: str, guarded: tuple[str, ...]
) -> Prepared:
    temporary = os.path.realpath(tempfile.mkdtemp(prefix="proctor-"))
    argv, rules, net = list(spec.argv), None, spec.network
    missing: tuple[str, ...]
    if level is Level.LIMITS:
        missing, net = _OPEN, Network.FULL
    elif sys.platform == "darwin":
        argv, missing = seatbelt_argv(spec, temporary, guarded), (UNTESTED,)
    else:
        rules, missing = landlock_rules(spec, temporary), landlock_missing(spec, probe.landlock()[0])
    job = _job(spec, argv, spec.cwd, run_id, temporary, group, landlock=rules)
    confinement = Confinement(level, net, (*missing, *_polled(spec, group)))
    return Prepared(job, confinement, memory, group=group, temporary=temporary)


def _polled(spec: Spec, group: Group | None) -> tuple[str, ...]:
    limited = spec.limits.memory_mb is not None or spec.limits.cpu_percent is not None
    return (
        ("memory and CPU are watched ten times a second, not capped by the kernel",)
        if limited and not group
        else ()
    )


def _job(
    spec: Spec, argv: list[str], cwd: str, run_id: str, temporary: str, group: Group | None, **more: Any
) -> Job:
    limits = spec.limits
    env = {"TMPDIR": temporary, "XDG_CACHE_HOME": f"{temporary}/.cache", **spec.env, MARK: run_id}
    tree = TreeLimits(limits.seconds, limits.grace, limits.memory_mb, limits.cpu_percent, limits.processes)
    rlimits = {"RLIMIT_CORE": 0}
    if limits.memory_mb is not None:
        # A back-stop for one that allocates faster than we look; generous, because stacks of threads count too.
        rlimits["RLIMIT_DATA"] = max(limits.memory_mb * 2, limits.memory_mb + 1024) << 20
    if limits.processes is not None and more.get("wrappers"):
        rlimits["RLIMIT_NPROC"] = limits.processes * 4  # counts threads, in this user namespace alone
    place = str(group.path) if group is not None else None
    return Job(argv, cwd, env, limits=tree, rlimits=rlimits, cgroup=place, **more)
