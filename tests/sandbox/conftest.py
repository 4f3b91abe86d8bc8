"""A workspace, a home with secrets, and short ways to run commands at a chosen level."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.sandbox import probe, process
from proctor.sandbox.environment import allowed_environment, shell_argv
from proctor.sandbox.run import run
from proctor.sandbox.spec import Level, Limits, Network, Result, Spec
from proctor.testing.permits import permit_for_tests
from tests.support.requirements import require

PATH = "/usr/local/bin:/usr/bin:/bin"
SRC = str(Path(probe.__file__).resolve().parents[2])


def need(level: Level) -> None:
    """Go on when the machine gives this level; otherwise the run's end says what is missing."""
    cures = {
        Level.BWRAP: "Install bubblewrap (`apt install bubblewrap`) and allow user namespaces.",
        Level.LANDLOCK: "Use a kernel with Landlock and seccomp.",
    }
    reason = probe.available(level)
    require(not reason, f"sandbox level {int(level)}: {reason}", cures.get(level, ""))


@pytest.fixture(params=[Level.BWRAP, Level.LANDLOCK, Level.LIMITS], ids=["bwrap", "landlock", "limits"])
def level(request: pytest.FixtureRequest) -> Level:
    """Each level in turn."""
    chosen: Level = request.param
    need(chosen)
    return chosen


@pytest.fixture(params=[Level.BWRAP, Level.LANDLOCK], ids=["bwrap", "landlock"])
def closed_level(request: pytest.FixtureRequest) -> Level:
    """Each level that confines."""
    chosen: Level = request.param
    need(chosen)
    return chosen


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home with a key and a workspace with a repository beside it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("SECRET-KEY")
    hooks = tmp_path / "ws" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks.parent / "config").write_text("[core]\n")
    (hooks / "pre-commit.sample").write_text("#!/bin/sh\n")
    return tmp_path


@pytest.fixture(autouse=True)
def no_keeper_stays() -> Iterator[None]:
    """Every test gives its keepers back; none is left when it ends."""
    yield
    process.close_idle_keepers()


@pytest.fixture
def spec(place: Path) -> Callable[..., Spec]:
    """Make a spec for a line of bash in the workspace."""

    def make(command: str | tuple[str, ...], level: Level | None = None, **more: Any) -> Spec:
        ws, home = str(place / "ws"), str(place / "home")
        argv = shell_argv(command, path=PATH) if isinstance(command, str) else command
        env = allowed_environment({"PATH": PATH, "HOME": home}, extra=more.pop("extra", None))
        more.setdefault("hidden", (f"{home}/.ssh", str(place / "state")))
        more.setdefault("readable", (sys.base_prefix, sys.prefix, SRC))
        if isinstance(more.get("limits"), dict):
            more["limits"] = Limits(**more["limits"])
        required = Level.LIMITS if level is Level.LIMITS else Level.LANDLOCK
        cwd = more.pop("cwd", ws)
        return Spec(argv, cwd, env, writable=(ws,), level=level, level_required=required, **more)

    return make


@pytest.fixture
def sh(spec: Callable[..., Spec]) -> Callable[..., Any]:
    """Run a line of bash in the workspace."""

    async def go(command: str | tuple[str, ...], level: Level | None = None, **more: Any) -> Result:
        outside = {name: more.pop(name) for name in ("on_output", "cancel") if name in more}
        return await run(spec(command, level, **more), permit=permit_for_tests(), **outside)

    return go


@pytest.fixture
def py(sh: Callable[..., Any]) -> Callable[..., Any]:
    """Run a Python program in the workspace."""

    async def go(code: str, level: Level | None = None, **more: Any) -> Result:
        result: Result = await sh((sys.executable, "-I", "-S", "-c", code), level, **more)
        return result

    return go


NET_FULL = Network.FULL
