"""A child process with its tree: spawned through a keeper from one long-lived thread, gone when the block
is left.

PDEATHSIG follows the spawning thread, so all keepers come from the one thread of `Spawner`. A `Kept`
process is held until `start`; output flows by pipes (stdout with back-pressure, stderr drained into a
capped tail), its end is known from the control socket, never from a pipe that a grandchild may hold open.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.agents import keeper
from proctor.agents.identity import MARK, ProcessIdentity, find_and_kill
from proctor.agents.lines import LineSplitter, Tail

__all__ = ["Command", "Exit", "Kept", "Spawner", "keep"]

CLOSE_S = keeper.PATIENCE_S + 5.0
DRAIN_S = 2.0  # how long output may still come after the tree has ended


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. The environment is complete: nothing is inherited."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    keep_stdin: bool = False
    """Leave standard input open for `write`; otherwise it ends after `stdin`."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process ended: its code (negative: a signal), or None when it never ran or its keeper was
    killed.
    """

    code: int | None
    left: int = 0
    error: str = ""


class Spawner:
    """The one thread of this process that starts children and collects the dead ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._dying: list[tuple[subprocess.Popen[bytes], Future[None]]] = []
        self._pid = 0

    def spawn(self, argv: list[str], **options: Any) -> Future[subprocess.Popen[bytes]]:
        """Start a child from the thread."""
        return self._submit(lambda: subprocess.Popen(argv, **options))

    def reap(self, child: subprocess.Popen[bytes]) -> Future[None]:
        """Collect a child that is about to end, so that no zombie stays; done when it is gone."""
        gone: Future[None] = Future()
        self._submit(lambda: self._dying.append((child, gone)))
        return gone

    def _submit(self, job: Callable[[], Any]) -> Future[Any]:
        self._ensure()
        future: Future[Any] = Future()
        self._jobs.put((future, job))
        return future

    def _ensure(self) -> None:
        with self._lock:
            if self._pid != os.getpid():  # also after a fork, which does not copy threads
                self._pid = os.getpid()
                threading.Thread(target=self._loop, name="proctor-spawner", daemon=True).start()

    def _loop(self) -> None:
        while True:
            with contextlib.suppress(queue.Empty):
                self._do(*self._jobs.get(timeout=0.005 if self._dying else None))
            self._dying = [(child, gone) for child, gone in self._dying if not self._collect(child, gone)]

    @staticmethod
    def _collect(child: subprocess.Popen[bytes], gone: Future[None]) -> bool:
        if child.poll() is None:
            return False
        if gone.set_running_or_notify_cancel():
            gone.set_result(None)
        return True

    @staticmethod
    def _do(future: Future[Any], job: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(job())
        except OSError as error:
            future.set_exception(error)


SPAWNER = Spawner()


class _Control(asyncio.Protocol):
    """The parent's end of the control socket."""

    def __init__(self, on_gone: Callable[[], object]) -> None:
        self._on_gone = on_gone
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.exit = Exit(None)
        self._lines = LineSplitter(1 << 20)
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            message = json.loads(line.text)
            if "exit" in message:
                self.exit = Exit(message["exit"], message["left"])
            elif "error" in message:
                self.exit = Exit(None, error=message["error"])
            self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        self.gone.set()
        self._on_gone()

    def _settle(self) -> None:
        if not self.started.done():
            self.started.set_result(None)

    def tell(self, message: dict[str, Any]) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(json.dumps(message).encode() + b"\n")


class _Drain(asyncio.Protocol):
    """Reads a pipe to its end so that the writer never blocks; keeps only a tail."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail

    def data_received(self, data: bytes) -> None:
        self._tail.feed(data)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Our ends of the four channels."""

    control: socket.socket
    stdin: int
    stdout: int
    stderr: int


class Kept:
    """One process under its keeper. Made by `keep`."""

    def __init__(self, child: subprocess.Popen[bytes], mark: str, ends: _Ends) -> None:
        self.identity = ProcessIdentity.of(child.pid, mark)
        self.stderr = Tail()
        self._child = child
        self._ends = ends
        self._stdout = asyncio.StreamReader(limit=1 << 20)
        self._transports: list[asyncio.BaseTransport] = []
        self._control = _Control(self._limit_drain)
        self._stdin: asyncio.WriteTransport | None = None

    async def attach(self) -> None:
        """Connect our ends to the running loop."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_unix_connection(lambda: self._control, sock=self._ends.control)
        self._transports.append(transport)
        for factory, number in (
            (lambda: asyncio.StreamReaderProtocol(self._stdout), self._ends.stdout),
            (lambda: _Drain(self.stderr), self._ends.stderr),
        ):
            reading, _ = await loop.connect_read_pipe(factory, os.fdopen(number, "rb", 0))
            self._transports.append(reading)
        writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(self._ends.stdin, "wb", 0))
        self._transports.append(writing)
        self._stdin = writing

    async def start(self, command: Command) -> str:
        """Release the process; the reason why it could not be started, or nothing."""
        env = {**command.env, MARK: self.identity.mark}
        self._control.tell({"argv": list(command.argv), "cwd": str(command.cwd), "env": env})
        await asyncio.shield(self._control.started)
        if command.stdin:
            self.write(command.stdin)
        if not command.keep_stdin:
            self.end_input()
        return self._control.exit.error

    async def read(self) -> bytes:
        """Give the next output; nothing at the end."""
        return await self._stdout.read(1 << 18)

    def _limit_drain(self) -> None:
        """End the output soon after the tree, also when a process that could not be killed holds the pipe."""
        asyncio.get_running_loop().call_later(DRAIN_S, self._stdout.feed_eof)

    def write(self, data: bytes) -> None:
        """Put something on the standard input; dropped when the process has closed it."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    def end_input(self) -> None:
        """Close the standard input once everything is written."""
        if self._stdin is not None:
            self._stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Signal the process itself."""
        self._control.tell({"signal": int(number)})

    def stop(self, grace_s: float) -> None:
        """SIGTERM now, the whole tree killed after the grace."""
        self._control.tell({"stop": grace_s})

    def kill(self) -> None:
        """Kill the whole tree now."""
        self._control.tell({"kill": True})

    async def wait(self) -> Exit:
        """Wait until the whole tree has ended."""
        await self._control.gone.wait()
        if self._control.exit == Exit(None):
            # Somebody killed the keeper; what carries its mark is found by a scan instead.
            await asyncio.to_thread(find_and_kill, self.identity)
        return self._control.exit

    async def close(self) -> None:
        """End the tree if it still lives and give everything back; complete even when cancelled half-way."""
        try:
            self.kill()
            async with asyncio.timeout(CLOSE_S):
                await self._control.gone.wait()
        except TimeoutError:
            self._child.kill()
        finally:
            for transport in self._transports:
                transport.close()
            gone = SPAWNER.reap(self._child)
        await asyncio.wrap_future(gone)


@asynccontextmanager
async def keep(mark: str | None = None) -> AsyncIterator[Kept]:
    """Hold a process ready; `start` releases it, leaving the block ends its tree."""
    mark = mark or secrets.token_hex(8)
    kept = await _spawn(mark)
    try:
        await kept.attach()
        yield kept
    finally:
        await kept.close()


async def _spawn(mark: str) -> Kept:
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        ends, given = _channels(ours, theirs)
        stdin, stdout, stderr, control = given
        future = SPAWNER.spawn(
            [sys.executable, "-I", "-S", keeper.__file__, str(control)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(control,),
            start_new_session=True,
            cwd="/",
        )
        # Should we be cancelled here, the keeper finds its control socket closed and ends by itself.
        ours.callback(future.add_done_callback, _reap_late)
        child = await asyncio.wrap_future(future)
        ours.pop_all()
        return Kept(child, mark, ends)


def _channels(
    ours: contextlib.ExitStack, theirs: contextlib.ExitStack
) -> tuple[_Ends, tuple[int, int, int, int]]:
    """Open control socket and pipes; each stack closes one side."""
    control, keepers = socket.socketpair()
    control.setblocking(False)
    ours.callback(control.close)
    theirs.callback(keepers.close)
    pipes = [os.pipe() for _ in range(3)]
    (child_in, stdin), (stdout, child_out), (stderr, child_err) = pipes
    for number in (stdin, stdout, stderr):
        ours.callback(os.close, number)
    for number in (child_in, child_out, child_err):
        theirs.callback(os.close, number)
    return _Ends(control, stdin, stdout, stderr), (child_in, child_out, child_err, keepers.fileno())


def _reap_late(future: Future[subprocess.Popen[bytes]]) -> None:
    if not future.cancelled() and future.exception() is None:
        SPAWNER.reap(future.result())
