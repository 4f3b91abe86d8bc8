"""An agent's program under a keeper of the sandbox, spoken to by pipes, gone with its tree when the block is left.

A `Kept` process is held until `start`, so that its identity can be written down first. Output flows by pipes
(stdout with back-pressure, stderr drained into a capped tail); its end is told by the keeper, never by a pipe
that a grandchild may hold open.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.agents.lines import Tail
from proctor.sandbox.identity import MARK, ProcessIdentity
from proctor.sandbox.process import Job, KeeperLostError, NotStartedError, Tree, TreeLimits, hold

__all__ = ["Command", "Exit", "Kept", "keep"]

DRAIN_S = 2.0  # how long we still wait for output when the tree has ended and somebody holds the pipe
LATE_BYTES = 4 << 20  # what may be read after the end: more than the pipe and our own buffer hold
BUFFER = 1 << 20


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
    limit: str = ""
    """The limit of the whole tree for which it was killed: memory or processes."""


class _Drain(asyncio.Protocol):
    """Reads a pipe to its end so that the writer never blocks; keeps only a tail."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail

    def data_received(self, data: bytes) -> None:
        self._tail.feed(data)


class Kept:
    """One process under its keeper. Made by `keep`."""

    def __init__(self, tree: Tree) -> None:
        self.stderr = Tail()
        self._tree = tree
        self._stdout = asyncio.StreamReader(limit=BUFFER)
        self._stdin: asyncio.WriteTransport | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self._given: list[int] = []  # the child's ends: of stdin, stdout and stderr
        self._error = ""
        self._over = False
        self._late = 0
        self._patience: asyncio.Timeout | None = None
        tree.when_done(self._end_soon)

    @property
    def identity(self) -> ProcessIdentity:
        """Who to look for after a crash."""
        return self._tree.identity

    async def attach(self) -> None:
        """Make the pipes and connect our ends to the running loop."""
        loop = asyncio.get_running_loop()
        theirs, ours = os.pipe()
        self._given.append(theirs)
        self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(ours, "wb", 0))
        self._transports.append(self._stdin)
        await self._attach_output(lambda: asyncio.StreamReaderProtocol(self._stdout))
        await self._attach_output(lambda: _Drain(self.stderr))

    async def _attach_output(self, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        ours, theirs = os.pipe()
        self._given.append(theirs)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(protocol, os.fdopen(ours, "rb", 0))
        self._transports.append(transport)

    async def start(self, command: Command, limits: TreeLimits | None = None) -> str:
        """Release the process, once; the reason why it could not be started, or nothing."""
        if self._given:
            self._error = await self._release(command, limits or TreeLimits())
        return self._error

    async def _release(self, command: Command, limits: TreeLimits) -> str:
        env = {**command.env, MARK: self.identity.mark}
        job = Job(
            command.argv,
            str(command.cwd),
            env,
            limits=limits,
            rlimits={"RLIMIT_CORE": 0},  # no image of its memory among its work
            no_new_privs=False,
        )
        stdin, stdout, stderr = self._given
        try:
            await self._tree.start(job, stdin=stdin, stdout=stdout, stderr=stderr)
        except NotStartedError as error:
            return _reason(error)
        except KeeperLostError:
            return ""  # killed, which is an end and not a failure to start
        finally:
            self._close_given()
        if command.stdin:
            self.write(command.stdin)
        if not command.keep_stdin:
            self.end_input()
        return ""

    async def read(self) -> bytes:
        """Give the next output; nothing at the end, which comes soon after the tree's whoever holds the pipe."""
        try:
            async with asyncio.timeout(DRAIN_S if self._over else None) as self._patience:
                chunk = await self._stdout.read(1 << 18)
        except TimeoutError:
            return b""
        finally:
            self._patience = None
        self._late += len(chunk) if self._over else 0
        return chunk if self._late <= LATE_BYTES else b""

    def _end_soon(self) -> None:
        self._over = True
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time() + DRAIN_S)

    def write(self, data: bytes) -> None:
        """Put something on the standard input; dropped when the process has closed it."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    def end_input(self) -> None:
        """Close the standard input once everything is written."""
        if self._stdin is not None:
            self._stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Signal the process itself; before its start it never runs."""
        self._tree.signal(number)

    def stop(self, grace_s: float) -> None:
        """SIGTERM to the whole tree now, killed after the grace; before its start it never runs."""
        self._tree.ask_to_end("stopped", grace=grace_s)

    async def wait(self) -> Exit:
        """Wait until the whole tree has ended."""
        try:
            ending = await self._tree.wait()
        except NotStartedError as error:
            return Exit(None, error=_reason(error))
        except KeeperLostError:
            return Exit(None)
        limit = ending.killed_for if ending.killed_for in {"memory", "processes"} else None
        return Exit(ending.exit_code, ending.survivors, limit=limit or "")

    async def close(self) -> None:
        """End the tree if it still lives and give everything back; complete even when cancelled half-way."""
        try:
            await self._tree.gone()
        finally:
            for transport in self._transports:
                transport.close()
            self._close_given()

    def _close_given(self) -> None:
        given, self._given = self._given, []
        for number in given:
            os.close(number)


def _reason(error: NotStartedError) -> str:
    facts: dict[str, Any] = error.facts
    return f"{facts['text']}. {facts['cure']}"


@asynccontextmanager
async def keep(mark: str | None = None) -> AsyncIterator[Kept]:
    """Hold a process ready; `start` releases it, leaving the block ends its tree."""
    kept = Kept(await hold(mark or secrets.token_hex(8)))
    try:
        await kept.attach()
        yield kept
    finally:
        await kept.close()
