"""One command in one clean checkout in the sandbox, seen at the repository's own path (level 3) or re-rooted (level 2).

Below level 2 nothing is run (law 8): who asks gets `NotConfinedError` and calls the result inconclusive. A run
harms only its checkout; results files come back through a directory of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from proctor.proof.dependencies import DEPENDENCY_FILES, Borrowed, borrowed
from proctor.proof.disk import watch_disk
from proctor.proof.surroundings import Surroundings, with_services
from proctor.protocol.errors import RefusedError
from proctor.protocol.permits import Permit
from proctor.sandbox import probe
from proctor.sandbox.environment import shell_argv
from proctor.sandbox.run import run as run_confined
from proctor.sandbox.spec import Level, LevelUnavailableError, Network, Output, Placed, Result, Spec
from proctor.workspace.checkout import Checkout, CheckoutPool
from proctor.workspace.trees import Trees
from proctor.workspace.worktree import delete_tree

__all__ = ["TRACER", "NotConfinedError", "PermitSource", "Run", "Runner"]

NEUTRAL = "/run/proctor"
TRACER = f"{NEUTRAL}/tracer"
ABSENT = "the submodule {} is not initialised in your checkout, so it was empty here too"
_CAP = 8 << 20  # of one results file
_FILES = 200  # results files read back


class NotConfinedError(RefusedError):
    """Not run: proof commands may have been written by agents and need sandbox level 2 or better ({why}). {cure}"""

    code = "not_confined"


class PermitSource(Protocol):
    """Where a run gets its permit: the gate, as actor Proctor."""

    def __call__(
        self, command: str, *, workspace: Path, seconds: float
    ) -> AbstractAsyncContextManager[Permit]:
        """Give a permit for exactly this command; leaving the block settles it."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """The facts of one command in one checkout."""

    tree: str
    head: str
    command: str
    exit_code: int
    killed_for: str | None
    duration: float
    stdout: Output
    stderr: Output
    level: int
    missing: tuple[str, ...]
    lent: tuple[str, ...]
    rerooted: bool
    place: str  # the repository's root as the command saw it
    stage: str = "command"  # or "setup": the command itself was never reached
    files: Mapping[str, bytes] = field(default_factory=dict)
    leftovers: int = 0

    @property
    def ok(self) -> bool:
        """Ended by itself with 0."""
        return self.exit_code == 0 and self.killed_for is None and self.stage == "command"


class Runner:
    """Runs commands on trees of one repository."""

    def __init__(
        self,
        trees: Trees,
        surroundings: Surroundings,
        permits: PermitSource,
        *,
        slots: int = 2,
        level: Level | None = None,
    ) -> None:
        self.trees = trees
        self.surroundings = surroundings
        self._permits = permits
        self._refusal: NotConfinedError | None = None
        try:
            self.level = _level(level)
        except NotConfinedError as error:
            self.level, self._refusal = Level.LIMITS, error
        self.placed = self.level is Level.BWRAP
        alternates = (f"{NEUTRAL}/objects", f"{NEUTRAL}/own") if self.placed else ()
        kind = "placed" if self.placed else "plain"
        self._pool = CheckoutPool(trees, trees.home / "slots" / kind, slots=slots, alternates=alternates)
        self._lent: dict[str, Borrowed] = {}
        # Who waits for a slot must not hold a thread: those who have one need threads to go on.
        self._turn = asyncio.Semaphore(slots)

    async def run(
        self, tree: str, head: str, command: str, *, cwd: str = "", extra: Mapping[str, str] | None = None
    ) -> Run:
        """Set the checkout up and run the command in it; a failing set-up is the result, with its own stage.

        Raises `NotConfinedError` where the machine has no sandbox: nothing is run then.
        """
        if self._refusal is not None:
            raise self._refusal
        async with self._turn, self._checkout(tree, head) as checkout:
            lent = await asyncio.to_thread(self.lent, tree)
            out = checkout.path.parent / "out"
            for place in (out, checkout.path.parent / "tmp"):
                await asyncio.to_thread(_empty, place)
            if not lent.complete:
                for line in self.surroundings.setup:
                    done = await self._run(checkout, lent, line, "", extra or {})
                    if not done.ok:
                        return replace(done, stage="setup", command=command)
            line = with_services(command, self.surroundings.services)
            done = await self._run(checkout, lent, line, cwd, extra or {})
            files = await asyncio.to_thread(_collect, out)
            return replace(done, command=command, files=files)

    @contextlib.asynccontextmanager
    async def _checkout(self, tree: str, head: str) -> AsyncIterator[Checkout]:
        taking = asyncio.get_running_loop().run_in_executor(None, self._pool.take, tree, head)
        try:
            checkout = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._take_back)
            raise
        try:
            yield checkout
        finally:
            self._pool.give_back(checkout)

    def _take_back(self, taking: asyncio.Future[Checkout]) -> None:
        """Nobody waits any more for what a thread is still making."""
        if not taking.cancelled() and taking.exception() is None:
            self._pool.give_back(taking.result())

    async def _run(
        self, checkout: Checkout, lent: Borrowed, line: str, cwd: str, extra: Mapping[str, str]
    ) -> Run:
        spec = self._spec(checkout, lent, line, cwd, extra)
        seconds = self.surroundings.limits.seconds or 3600.0
        async with self._permits(line, workspace=self.trees.root, seconds=seconds) as permit:
            result = await self._watched(checkout, spec, permit)
        place = str(self.trees.root if self.placed else checkout.path)
        return _facts(checkout, line, result, lent, place=place, rerooted=not self.placed)

    async def _watched(self, checkout: Checkout, spec: Spec, permit: Permit) -> Result:
        """Run it while its disk is watched; what it wrote beyond the limit is removed at once."""
        slot, full = checkout.path.parent, asyncio.Event()
        places = [checkout.path, slot / "out", slot / "tmp"]
        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(watch_disk(places, self.surroundings.disk, full))
                try:
                    result = await run_confined(spec, permit=permit, cancel=full)
                finally:
                    watcher.cancel()
        except ExceptionGroup as problems:
            raise problems.exceptions[0] from None
        if not full.is_set():
            return result
        for place in places:
            await asyncio.to_thread(delete_tree, place)
        await asyncio.to_thread(_empty, slot / "out")
        return replace(result, killed_for="disk")

    def _spec(
        self, checkout: Checkout, lent: Borrowed, line: str, cwd: str, extra: Mapping[str, str]
    ) -> Spec:
        root, around, tracer = self.trees.root, self.surroundings, self.trees.home / "tracer"
        out = checkout.path.parent / "out"
        env = {**around.env, **extra}
        path = env.get("PATH", os.defpath)
        common = {
            "limits": around.limits,
            "hidden": around.hidden,
            "network": Network.OFF,
            "level": self.level,
        }
        if self.placed:
            placed = [
                Placed(str(checkout.path), str(root), writable=True),
                Placed(str(self.trees.objects), f"{NEUTRAL}/objects"),
                Placed(str(self.trees.store), f"{NEUTRAL}/own"),
                Placed(str(out), f"{NEUTRAL}/out", writable=True),
                *([Placed(str(tracer), TRACER)] if tracer.is_dir() else []),
                *(Placed(str(root / name), str(root / name)) for name in lent.directories),
            ]
            env = {name: value.replace("{out}", f"{NEUTRAL}/out") for name, value in env.items()}
            argv = shell_argv(line, path=path)
            more = {"placed": tuple(placed), "readable": around.readable}
            return Spec(argv, cwd or str(root), env, **more, **common)  # type: ignore[arg-type]
        here = str(checkout.path)
        _link_lent(root, checkout.path, lent)
        env = {name: _reroot(value.replace("{out}", str(out)), root, here) for name, value in env.items()}
        argv = shell_argv(_reroot(line, root, here), path=path)
        objects = (str(self.trees.objects), str(self.trees.store), str(tracer))
        readable = (*around.readable, *objects, *(str(root / name) for name in lent.directories))
        # At level 2 the private /tmp lies on disk: it is one of ours, so that what fills it is counted.
        tmp = str(checkout.path.parent / "tmp")
        env = {"TMPDIR": tmp, "XDG_CACHE_HOME": f"{tmp}/.cache", **env}
        writable = (here, str(out), tmp)
        place = cwd if cwd and not cwd.startswith(str(root)) else here
        return Spec(argv, place, env, writable=writable, readable=readable, **common)  # type: ignore[arg-type]

    def lent(self, tree: str) -> Borrowed:
        """Which installed dependencies this tree may borrow from the user's checkout."""
        if tree not in self._lent:
            names = self.trees.names(tree)
            wanted = [name for name in names if name.rsplit("/", 1)[-1] in DEPENDENCY_FILES]
            files = self.trees.blobs(tree, wanted[:100], cap=16 << 20)
            folders = frozenset(part for name in names for part in _parents(name))
            self._lent[tree] = borrowed(self.trees.root, files, folders)
        return self._lent[tree]


def _level(wanted: Level | None) -> Level:
    try:
        return probe.best_level(Level.LANDLOCK, wanted)
    except LevelUnavailableError as error:
        raise NotConfinedError(why=str(error.facts["why"]), cure=str(error.facts["cure"])) from error


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def _link_lent(root: Path, files: Path, lent: Borrowed) -> None:
    """Where nothing can be mounted, a link leads to what is lent."""
    for name in lent.directories:
        place = files / name
        if place.parent.is_dir() and not os.path.lexists(place):
            place.symlink_to(root / name)


def _reroot(text: str, root: Path, here: str) -> str:
    """Name the checkout wherever the text names the repository by its whole path."""
    return re.sub(re.escape(str(root)) + r"(?![\w.-])", lambda _match: here, text)


def _facts(
    checkout: Checkout, line: str, result: Result, lent: Borrowed, *, place: str, rerooted: bool
) -> Run:
    return Run(
        tree=checkout.tree,
        head=checkout.head,
        command=line,
        exit_code=result.exit_code,
        killed_for=result.killed_for,
        duration=result.duration,
        stdout=result.stdout,
        stderr=result.stderr,
        level=int(result.sandbox.level),
        missing=(*result.sandbox.missing, *(ABSENT.format(path) for path in checkout.absent)),
        lent=lent.directories,
        rerooted=rerooted,
        place=place,
        leftovers=result.leftovers,
    )


def _empty(place: Path) -> None:
    if place.is_symlink() or not place.is_dir():
        place.unlink(missing_ok=True)
    else:
        delete_tree(place)
    place.mkdir()


def _collect(place: Path) -> dict[str, bytes]:
    """Read back what the command left for us: plain files only, bounded in number and size."""
    found: dict[str, bytes] = {}
    for folder, folders, names in os.walk(place):
        folders.sort()
        for name in sorted(names):
            if len(found) >= _FILES:
                return found
            path = os.path.join(folder, name)  # noqa: PTH118 - names may be no UTF-8
            if (data := _read(path)) is not None:
                found[os.path.relpath(path, place)] = data
    return found


def _read(path: str) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(handle)
        return file.read(_CAP) if stat.S_ISREG(state.st_mode) and state.st_size <= _CAP else None
