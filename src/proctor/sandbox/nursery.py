"""The keepers of this process: idle ones are used again, new ones come from one long-lived thread.

A parent-death signal follows the *thread* that forked, so no pool may start them. All end with this process.
"""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from proctor.protocol.errors import UnavailableError
from proctor.sandbox.procfs import start_time
from proctor.sandbox.wire import PLAIN, Channel

__all__ = ["KeeperProcess", "Nursery", "close_idle_keepers", "nursery"]

_IDLE_KEEPERS = 8
_START_SECONDS = 60.0
_END_SECONDS = 15.0
_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from proctor.sandbox.keeper import main; main()"


def _apart() -> dict[str, Any]:
    """A keeper and its commands must not reach our terminal; where we have none, a group of its own is enough.

    On a busy machine the scheduler makes a new session wait its turn at every step (autogroup).
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return {"process_group": 0}
    return {"start_new_session": True}


class KeeperProcess:
    """One keeper process and the owner's end of its socket."""

    def __init__(self, kind: str = PLAIN) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        argv = [sys.executable, "-I", "-S", "-c", _BOOT, _ROOT, str(theirs.fileno()), kind]
        try:
            self.process = subprocess.Popen(
                argv,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                cwd="/",
                **_apart(),
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.kind = kind
        self.start_time = start_time(self.process.pid) or 0
        self.channel = Channel(ours)

    def close(self) -> None:
        """Let it go: at the end of the file it ends its tree and itself."""
        self.channel.close()

    def bury(self) -> None:
        """Wait until a closed one has ended; one that does not end is killed. Blocks."""
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Nursery:
    """The idle keepers, and the one thread that starts new ones."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[KeeperProcess] = []
        self._ended: list[KeeperProcess] = []
        self._orders: queue.SimpleQueue[tuple[asyncio.Future[KeeperProcess], str]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def take(self, kind: str = PLAIN) -> KeeperProcess:
        """Give an idle keeper of this kind, or a new one."""
        with self._lock:
            keeper = self._idle_one(kind)
            if keeper is not None:
                return keeper
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="proctor-keepers", daemon=True)
                self._thread.start()
        order: asyncio.Future[KeeperProcess] = asyncio.get_running_loop().create_future()
        self._orders.put((order, kind))
        try:
            return await asyncio.wait_for(asyncio.shield(order), _START_SECONDS)
        except (TimeoutError, asyncio.CancelledError):
            order.add_done_callback(self._not_wanted)
            raise

    def _idle_one(self, kind: str) -> KeeperProcess | None:
        """The idle keeper used last, of this kind; dead ones are let go on the way."""
        for keeper in [one for one in reversed(self._idle) if one.kind == kind]:
            self._idle.remove(keeper)
            if keeper.process.poll() is None:
                return keeper
            keeper.close()
        return None

    def _not_wanted(self, order: asyncio.Future[KeeperProcess]) -> None:
        if not order.cancelled() and order.exception() is None:
            self.give_back(order.result())

    def give_back(self, keeper: KeeperProcess) -> None:
        """Keep an idle one for the next run, up to a number."""
        with self._lock:
            if len(self._idle) < _IDLE_KEEPERS:
                self._idle.append(keeper)
                return
        self.drop(keeper)

    def drop(self, keeper: KeeperProcess) -> None:
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
            keeper.bury()

    def _serve(self) -> None:
        while True:
            order, kind = self._orders.get()
            try:
                keeper = KeeperProcess(kind)
            except OSError as error:
                _settle(order, None, error)
            else:
                if not _settle(order, keeper, None):
                    self.give_back(keeper)


def _settle(
    order: asyncio.Future[KeeperProcess], keeper: KeeperProcess | None, error: OSError | None
) -> bool:
    """Answer an order from the keepers' thread; False when its loop has gone meanwhile."""

    def answer() -> None:
        if order.done():
            if keeper is not None:
                nursery().give_back(keeper)
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


_current = Nursery()


def nursery() -> Nursery:
    """The nursery of this process; a forked child must not talk to its parent's keepers."""
    global _current  # noqa: PLW0603 - one per process, made anew after a fork
    if _current.owner != os.getpid():
        _current = Nursery()
    return _current


def close_idle_keepers() -> None:
    """End idle keepers now; those at work end with their trees, and all end with this process."""
    nursery().close_idle()
