"""What is to be run and what came of it: the words of this room. Nothing here touches the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from proctor.protocol.errors import RefusedError, UsageError
from proctor.sandbox.hosts import check_hosts

__all__ = [
    "Altered",
    "Confinement",
    "Level",
    "LevelUnavailableError",
    "Limits",
    "Network",
    "Output",
    "Placed",
    "Reach",
    "Result",
    "Spec",
    "SpecError",
]


class Level(IntEnum):
    """How well a command is confined."""

    REFUSE = 0
    LIMITS = 1  # session, limits and tree only: attended, every command asked
    LANDLOCK = 2  # files and network by Landlock + seccomp (macOS: sandbox-exec)
    BWRAP = 3  # own file system view, network, process and user namespace


class Network(StrEnum):
    """What a command may reach: nothing but its own loopback, some hosts through our proxy, or everything."""

    OFF = "off"
    HOSTS = "hosts"
    FULL = "full"


class SpecError(UsageError):
    """The command cannot be confined as asked: {problem}. {cure}"""

    code = "sandbox_spec"


class LevelUnavailableError(RefusedError):
    """Refused: this needs sandbox level {wanted} and the machine gives {found} ({why}). {cure}"""

    code = "sandbox_level"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use. CPU: 100 percent is one core. None: no limit."""

    seconds: float | None = 300.0
    grace: float = 5.0
    memory_mb: int | None = None
    cpu_percent: int | None = None
    processes: int | None = 1024
    head_bytes: int = 64 << 10
    tail_bytes: int = 192 << 10
    stream_bytes: int = 1 << 20  # what `on_output` is told of each stream
    temporary_mb: int = 512  # size of the private /tmp at level 3


@dataclass(frozen=True, slots=True)
class Placed:
    """A directory or file that the command finds under another path than where it lies."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """One command. `env` is the whole environment (see `environment.py`); paths are absolute.

    writable: directories (or files) it may change. readable: what it may read beyond the system's own
    directories. hidden: what it must not see. protected: read-only although inside a writable root; hooks and
    configuration of git always are. placed: what stands over another path, in order of depth; needs level 3 by
    name. hosts: what may be reached with `Network.HOSTS` (see `hosts.py`), which only level 3 can do: without it the
    command is refused, or (hosts_optional) runs with no network at all and the result says so. level: exactly this
    one; otherwise the best there is, at least `level_required`.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    placed: tuple[Placed, ...] = ()
    network: Network = Network.OFF
    hosts: tuple[str, ...] = ()
    hosts_optional: bool = False
    limits: Limits = Limits()
    level_required: Level = Level.LANDLOCK
    level: Level | None = None
    stdin: bytes | None = None

    def __post_init__(self) -> None:
        if not self.argv or any("\0" in word for word in self.argv):
            raise SpecError(
                problem="the command is empty or holds a NUL", cure="Give a program and its words."
            )
        ends = [path for each in self.placed for path in (each.source, each.target)]
        for path in (self.cwd, *self.writable, *self.readable, *self.hidden, *self.protected, *ends):
            if not path.startswith("/") or "\0" in path:
                raise SpecError(problem=f"{path!r} is not an absolute path", cure="Resolve it first.")
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise SpecError(problem=f"{name!r} is no environment variable", cure="Remove it.")
        if bool(self.hosts) != (self.network is Network.HOSTS):
            raise SpecError(
                problem="hosts and the network do not fit", cure="Give hosts with Network.HOSTS only."
            )
        check_hosts(self.hosts)
        if self.placed and self.level is not Level.BWRAP:
            raise SpecError(
                problem="only level 3 can place a directory over another path", cure="Ask for it by name."
            )
        if self.level is not None and self.level < self.level_required:
            raise SpecError(
                problem="the level chosen is below the level required", cure="Lower level_required."
            )


@dataclass(frozen=True, slots=True)
class Output:
    """One stream, bounded: its beginning and its end, and how much there was in all."""

    head: str
    tail: str
    total_bytes: int
    dropped_bytes: int

    @property
    def truncated(self) -> bool:
        """Say whether something in the middle is missing."""
        return self.dropped_bytes > 0

    @property
    def text(self) -> str:
        """Beginning and end with a clear mark between them."""
        if not self.truncated:
            return self.head + self.tail
        return f"{self.head}\n[… truncated: {self.dropped_bytes} of {self.total_bytes} bytes left out …]\n{self.tail}"


@dataclass(frozen=True, slots=True)
class Reach:
    """One host a command wanted: whether it was allowed, why not (or what went wrong), and how often."""

    host: str  # with its port
    allowed: bool
    reason: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Confinement:
    """How well the command really was confined; `missing` says in plain words what did not hold.

    limits: who kept each limit (memory, cpu, processes): `cgroup`, `rlimit` or `polled`. reached: the hosts the command
    wanted, allowed and refused, when its network was a list of hosts.
    """

    level: Level
    net: Network
    missing: tuple[str, ...]
    limits: Mapping[str, str] = field(default_factory=dict)
    reached: tuple[Reach, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """The hosts that were wanted and refused, each with the reason."""
        return tuple(f"{one.host} ({one.reason})" for one in self.reached if not one.allowed)


@dataclass(frozen=True, slots=True)
class Altered:
    """A protected file that was changed although it must not be, and whether it was put back."""

    path: str
    what: str  # added, removed, changed
    restored: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a command. `survivors` is 0 when the kernel said that nobody of its tree is left."""

    exit_code: int
    stdout: Output
    stderr: Output
    duration: float
    timed_out: bool
    killed_for: str | None  # timeout, cancelled, memory, processes
    survivors: int
    leftovers: int  # processes that outlived the command and were ended
    cpu_seconds: float
    peak_bytes: int
    sandbox: Confinement
    altered: tuple[Altered, ...] = ()

    @property
    def ok(self) -> bool:
        """Ended by itself with 0."""
        return self.exit_code == 0 and self.killed_for is None
