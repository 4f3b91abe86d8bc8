"""The keeper: a small single-threaded process that starts one tree at a time, keeps its limits and ends it.

It is a subreaper, so every orphan of the tree becomes its child, also after setsid and a double fork: when
`waitpid` says "no child", nobody is left; that is the proof. It forks from its only thread, so PDEATHSIG and
bwrap's --die-with-parent mean what they say. When its owner goes away (end of file, SIGTERM), it ends all.
macOS has no subreaper: there parent links and the leader's process group, best effort.
Run as `python -I -S -c "…; main()" FD`; standard library only. The words on the wire are in `wire.py`.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import Any

from proctor.sandbox import apart, procfs, spawn, wire
from proctor.sandbox.identity import send_signal
from proctor.sandbox.pids import PidsGroup

__all__ = ["Keeper", "main"]

_TICK = 0.1
_GLANCE = 0.025  # how often the machine's population is read while nobody else holds the number of processes
_DRAIN = 0.25  # what a leader's end leaves to its children before they are killed
_KILL_DEADLINE = 10.0
_MAXRSS_BYTES = 1024 if procfs.LINUX else 1
_PR_SET_CHILD_SUBREAPER = 36


class _OwnerGoneError(Exception):
    """The process that asked for the tree has died."""


class _Tree:
    """One running tree with its clocks and counters."""

    def __init__(self, job: dict[str, Any], child: spawn.Child) -> None:
        self.leader = child.pid
        self.child = child
        self.limits: dict[str, Any] = job["limits"]
        self.polled = any(self.limits.get(name) for name in ("memory_mb", "cpu_percent", "processes"))
        self.temporary: str | None = job["temporary"]  # what a lost owner cannot remove any more
        self.wrappers: int = job["wrappers"]
        self.began = time.monotonic()
        seconds = self.limits.get("seconds")
        self.deadline: float | None = None if seconds is None else self.began + seconds
        self.kill_at: float | None = None
        self.next_look = self.began + _TICK
        self.held: dict[str, str] = job["held"]
        self.crowd = procfs.population() if self.held.get("processes") == "polled" else 0
        self.next_glance = self.began + _GLANCE
        self.exit: int | None = None
        self.killed_for: str | None = None
        self.reaped_cpu = 0.0
        self.peak = 0
        self.stopped = False
        self.leftovers = 0


class Keeper:
    """Serves one owner over one socket until the owner is gone."""

    def __init__(self, channel: socket.socket, kind: str = wire.PLAIN) -> None:
        self.channel = wire.Channel(channel)
        self.kind = kind
        self.pids: PidsGroup | None = None
        self.pids_sought = False
        self.wakeup, wakeup_write = os.pipe()
        for end in (self.wakeup, wakeup_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU, signal.SIGTTIN):
            signal.signal(ignored, signal.SIG_IGN)
        self.tree: _Tree | None = None
        self.unheard: list[tuple[dict[str, Any], list[int]]] = []
        self.poll = select.poll()
        self.poll.register(channel, select.POLLIN)
        self.poll.register(self.wakeup, select.POLLIN)

    def serve(self) -> None:
        """Take one job after the other; whatever happens, leave no tree behind."""
        try:
            while True:
                self._job(*self._next_job())
        except (_OwnerGoneError, BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self._end_everything()
            _remove(self.tree.temporary if self.tree is not None else None)
            if self.pids is not None:
                self.pids.leave()

    def _next_job(self) -> tuple[dict[str, Any], list[int]]:
        while True:
            messages = self._receive(None)
            for number, (message, fds) in enumerate(messages, 1):
                if message["op"] == "start":
                    self.unheard = messages[number:]
                    return message, fds
                # A stop that crossed the end of its tree on the way: that tree is gone already.

    def _receive(self, timeout: float | None) -> list[tuple[dict[str, Any], list[int]]]:
        if self.unheard:  # a stop that came together with its start
            messages, self.unheard = self.unheard, []
            return messages
        ready = dict(self.poll.poll(None if timeout is None else max(0, timeout * 1000)))
        if self.wakeup in ready and signal.SIGTERM in os.read(self.wakeup, 4096):
            raise _OwnerGoneError
        if ready.keys() - {self.wakeup}:
            heard = self.channel.receive()
            if heard is None:
                raise _OwnerGoneError
            return heard
        return []

    def _job(self, job: dict[str, Any], fds: list[int]) -> None:
        try:
            self._make_ready(job)
            child = spawn.start(job, fds)
        except spawn.SpawnError as error:
            self._end_everything()
            self.channel.send(
                {"ev": "failed", "stage": error.stage, "errno": error.number, "text": error.text}
            )
            return
        finally:
            for fd in fds:
                os.close(fd)
        tree = self.tree = _Tree(job, child)
        if not job["quiet"]:
            self.channel.send({"ev": "started"})
        self._watch(tree)
        self._finish(tree)
        self.tree = None

    def _make_ready(self, job: dict[str, Any]) -> None:
        """What must stand before the program runs: no network but ours, the door to the proxy, the process limit."""
        if job["keeper"] != self.kind:
            raise spawn.SpawnError("keeper", 0, f"this keeper is {self.kind}, not {job['keeper']}")
        if job["listen"] is not None:
            self._open_door(job["listen"])
        if job["held"].get("processes") == "polled":
            self._hold_processes(job)

    def _open_door(self, port: int) -> None:
        """Listen in our own network and hand the socket out, where the proxy is."""
        try:
            door = apart.listen(port)
        except OSError as problem:
            raise spawn.SpawnError("network", problem.errno or 0, str(problem)) from None
        with door:
            self.channel.send({"ev": "listening"}, [door.fileno()])

    def _hold_processes(self, job: dict[str, Any]) -> None:
        """Let the kernel hold the number of processes where it can; elsewhere it is watched."""
        if not self.pids_sought and procfs.LINUX:
            self.pids_sought, self.pids = True, PidsGroup.make()
        if self.pids is not None:
            try:
                self.pids.limit(job["limits"]["processes"])
            except OSError:
                return
            job["held"]["processes"] = "cgroup"

    def _watch(self, tree: _Tree) -> None:
        """Wait for the leader's end, keeping the limits and hearing the owner meanwhile."""
        while True:
            self._reap()
            now = time.monotonic()
            if tree.exit is not None:
                return
            if tree.kill_at is not None and now >= tree.kill_at:
                return
            if tree.kill_at is None and tree.deadline is not None and now >= tree.deadline:
                self._terminate(tree, "timeout", tree.limits.get("grace", 5.0))
            self._keep_limits(tree)
            for message, _ in self._receive(self._pause(tree)):
                self._obey(tree, message)

    def _pause(self, tree: _Tree) -> float | None:
        """How long nothing needs doing; None while only the owner or a death can change anything."""
        moments = [tree.kill_at if tree.kill_at is not None else tree.deadline]
        moments += [tree.next_look] if tree.polled and tree.kill_at is None else []
        moments += [tree.next_glance] if tree.crowd and tree.kill_at is None else []
        known = [moment for moment in moments if moment is not None]
        return max(0.0, min(known) - time.monotonic()) if known else None

    def _obey(self, tree: _Tree, message: dict[str, Any]) -> None:
        if message["op"] == "stop":
            self._terminate(tree, message["why"], message["grace"])
        elif message["op"] == "signal" and tree.exit is None:  # afterwards the number may be another's
            send_signal([tree.leader], message["signal"])

    def _terminate(self, tree: _Tree, why: str, grace: float) -> None:
        """Ask everybody to leave, and set the moment at which nobody is asked any more."""
        tree.killed_for = tree.killed_for or why
        pids = procfs.tree(os.getpid(), skip=tree.wrappers)
        if grace > 0 and tree.kill_at is None:
            send_signal(pids, signal.SIGTERM)
            send_signal(pids, signal.SIGCONT)  # a stopped process does not hear TERM
            tree.stopped = False
        soon = time.monotonic() + grace
        tree.kill_at = soon if tree.kill_at is None else min(tree.kill_at, soon)

    def _keep_limits(self, tree: _Tree) -> None:
        limits = tree.limits
        now = time.monotonic()
        if tree.crowd and now >= tree.next_glance:
            tree.next_glance = now + _GLANCE
            # A bomb grows by thousands between two looks: look at once when the machine fills up.
            tree.next_look = now if procfs.population() - tree.crowd > limits["processes"] else tree.next_look
        if tree.kill_at is not None or not tree.polled or now < tree.next_look:
            return
        tree.next_look = now + _TICK
        pids = procfs.tree(os.getpid(), skip=tree.wrappers)
        # Wrappers too: the first process of a namespace holds the CPU time of the orphans it buried.
        look = procfs.sample(procfs.tree(os.getpid()))
        tree.peak = max(tree.peak, look.resident)
        if limits.get("processes") and len(pids) > limits["processes"]:
            self._terminate(tree, "processes", 0.0)
        elif limits.get("memory_mb") and self._too_big(tree, pids, look.resident):
            self._terminate(tree, "memory", 0.0)
        elif limits.get("cpu_percent"):
            self._throttle(tree, pids, look.cpu)

    def _too_big(self, tree: _Tree, pids: list[int], resident: int) -> bool:
        """Shared pages are counted once only when it matters, because asking is dear."""
        limit: int = tree.limits["memory_mb"] << 20
        return resident > limit and (procfs.pss(pids) or resident) > limit

    def _throttle(self, tree: _Tree, pids: list[int], cpu: float) -> None:
        """Stop and continue so that CPU time stays under the share; 100 percent is one whole core."""
        allowed = (time.monotonic() - tree.began) * tree.limits["cpu_percent"] / 100
        used = cpu + tree.reaped_cpu
        if used > allowed:
            send_signal(pids, signal.SIGSTOP)
            tree.stopped = True
        elif tree.stopped:
            send_signal(pids, signal.SIGCONT)
            tree.stopped = False

    def _reap(self) -> bool:
        """Bury the dead; say whether the kernel knows no child of ours any more."""
        tree = self.tree
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if tree is not None:
                tree.reaped_cpu += usage.ru_utime + usage.ru_stime
                tree.peak = max(tree.peak, usage.ru_maxrss * _MAXRSS_BYTES)
                if pid == tree.leader:
                    tree.exit = os.waitstatus_to_exitcode(status)

    def _finish(self, tree: _Tree) -> None:
        """End whoever outlived the leader, prove it, and tell the owner."""
        if tree.exit is not None:
            self._drain(tree)
        survivors = self._end_everything()  # buries the leader too, so its exit is known only after it
        done = {
            "ev": "done",
            "code": tree.exit,
            "survivors": survivors,
            "killed_for": tree.killed_for,
            "leftovers": tree.leftovers,
            "seconds": time.monotonic() - tree.began,
            "cpu_seconds": tree.reaped_cpu,
            "peak_bytes": tree.peak,
            "held": tree.held,
            "status": tree.child.status(),
        }
        self.channel.send(done)

    def _drain(self, tree: _Tree) -> None:
        """Let children that are about to end do so; the namespace of a wrapper ends by itself."""
        until = time.monotonic() + _DRAIN
        while not self._reap() and (left := until - time.monotonic()) > 0:
            for message, _ in self._receive(left):
                self._obey(tree, message)
            if tree.kill_at is not None:
                return
        tree.leftovers = len(procfs.tree(os.getpid()))

    def _end_everything(self) -> int:
        """Kill until the kernel says that there is no child; returns how many would not die in time."""
        until = time.monotonic() + _KILL_DEADLINE
        pause = 0.0
        if self.tree is not None and not procfs.LINUX:
            send_signal([-self.tree.leader], signal.SIGKILL)
        if self.tree is not None and self.tree.wrappers:
            # With its first process a namespace ends whole, before anybody has counted who is in it.
            send_signal(procfs.children(os.getpid()), signal.SIGKILL)
        while not self._reap():
            if time.monotonic() > until:
                return len(procfs.tree(os.getpid()))
            send_signal(procfs.tree(os.getpid()), signal.SIGKILL)
            # A chain that forks as fast as we look must not find us asleep; the dying get a moment later on.
            time.sleep(pause)
            pause = min(0.005, pause + 0.0002)
        return 0


def _remove(place: str | None) -> None:
    if place is not None:
        import shutil

        shutil.rmtree(place, ignore_errors=True)


def main() -> None:
    """Become subreaper, promise to end with the owner, and serve the socket whose number is given."""
    number = int(sys.argv[1])
    os.set_inheritable(number, False)  # whoever holds this socket gives orders: never the command
    kind = sys.argv[2]
    if kind != wire.PLAIN:
        apart.enter(
            offline=kind == wire.OFFLINE
        )  # where it fails this process ends, and nothing ever runs in it
    spawn.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    keeper = Keeper(socket.socket(fileno=number), kind)
    spawn.prctl(spawn.PR_SET_PDEATHSIG, signal.SIGTERM)
    keeper.serve()
