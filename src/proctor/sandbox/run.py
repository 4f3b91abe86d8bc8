"""Run one command, confined, limited, bounded in output, with its whole tree gone at the end (laws 1, 8, 9).

The permit is checked first; the level is never lowered in silence; every result says how well the command was
confined and what did not hold. Nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from proctor.protocol.errors import first_of
from proctor.protocol.ids import new_id
from proctor.protocol.permits import Permit, redeem_permit
from proctor.sandbox import probe, process
from proctor.sandbox.prepare import Prepared, prepare
from proctor.sandbox.proxy import HostProxy, Resolver
from proctor.sandbox.pump import Pump
from proctor.sandbox.spec import Altered, Confinement, Level, LevelUnavailableError, Network, Result, Spec

__all__ = ["OnOutput", "run", "run_sync"]

OnOutput = Callable[[str, str], None]  # stream ("stdout" | "stderr") and text
_answered: set[tuple[Level, Level | None]] = set()  # questions whose mechanisms were tried already
_PATIENCE = 30.0  # what the keeper may need beyond limit and grace before we take over from it


async def run(
    spec: Spec,
    *,
    permit: Permit,
    on_output: OnOutput | None = None,
    cancel: asyncio.Event | None = None,
    resolve: Resolver | None = None,
) -> Result:
    """Run a command to its end and tell what came of it.

    A time-out or a set `cancel` ends the tree (TERM, grace, KILL) and gives a result. Cancelling the task ends
    the tree at once and then raises. Raises a refusal when the permit is wrong or the level cannot be had.
    `resolve` answers for the system's resolver where the network is a list of hosts.
    """
    redeem_permit(permit, now=time.monotonic())
    spec, level, note = await _chosen(spec)
    proxy = HostProxy(spec.hosts, resolve=resolve) if spec.network is Network.HOSTS else None
    async with _prepared(spec, level) as prepared:
        began = time.monotonic()
        pumps = [Pump(name, spec.limits, on_output) for name in ("stdout", "stderr")]
        try:
            ending = await _execute(spec, prepared, pumps, cancel, proxy)
        finally:
            for pump in pumps:
                pump.close()
        memory = prepared.memory
        altered = memory.compare() if memory.cheap() else await asyncio.to_thread(memory.compare)
        box = prepared.confinement
        reached = proxy.reached() if proxy is not None else ()
        box = replace(box, missing=(*box.missing, *note), limits=ending.held, reached=reached)
        return _result(prepared, ending, pumps, altered, time.monotonic() - began, box)


def run_sync(spec: Spec, *, permit: Permit, on_output: OnOutput | None = None) -> Result:
    """The same for callers without an event loop."""
    return asyncio.run(run(spec, permit=permit, on_output=on_output))


@contextlib.asynccontextmanager
async def _prepared(spec: Spec, level: Level) -> AsyncIterator[Prepared]:
    """Make what the run needs beside itself, and take it away again whatever happens."""
    ready = prepare(spec, level, new_id("run"))
    try:
        if not ready.memory.cheap():
            await asyncio.to_thread(ready.memory.remember)
        yield ready
    finally:
        ready.clear()
        if not ready.temporary_is_gone():
            await asyncio.shield(asyncio.to_thread(ready.clear_temporary))


async def _chosen(spec: Spec) -> tuple[Spec, Level, tuple[str, ...]]:
    """Choose the level; the first time mechanisms are tried by running them, which must not block the loop.

    A list of hosts holds at level 3 only: without it the network is off and the result says so, or nothing runs.
    """
    wanted = (spec.level_required, spec.level)
    if wanted not in _answered:
        await asyncio.to_thread(probe.best_level, *wanted)
        await asyncio.to_thread(probe.apart)
        _answered.add(wanted)
    level = probe.best_level(*wanted)
    why = _not_by_host(level) if spec.network is Network.HOSTS else ""
    if not why:
        return spec, level, ()
    if not spec.hosts_optional:
        cure = "Install bubblewrap and allow user namespaces; `proctor doctor` says more."
        raise LevelUnavailableError(wanted=int(Level.BWRAP), found=int(level), why=why, cure=cure)
    note = f"network by host cannot be had here, so the network is off ({why})"
    return replace(spec, network=Network.OFF, hosts=()), level, (note,)


def _not_by_host(level: Level) -> str:
    return probe.by_host() if level is Level.BWRAP else "network by host needs level 3"


async def _execute(
    spec: Spec,
    prepared: Prepared,
    pumps: list[Pump],
    cancel: asyncio.Event | None,
    proxy: HostProxy | None,
) -> process.Ending:
    """Start the tree and follow it; however this is left, the tree is gone."""
    stdin = _stdin(spec.stdin)
    try:
        tree = await process.start(
            prepared.job, stdin=stdin, stdout=pumps[0].writer, stderr=pumps[1].writer, extra=prepared.extra
        )
    finally:
        os.close(stdin)
        for pump in pumps:
            pump.close_writer()
    try:
        async with _serving(tree, proxy):
            return await _follow(tree, spec, pumps, cancel)
    except ExceptionGroup as problems:
        raise first_of(problems) from None
    finally:
        await tree.gone()


@contextlib.asynccontextmanager
async def _serving(tree: process.Tree, proxy: HostProxy | None) -> AsyncIterator[None]:
    """Let the proxy serve the tree while it runs."""
    door = await tree.door() if proxy is not None else None
    if proxy is None or door is None:
        yield
        return
    with door:
        async with proxy.serving(door):
            yield


async def _follow(
    tree: process.Tree, spec: Spec, pumps: list[Pump], cancel: asyncio.Event | None
) -> process.Ending:
    limits = spec.limits
    async with asyncio.TaskGroup() as group:
        for pump in pumps:
            group.create_task(pump.run())
        watcher = group.create_task(_watch(tree, cancel, limits.grace)) if cancel is not None else None
        deadline = None if limits.seconds is None else limits.seconds + limits.grace + _PATIENCE
        try:
            async with asyncio.timeout(deadline):
                ending = await tree.wait()
        except TimeoutError:
            tree.abandon()
            ending = await tree.wait()
        if watcher is not None:
            watcher.cancel()
        for pump in pumps:
            pump.finish()
    return ending


async def _watch(tree: process.Tree, cancel: asyncio.Event, grace: float) -> None:
    await cancel.wait()
    tree.ask_to_end("cancelled", grace=grace)


def _stdin(data: bytes | None) -> int:
    if data is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _result(
    prepared: Prepared,
    ending: process.Ending,
    pumps: list[Pump],
    altered: tuple[Altered, ...],
    seconds: float,
    box: Confinement,
) -> Result:
    """Put the facts together; a wrapper that could not set itself up is an error and not the command's end."""
    outputs = [pump.capture.output() for pump in pumps]
    if prepared.job.wrappers and ending.killed_for is None and "exit-code" not in ending.status:
        text = outputs[1].text.strip() or "bwrap gave no reason"
        cure = "Check that the program exists inside the sandbox; see `proctor doctor`."
        raise process.NotStartedError(
            program=prepared.job.argv[-1], stage="sandbox", text=text[:500], cure=cure
        )
    killed_for = ending.killed_for
    if killed_for is None and prepared.group is not None and prepared.group.ran_out_of_memory():
        killed_for = "memory"
    return Result(
        exit_code=_shell_code(ending.exit_code),
        stdout=outputs[0],
        stderr=outputs[1],
        duration=seconds,
        timed_out=killed_for == "timeout",
        killed_for=killed_for,
        survivors=ending.survivors,
        leftovers=ending.leftovers,
        cpu_seconds=ending.cpu_seconds,
        peak_bytes=ending.peak_bytes,
        sandbox=box,
        altered=altered,
    )


def _shell_code(code: int | None) -> int:
    """The shell's way: 128 + n for a command that signal n ended."""
    if code is None:
        return 128 + signal.SIGKILL
    return code if code >= 0 else 128 - code
