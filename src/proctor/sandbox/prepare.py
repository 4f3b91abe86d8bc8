"""From a spec and a level to a job for the keeper: mounts or rules, private /tmp, limits, memory of what is guarded.

Looks at names but reads nothing long. `clear` takes everything away again.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field, replace
from typing import Any

from proctor.sandbox import bubblewrap, confine, probe
from proctor.sandbox.cgroup import Group, make_group
from proctor.sandbox.identity import MARK
from proctor.sandbox.landlock import landlock_missing, landlock_rules
from proctor.sandbox.paths import Kind, Mount, mounts, resolved
from proctor.sandbox.process import Job, TreeLimits
from proctor.sandbox.protected import Memory, git_anchors, git_guarded
from proctor.sandbox.proxy import PROXY_PORT, proxy_environment
from proctor.sandbox.seatbelt import UNTESTED, seatbelt_argv
from proctor.sandbox.spec import Confinement, Level, Network, Spec, SpecError
from proctor.sandbox.wire import OFFLINE, ONLINE, PLAIN

__all__ = ["Prepared", "prepare"]

_NUMBERS = {"report": bubblewrap.REPORT_FD, "gate": bubblewrap.GATE_FD}
_MODES = "modes of the host's devices can be changed"  # in the /dev that bwrap makes
_REACHABLE = "the host's loopback and abstract sockets are reachable"
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

    def clear_temporary(self) -> None:
        """Remove the private /tmp; may take long, so called in a thread when it is not empty."""
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def temporary_is_gone(self) -> bool:
        """Remove it when it is empty, which is nearly always."""
        if self.temporary is not None:
            try:
                os.rmdir(self.temporary)  # noqa: PTH106 - one system call
            except OSError:
                return False
        return True


def prepare(spec: Spec, level: Level, run_id: str) -> Prepared:
    """Get everything ready for one run; looks at names, reads nothing long."""
    spec = resolved(spec)
    if not os.path.isdir(spec.cwd):  # noqa: PTH112 - one look at one path
        raise SpecError(problem=f"the directory {spec.cwd} does not exist", cure="Make it first.")
    guarded = (*git_guarded(spec.writable), *spec.protected)
    plan = mounts(spec, guarded, git_anchors(spec.writable))
    limits = spec.limits
    group = make_group(memory_mb=limits.memory_mb, cpu_percent=limits.cpu_percent, processes=limits.processes)
    ready = _Ready(spec, level, run_id, guarded, plan, group)
    return _wrapped(ready) if level is Level.BWRAP else _plain(ready)


@dataclass(frozen=True, slots=True)
class _Ready:
    """What both ways need."""

    spec: Spec
    level: Level
    run_id: str
    guarded: tuple[str, ...]
    plan: list[Mount]
    group: Group | None


def _wrapped(ready: _Ready) -> Prepared:
    spec, group = ready.spec, ready.group
    bwrap, _reason = probe.bubblewrap()
    assert bwrap is not None
    argv = bubblewrap.bwrap_argv(bwrap, spec)
    apart = not probe.apart()
    kind = (ONLINE if spec.network is Network.FULL else OFFLINE) if apart else PLAIN
    door = PROXY_PORT if spec.network is Network.HOSTS else None
    more = {"wrappers": bubblewrap.WRAPPERS, "wrapper_fds": _NUMBERS, "keeper": kind, "listen": door}
    job = _job(ready, argv, "/", "/tmp", **more)  # noqa: S108
    options = bubblewrap.bwrap_options(bwrap, spec, ready.plan, job.env, apart=apart)
    job = replace(job, env={MARK: ready.run_id})
    missing = [_REACHABLE] if spec.network is Network.FULL else []
    missing += [_MODES] if not apart and os.geteuid() == 0 else []
    confinement = Confinement(Level.BWRAP, spec.network, (*missing, *_polled(spec, group)))
    # What a mount locks cannot have changed; what was not there to be locked is compared.
    locked = {mount.path for mount in ready.plan if mount.kind is Kind.PROTECTED}
    memory = Memory(tuple(path for path in ready.guarded if path not in locked))
    return Prepared(
        job,
        confinement,
        memory,
        extra=[_file(confine.seccomp_program(sockets="all")), _file(options)],
        group=group,
    )


def _file(data: bytes) -> int:
    """A file without a name, to be read from its beginning."""
    fd = os.memfd_create("proctor", os.MFD_CLOEXEC)
    left = memoryview(data)
    while left:
        left = left[os.pwrite(fd, left, len(data) - len(left)) :]
    return fd


def _plain(ready: _Ready) -> Prepared:
    spec, level = ready.spec, ready.level
    temporary = os.path.realpath(tempfile.mkdtemp(prefix="proctor-"))
    argv, rules, net = list(spec.argv), None, spec.network
    missing: tuple[str, ...]
    if level is Level.LIMITS:
        missing, net = _OPEN, Network.FULL
    elif sys.platform == "darwin":
        argv, missing = seatbelt_argv(spec, temporary, ready.guarded), (UNTESTED,)
    else:
        rules, missing = landlock_rules(spec, temporary), landlock_missing(spec, probe.landlock()[0])
    job = _job(ready, argv, spec.cwd, temporary, landlock=rules, temporary=temporary)
    confinement = Confinement(level, net, (*missing, *_polled(spec, ready.group)))
    return Prepared(job, confinement, Memory(ready.guarded), group=ready.group, temporary=temporary)


def _polled(spec: Spec, group: Group | None) -> tuple[str, ...]:
    limited = spec.limits.memory_mb is not None or spec.limits.cpu_percent is not None
    return (
        ("memory and CPU are watched ten times a second, not capped by the kernel",)
        if limited and not group
        else ()
    )


def _job(ready: _Ready, argv: list[str], cwd: str, tmp: str, **more: Any) -> Job:
    spec, limits, group = ready.spec, ready.spec.limits, ready.group
    env = {"TMPDIR": tmp, "XDG_CACHE_HOME": f"{tmp}/.cache", **spec.env, MARK: ready.run_id}
    env |= proxy_environment() if spec.network is Network.HOSTS else {}
    tree = TreeLimits(limits.seconds, limits.grace, limits.memory_mb, limits.cpu_percent, limits.processes)
    rlimits = {"RLIMIT_CORE": 0}
    if limits.memory_mb is not None:
        # A back-stop for one that allocates faster than we look; generous, because stacks of threads count too.
        rlimits["RLIMIT_DATA"] = max(limits.memory_mb * 2, limits.memory_mb + 1024) << 20
    if limits.processes is not None and more.get("wrappers"):
        rlimits["RLIMIT_NPROC"] = limits.processes * 4  # counts threads, in this user namespace alone
    place = str(group.path) if group is not None else None
    held = {"memory": "cgroup", "cpu": "cgroup", "processes": "cgroup"} if group is not None else {}
    if "RLIMIT_NPROC" in rlimits and os.geteuid() != 0:
        held.setdefault("processes", "rlimit")  # it does not hold root
    wanted = {"memory": limits.memory_mb, "cpu": limits.cpu_percent, "processes": limits.processes}
    held = {name: by for name, by in held.items() if wanted[name] is not None}
    return Job(argv, cwd, env, limits=tree, rlimits=rlimits, cgroup=place, held=held, quiet=True, **more)
