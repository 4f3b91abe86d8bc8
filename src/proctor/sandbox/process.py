"""A process tree under its keeper: hold, start, wait, signal, end. For commands and for agents alike.

Every tree has a keeper of its own while it runs. `start` is for those who only want the tree to run. `hold` is
for those who must write its identity down before anything of it runs; such a keeper is never used again,
because whoever reads that identity later may kill it.
This module does not confine and asks for no permit: `run.run` and the agents' drivers do that before.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.protocol.errors import ProctorError, UnavailableError
from proctor.sandbox.identity import MARK, ProcessIdentity, boot, find_and_kill
from proctor.sandbox.nursery import KeeperProcess, close_idle_keepers, nursery
from proctor.sandbox.wire import PLAIN

__all__ = [
    "Ending",
    "Job",
    "KeeperLostError",
    "NotStartedError",
    "Tree",
    "TreeLimits",
    "close_idle_keepers",
    "hold",
    "start",
]

_END_SECONDS = 30.0
_WATCHED = {"memory": "memory_mb", "cpu": "cpu_percent", "processes": "processes"}


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
    keeper: str = PLAIN  # which kind must keep it (see `wire.py`)
    listen: int | None = None  # the port in that network on which our proxy is to be found
    held: Mapping[str, str] = field(
        default_factory=dict
    )  # who keeps each limit; `polled` ones the keeper may better
    quiet: bool = False  # tell only the end: for those who do not wait until the program runs

    def message(self, extra: int) -> dict[str, Any]:
        """The order to the keeper, with this many descriptors beyond the three streams."""
        limits = {name: getattr(self.limits, name) for name in TreeLimits.__dataclass_fields__}
        watched = {name: "polled" for name, key in _WATCHED.items() if limits[key] is not None}
        return {
            "op": "start",
            "argv": list(self.argv),
            "cwd": self.cwd,
            "env": dict(self.env),
            "limits": limits,
            "rlimits": dict(self.rlimits),
            "no_new_privs": self.no_new_privs,
            "landlock": self.landlock and dict(self.landlock),
            "wrappers": self.wrappers,
            "wrapper_fds": dict(self.wrapper_fds),
            "cgroup": self.cgroup,
            "temporary": self.temporary,
            "keeper": self.keeper,
            "listen": self.listen,
            "held": watched | dict(self.held),
            "quiet": self.quiet,
            "extra_fds": list(range(3, 3 + extra)),
        }


@dataclass(frozen=True, slots=True)
class Ending:
    """How a tree ended. `survivors` is 0 when the kernel said that no child is left."""

    exit_code: int | None  # of the leader; negative: a signal; None: it never ran or would not die
    killed_for: str | None
    survivors: int = 0
    leftovers: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    status: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)  # who kept each limit: cgroup, rlimit or polled


class Tree:
    """A tree before, while and after it runs. Whoever holds it must await `gone()` at the end."""

    def __init__(self, keeper: KeeperProcess, mark: str, *, once: bool) -> None:
        self.identity = ProcessIdentity(keeper.process.pid, keeper.start_time, boot(), mark)
        self._keeper = keeper
        self._once = once
        self._job: Job | None = None
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._done: asyncio.Future[Ending] = self._loop.create_future()
        self._door: asyncio.Future[socket.socket] = self._loop.create_future()

    async def start(
        self, job: Job, *, stdin: int, stdout: int, stderr: int, extra: Sequence[int] = ()
    ) -> None:
        """Release it on these descriptors (`extra` becomes 3, 4, …); the caller still closes its own copies.

        Does nothing when it was ended before. When the caller is cancelled meanwhile, the tree is ended first.
        """
        if self._done.done():
            return
        self._job = job
        self._loop.add_reader(self._keeper.channel.socket.fileno(), self._hear)
        try:
            self._keeper.channel.send(job.message(len(extra)), [stdin, stdout, stderr, *extra])
        except OSError as error:
            await self._unsent(error)
        try:
            if not job.quiet:
                await asyncio.shield(self._started)
        except asyncio.CancelledError:
            await self.gone()
            raise

    async def wait(self) -> Ending:
        """Wait until nobody is left of the tree. Cancelling the waiter does not end it; `gone()` does."""
        return await asyncio.shield(self._done)

    async def door(self) -> socket.socket | None:
        """The socket on which the tree's proxy is expected, for the caller to close; None when the tree is gone."""
        either: list[asyncio.Future[Any]] = [self._door, self._done]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return self._door.result() if self._door.done() else None

    def when_done(self, tell: Callable[[], object]) -> None:
        """Call back once nobody is left of the tree."""
        self._done.add_done_callback(lambda _: tell())

    async def gone(self) -> None:
        """End whatever is left, at once, and wait for it even while the caller is being cancelled."""
        self.ask_to_end("cancelled", grace=0.0)
        interrupted = await self._through(self._done, self.abandon)
        if self._door.done():
            self._door.result().close()
        if self._once:
            burial = self._loop.run_in_executor(None, self._keeper.bury)
            interrupted |= await self._through(burial, self.abandon)
        if interrupted:
            raise asyncio.CancelledError

    async def _through(self, end: asyncio.Future[Any], late: Callable[[], None]) -> bool:
        """Wait for an end through every cancellation; say whether there was one."""
        interrupted = False
        until = self._loop.time() + _END_SECONDS
        while not end.done():
            try:
                await asyncio.wait([end], timeout=max(0.1, until - self._loop.time()))
            except asyncio.CancelledError:
                interrupted = True
            if self._loop.time() > until:
                late()
                until += _END_SECONDS
        return interrupted

    def abandon(self) -> None:
        """Give up on a keeper that does not answer: it is killed, and its tree is ended by its mark."""
        self._keeper.process.kill()

    def ask_to_end(self, why: str = "cancelled", *, grace: float = 5.0) -> None:
        """TERM to everybody, after the grace KILL; what has not been started never will be."""
        self._tell({"op": "stop", "why": why, "grace": grace})

    def signal(self, number: int) -> None:
        """Send a signal to the leader; what has not been started never will be."""
        self._tell({"op": "signal", "signal": int(number)})

    def _tell(self, message: dict[str, Any]) -> None:
        if self._done.done():
            return
        if self._job is None:
            self._release(reuse=True)
            self._done.set_result(Ending(None, message.get("why", "signal")))
            return
        try:
            self._keeper.channel.send(message)
        except OSError:
            return  # the reader sees the end of the file and settles everything

    async def _unsent(self, error: OSError) -> None:
        """Say why the order did not reach the keeper: it was too long, or the keeper is dead."""
        if error.errno == errno.E2BIG:
            self._release(reuse=False)
            self._fail(self._not_started("send", str(error), "Make the command shorter."))
        else:
            self._lost()
        await self.wait()

    def _hear(self) -> None:
        try:
            messages = self._keeper.channel.receive()
        except OSError:
            messages = None
        if messages is None:
            self._lost()
            return
        for message, fds in messages:
            self._take(message, fds)

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
        event = message.pop("ev")
        if event == "listening":
            self._door.set_result(socket.socket(fileno=fds[0]))
        elif event == "started":
            self._started.set_result(None)
        elif event == "failed":
            self._release(reuse=True)
            cure = "Check the spelling and the PATH." if message["errno"] == 2 else "See `proctor doctor`."
            self._fail(self._not_started(message["stage"], message["text"], cure))
        elif event == "done":
            self._release(reuse=message["survivors"] == 0)
            self._done.set_result(Ending(exit_code=message.pop("code"), **message))

    def _not_started(self, stage: str, text: str, cure: str) -> NotStartedError:
        assert self._job is not None
        return NotStartedError(program=self._job.argv[0], stage=stage, text=text, cure=cure)

    def _lost(self) -> None:
        """The keeper was killed: find by its mark what it kept, end that, and say so."""
        self._release(reuse=False)
        self._loop.run_in_executor(None, find_and_kill, self.identity).add_done_callback(self._searched)

    def _searched(self, search: asyncio.Future[int]) -> None:
        failed = search.cancelled() or search.exception() is not None
        self._fail(KeeperLostError(found=0 if failed else search.result()))

    def _release(self, *, reuse: bool) -> None:
        self._loop.remove_reader(self._keeper.channel.socket.fileno())
        (nursery().give_back if reuse and not self._once else nursery().drop)(self._keeper)

    def _fail(self, error: ProctorError) -> None:
        for future in (self._started, self._done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits gets it; whoever does not, needs no warning


async def hold(mark: str) -> Tree:
    """Hold a tree ready: it has an identity, and nothing of it runs before its `start`."""
    return Tree(await nursery().take(), mark, once=True)


async def start(job: Job, *, stdin: int, stdout: int, stderr: int, extra: Sequence[int] = ()) -> Tree:
    """Start a tree at once; see `Tree.start`."""
    tree = Tree(await nursery().take(job.keeper), job.env.get(MARK, ""), once=False)
    await tree.start(job, stdin=stdin, stdout=stdout, stderr=stderr, extra=extra)
    return tree
