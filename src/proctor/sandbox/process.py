"""Start a process tree in a keeper and hold on to it: wait, signal, end. For commands and for agents alike.

Every tree has a keeper of its own while it runs; idle keepers are used again. Keepers are started by one
thread that lives as long as the process, because a parent-death signal follows the *thread* that forked.
This module does not confine and asks for no permit: `run.run` and the agents' drivers do that before.
"""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.protocol.errors import ProctorError, UnavailableError
from proctor.sandbox import procfs
from proctor.sandbox.wire import Channel

__all__ = [
    "MARK",
    "Ending",
    "Identity",
    "Job",
    "KeeperLostError",
    "NotStartedError",
    "Tree",
    "TreeLimits",
    "close_idle_keepers",
    "end_marked",
    "start",
]

MARK = "PROCTOR_RUN"  # environment variable that names the run; found again by `end_marked`
_IDLE_KEEPERS = 8
_START_SECONDS = 60.0
_END_SECONDS = 30.0
_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from proctor.sandbox.keeper import main; main()"


class NotStartedError(ProctorError):
    """{program!r} could not be started ({stage}): {text}. {cure}"""

    code = "not_started"


class KeeperLostError(UnavailableError):
    """The command's keeper was killed; {found} of its processes were found and ended. Run it again."""

    code = "keeper_lost"


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """What a whole tree may use; None means no limit. 100 percent of CPU is one core."""

    seconds: float | None = None
    grace: float = 5.0
    memory_mb: int | None = None
    cpu_percent: int | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One program to start. `env` is the whole environment; nothing is inherited."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    limits: TreeLimits = TreeLimits()
    rlimits: Mapping[str, int] = field(default_factory=dict)  # "RLIMIT_CORE": 0 …
    no_new_privs: bool = True
    landlock: Mapping[str, Any] | None = None  # {"read": […], "write": […], "network": bool}
    wrappers: int = 0  # generations of bwrap above the program: it has two
    wrapper_fds: Mapping[str, int] = field(default_factory=dict)
    cgroup: str | None = None  # the group the program joins before it starts
    temporary: str | None = None  # a directory of the run, removed by the keeper should we be gone by then
    quiet: bool = False  # tell only the end: for those who need neither pid nor the leader's exit


@dataclass(frozen=True, slots=True)
class Identity:
    """A process named for good: its number may be used again, start time and boot tell them apart."""

    pid: int
    start_time: int
    boot_id: str

    def alive(self) -> bool:
        """Say whether this very process still runs on this very boot."""
        return self.boot_id == procfs.boot_id() and procfs.start_time(self.pid) == self.start_time != 0


@dataclass(frozen=True, slots=True)
class Ending:
    """How a tree ended. `survivors` is 0 when the kernel said that no child is left."""

    exit_code: int | None
    killed_for: str | None
    survivors: int
    leftovers: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    kill_seconds: float
    status: Mapping[str, Any]


class _Keeper:
    """One keeper process and the owner's end of its socket."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        argv = [sys.executable, "-I", "-S", "-c", _BOOT, _ROOT, str(theirs.fileno())]
        try:
            self.process = subprocess.Popen(
                argv,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = Channel(ours)

    def close(self) -> None:
        """Let it go: at the end of the file it ends its tree and itself."""
        self.channel.close()


class _Nursery:
    """The idle keepers, and the one thread that starts new ones."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[_Keeper] = []
        self._ended: list[_Keeper] = []
        self._orders: queue.SimpleQueue[asyncio.Future[_Keeper]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def take(self) -> _Keeper:
        """Give an idle keeper, or a new one."""
        with self._lock:
            while self._idle:
                keeper = self._idle.pop()
                if keeper.process.poll() is None:
                    return keeper
                self._ended.append(keeper)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="proctor-keepers", daemon=True)
                self._thread.start()
        order: asyncio.Future[_Keeper] = asyncio.get_running_loop().create_future()
        self._orders.put(order)
        try:
            return await asyncio.wait_for(asyncio.shield(order), _START_SECONDS)
        except (TimeoutError, asyncio.CancelledError):
            order.add_done_callback(self._not_wanted)
            raise

    def _not_wanted(self, order: asyncio.Future[_Keeper]) -> None:
        if not order.cancelled() and order.exception() is None:
            self.give_back(order.result())

    def give_back(self, keeper: _Keeper) -> None:
        """Keep an idle one for the next run, up to a number."""
        with self._lock:
            if len(self._idle) < _IDLE_KEEPERS:
                self._idle.append(keeper)
                return
        self.drop(keeper)

    def drop(self, keeper: _Keeper) -> None:
        """End a keeper and bury it when it is dead."""
        keeper.close()
        with self._lock:
            self._ended = [ended for ended in [*self._ended, keeper] if ended.process.poll() is None]

    def close_idle(self) -> None:
        """End the idle keepers and wait for them."""
        with self._lock:
            idle, self._idle = self._idle, []
            ended, self._ended = self._ended, []
        for keeper in idle:
            keeper.close()
        for keeper in [*idle, *ended]:
            keeper.process.wait(timeout=15)

    def _serve(self) -> None:
        while True:
            order = self._orders.get()
            try:
                keeper = _Keeper()
            except OSError as error:
                _settle(order, None, error)
            else:
                if not _settle(order, keeper, None):
                    self.give_back(keeper)


def _settle(order: asyncio.Future[_Keeper], keeper: _Keeper | None, error: OSError | None) -> bool:
    """Answer an order from the keepers' thread; False when its loop has gone meanwhile."""

    def answer() -> None:
        if order.done():
            if keeper is not None:
                _nursery().give_back(keeper)
        elif keeper is not None:
            order.set_result(keeper)
        else:
            order.set_exception(
                UnavailableError(what="A keeper process", reason=str(error), cure="Free some memory.")
            )

    try:
        order.get_loop().call_soon_threadsafe(answer)
    except RuntimeError:
        return False
    return True


_current = _Nursery()


def _nursery() -> _Nursery:
    """The nursery of this process; a forked child must not talk to its parent's keepers."""
    global _current  # noqa: PLW0603 - one per process, made anew after a fork
    if _current.owner != os.getpid():
        _current = _Nursery()
    return _current


def close_idle_keepers() -> None:
    """End idle keepers now; those at work end with their trees, and all end with this process."""
    _nursery().close_idle()


class Tree:
    """A running tree. Whoever holds it must await `wait()` or `end()`; both give its keeper back."""

    def __init__(self, keeper: _Keeper, job: Job) -> None:
        self._keeper = keeper
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[Identity] = self._loop.create_future()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._done: asyncio.Future[Ending] = self._loop.create_future()
        self.identity = Identity(0, 0, "")

    @property
    def pid(self) -> int:
        """The number of the leader: the program itself, or its wrapper."""
        return self.identity.pid

    async def exited(self) -> int:
        """Wait for the leader's exit code; children may still be ending."""
        return await asyncio.shield(self._exited)

    async def wait(self) -> Ending:
        """Wait until nobody is left of the tree. Cancelling the waiter does not end it; `end()` does."""
        return await asyncio.shield(self._done)

    async def end(self, why: str = "cancelled", *, grace: float = 5.0) -> Ending:
        """TERM to everybody, after the grace KILL, and wait until nobody is left."""
        self.ask_to_end(why, grace=grace)
        return await self.wait()

    async def gone(self) -> None:
        """End whatever is left, at once, and wait for it even while the caller is being cancelled."""
        interrupted = False
        until = self._loop.time() + _END_SECONDS
        self.ask_to_end("cancelled", grace=0.0)
        while not self._done.done():
            try:
                await asyncio.wait([self._done], timeout=max(0.1, until - self._loop.time()))
            except asyncio.CancelledError:
                interrupted = True
            if self._loop.time() > until:
                self.abandon()
                until += _END_SECONDS
        if interrupted:
            raise asyncio.CancelledError

    def abandon(self) -> None:
        """Give up on a keeper that does not answer: it is killed, and its tree is ended by its mark."""
        self._keeper.process.kill()

    def ask_to_end(self, why: str = "cancelled", *, grace: float = 5.0) -> None:
        """The same without waiting."""
        self._tell({"op": "stop", "why": why, "grace": grace})

    def signal(self, number: int) -> None:
        """Send a signal to the leader."""
        self._tell({"op": "signal", "signal": int(number)})

    def _tell(self, message: dict[str, Any]) -> None:
        if self._done.done():
            return
        try:
            self._keeper.channel.send(message)
        except OSError:
            return  # the reader sees the end of the file and settles everything

    def _begin(self, fds: list[int]) -> None:
        job = self._job
        message: dict[str, Any] = {
            "op": "start",
            "argv": list(job.argv),
            "cwd": job.cwd,
            "env": dict(job.env),
        }
        message |= {"limits": {name: getattr(job.limits, name) for name in TreeLimits.__dataclass_fields__}}
        message |= {"rlimits": dict(job.rlimits), "no_new_privs": job.no_new_privs, "wrappers": job.wrappers}
        message |= {
            "landlock": job.landlock and dict(job.landlock),
            "wrapper_fds": dict(job.wrapper_fds),
            "cgroup": job.cgroup,
            "temporary": job.temporary,
            "quiet": job.quiet,
        }
        message["extra_fds"] = list(range(3, len(fds)))
        self._keeper.channel.send(message, fds)
        self._loop.add_reader(self._keeper.channel.socket.fileno(), self._hear)

    def _hear(self) -> None:
        try:
            messages = self._keeper.channel.receive()
        except OSError:
            messages = None
        if messages is None:
            self._lost()
            return
        for message, _fds in messages:
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if message["ev"] == "started":
            self.identity = Identity(message["pid"], message["start_time"], procfs.boot_id())
            _resolve(self._started, self.identity)
        elif message["ev"] == "exit":
            _resolve(self._exited, message["code"])
        elif message["ev"] == "failed":
            self._release(reuse=True)
            cure = "Check the spelling and the PATH." if message["errno"] == 2 else "See `proctor doctor`."
            facts = {
                "program": self._job.argv[0],
                "stage": message["stage"],
                "text": message["text"],
                "cure": cure,
            }
            self._fail(NotStartedError(**facts))
        elif message["ev"] == "done":
            self._end(message)

    def _end(self, message: dict[str, Any]) -> None:
        self._release(reuse=message["survivors"] == 0)
        message = {key: value for key, value in message.items() if key != "ev"}
        ending = Ending(exit_code=message.pop("code"), **message)
        _resolve(self._exited, 128 + 9 if ending.exit_code is None else ending.exit_code)
        _resolve(self._done, ending)

    def _lost(self) -> None:
        """The keeper was killed: find by its mark what it kept, end that, and say so."""
        self._release(reuse=False)
        mark = self._job.env.get(MARK)
        self._fail(KeeperLostError(found=len(end_marked(mark)) if mark else 0))

    def _release(self, *, reuse: bool) -> None:
        self._loop.remove_reader(self._keeper.channel.socket.fileno())
        (_nursery().give_back if reuse else _nursery().drop)(self._keeper)

    def _fail(self, error: ProctorError) -> None:
        for future in (self._started, self._exited, self._done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits gets it; whoever does not, needs no warning


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


async def start(job: Job, *, stdin: int, stdout: int, stderr: int, extra: Sequence[int] = ()) -> Tree:
    """Start a tree on these descriptors (`extra` becomes 3, 4, …); the caller still closes its own copies.

    When the caller is cancelled meanwhile, the tree is ended before the cancellation goes on.
    """
    keeper = await _nursery().take()
    tree = Tree(keeper, job)
    try:
        tree._begin([stdin, stdout, stderr, *extra])
    except OSError as error:
        _nursery().drop(keeper)
        facts = {
            "program": job.argv[0],
            "stage": "send",
            "text": str(error),
            "cure": "Make the command shorter.",
        }
        raise NotStartedError(**facts) from None
    try:
        if not job.quiet:
            await asyncio.shield(tree._started)
    except asyncio.CancelledError:
        await tree.gone()
        raise
    return tree


def end_marked(run_id: str, *, rounds: int = 20) -> list[int]:
    """Kill every process that carries the mark of a run; best effort, for runs whose keeper is gone."""
    ended: list[int] = []
    for _ in range(rounds):
        found = [pid for pid in procfs.marked(f"{MARK}={run_id}") if pid != os.getpid()]
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, 9)
            except (ProcessLookupError, PermissionError):
                continue
        ended += [pid for pid in found if pid not in ended]
    return ended
