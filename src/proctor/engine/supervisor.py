"""The supervisor: the one background process per user and state that executes (`proctor supervisor`, started on demand).

A lock makes it the only one; a unix socket lets commands wake, ask and stop it; it leaves when there is nothing to do. Its
doors (HTTP) open once it executes, and trouble with them never ends what it executes.
`proctor worker` runs the same loop in the foreground, without lock and socket, any number of them on one PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loguru import logger

from proctor import __version__
from proctor.engine.address import bind
from proctor.engine.executor import Executor
from proctor.protocol.errors import ProctorError
from proctor.protocol.events import Draft, EventStatus
from proctor.protocol.ports import Doors
from proctor.trace.writer import TraceWriter
from proctor.workspace.locks import try_lock

__all__ = ["IDLE_SECONDS", "Supervisor", "log_to", "only_one"]

IDLE_SECONDS = 600.0
IDLE_LOOK_SECONDS = 5.0
MAX_REQUEST = 65_536
REQUEST_SECONDS = 10.0
# Opening doors imports a web framework: what the supervisor was started for goes first, unless somebody asks for them.
DOORS_SECONDS = 2.0
# One trace for what happens to executors themselves.
TRACE = "supervisor"


class Supervisor:
    """Runs executors one after another (a lost lease ends one) until stopped or idle for long."""

    def __init__(
        self,
        make: Callable[[], Executor],
        writer: TraceWriter,
        *,
        kind: str = "supervisor",
        idle_s: float | None = IDLE_SECONDS,
        doors: Doors | None = None,
        at_once: bool = False,
    ) -> None:
        self._doors = doors
        self._at_once = at_once
        self._no_doors = ""
        self._wanted = asyncio.Event()
        self._ready = asyncio.Event()
        self._make = make
        self._writer = writer
        self._kind = kind
        self._idle = idle_s
        self._executor: Executor | None = None
        self._stopping = False
        self.replaced = False
        """Whether it was asked to leave for another version: a service begins again, with what is installed now."""
        self._lived = False
        self._started = datetime.now(UTC)
        self._used = time.monotonic()

    async def run(self) -> None:
        """Execute until told to stop; comes back with a new lease when one was lost."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        async with asyncio.TaskGroup() as group:
            idle = group.create_task(self._leave_when_idle())
            opening = group.create_task(self._open(self._doors)) if self._doors is not None else None
            try:
                while not self._stopping:
                    await self._execute_or_wait()
            finally:
                idle.cancel()
                if opening is not None:
                    self._close_doors()

    async def _open(self, doors: Doors) -> None:
        """Keep the doors open until they are closed; in the foreground they are what it was started for."""
        if not self._at_once:
            await self._ready.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), 0.0 if self._at_once else DOORS_SECONDS)
        try:
            await doors.run(self.wake)
        except Exception as error:
            if self._at_once:
                raise
            self._no_doors = f"{type(error).__name__}: {error}"[:300]
            logger.error("no HTTP port: {!r}", error)

    def _close_doors(self) -> None:
        self._wanted.set()
        self._ready.set()
        if self._doors is not None:
            self._doors.close()

    async def _execute_or_wait(self) -> None:
        """Whoever has lived comes back: a database that is away for long ends the executor, not the supervisor."""
        try:
            await self._execute()
        except Exception as error:
            if not self._lived:
                raise
            logger.error("beginning anew in a second: {!r}", error)
            await asyncio.sleep(1.0)

    def _alive(self) -> None:
        self._lived = True
        self._ready.set()
        if self._executor is not None:
            logger.info("executor {} is ready", self._executor.executor_id)

    async def _execute(self) -> None:
        executor = self._executor = self._make()
        await self._tell("supervisor_started")
        await executor.run(ready=self._alive)
        if executor.lost and not self._stopping:
            logger.error("executor {} cannot go on; beginning anew", executor.executor_id)
            await asyncio.sleep(1.0)
            return
        self._stopping = True
        await self._tell("supervisor_stopped")

    async def _tell(self, event: str) -> None:
        details = {"kind": self._kind, "pid": os.getpid(), "version": __version__}
        if self._executor is not None:
            details["executor"] = self._executor.executor_id
        draft = Draft(trace_id=TRACE, event=event, status=EventStatus.SUCCESS, details=details)
        await self._writer.append_async([draft])

    def stop(self) -> None:
        """Leave in order: no new requests, then no agents."""
        self._stopping = True
        self._close_doors()
        if self._executor is not None:
            self._executor.stop()

    def wake(self) -> None:
        """Look now, and stay a while."""
        self._used = time.monotonic()
        if self._executor is not None:
            self._executor.wake()

    async def _leave_when_idle(self) -> None:
        while self._idle is not None and not self._stopping:
            await asyncio.sleep(min(IDLE_LOOK_SECONDS, self._idle))
            watched = self._doors is not None and self._doors.busy
            if watched or self._executor is None or not await self._quiet(self._executor):
                self._used = time.monotonic()
            elif time.monotonic() - self._used > self._idle:
                logger.info("nothing to do for {:.0f} s; leaving", self._idle)
                self.stop()

    async def _quiet(self, executor: Executor) -> bool:
        try:
            return await executor.idle()
        except ProctorError as error:
            logger.error("cannot see whether there is work: {}", error)
            return False

    # The socket

    async def serve(self, path: Path) -> None:
        """Run behind the user's socket."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)  # we hold the lock: whoever made it is gone
        server = await asyncio.start_unix_server(self._connected, sock=bind(path), limit=MAX_REQUEST)
        try:
            async with server:
                await self.run()
        finally:
            path.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; whatever comes, the supervisor goes on."""
        try:
            line = await asyncio.wait_for(reader.readline(), REQUEST_SECONDS)
            answer = await self._answer(json.loads(line))
            writer.write(json.dumps(answer).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), REQUEST_SECONDS)
        except Exception as error:  # noqa: BLE001 - request handler: one caller's mistake is its own
            logger.warning("a request was not understood: {!r}", error)
        finally:
            writer.close()

    async def _answer(self, request: Any) -> dict[str, Any]:
        op = request.get("op") if isinstance(request, dict) else None
        if op == "wake":
            self.wake()
            return {"ok": not self._stopping}
        if op == "stop":
            self.replaced = request.get("for") not in {None, __version__}
            self.stop()
            return {"ok": True}
        if op == "hello":
            if request.get("doors") is True:
                self._wanted.set()
                self._used = time.monotonic()
            running = list(self._executor.attempts.running) if self._executor is not None else []
            return {
                "pid": os.getpid(),
                "version": __version__,
                "executor_id": self._executor.executor_id if self._executor is not None else "",
                "started_at": self._started.isoformat(),
                "running": running,
                "leaving": self._stopping,
                "http": self._doors.http if self._doors is not None else "",
                "no_http": self._no_doors,
                "serves": self._at_once,
            }
        if op == "gc":
            return await self._forget(int(request.get("before_ms", 0)), int(request.get("keep", 0)))
        return {"error": f"unknown request {op!r}; known: hello, wake, stop, gc"}

    async def _forget(self, before_ms: int, keep: int) -> dict[str, Any]:
        """Delete the engine's records of ended attempts, for `proctor gc`."""
        if self._executor is None:
            return {"error": "it has just begun; try again"}
        self._used = time.monotonic()
        return {"forgotten": await self._executor.forget(before_ms=before_ms, keep=keep)}


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[bool]:
    """Hold the lock of this state; False when another supervisor has it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield try_lock(handle)
    finally:
        os.close(handle)


def log_to(path: Path, level: str) -> None:
    """Send the log to a file that rotates: five of 10 MB."""
    logger.remove()
    logger.add(path, level=level, rotation="10 MB", retention=5, encoding="utf-8", diagnose=False, catch=True)
