"""Small repositories for the proof tests, and permits for their commands."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from proctor.proof.runner import Runner
from proctor.proof.surroundings import Surroundings
from proctor.protocol.permits import Permit
from proctor.sandbox.environment import allowed_environment
from proctor.sandbox.spec import Level, Limits
from proctor.testing.permits import permit_for_tests
from proctor.workspace.trees import Trees

__all__ = ["PATH", "commit", "git", "new_repo", "permits_for_proofs", "runner_of", "write"]

PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
_WHO = {
    "GIT_AUTHOR_NAME": "U",
    "GIT_AUTHOR_EMAIL": "u@x",
    "GIT_COMMITTER_NAME": "U",
    "GIT_COMMITTER_EMAIL": "u@x",
}


@contextlib.asynccontextmanager
async def permits_for_proofs(command: str, *, workspace: Path, seconds: float) -> AsyncIterator[Permit]:
    """A permit for each command, as the gate would give it."""
    yield permit_for_tests("proof", content=command, seconds=seconds)


def git(place: Path, *arguments: str) -> str:
    """Run git as a user without settings would."""
    env = {"PATH": PATH, "HOME": str(place.parent), "GIT_CONFIG_NOSYSTEM": "1", **_WHO}
    ran = subprocess.run(["git", *arguments], cwd=place, env=env, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def write(place: Path, files: Mapping[str, str | None]) -> None:
    """Write files; None removes one. What begins with `#!` can be executed."""
    for name, text in files.items():
        path = place / name
        if text is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)


def commit(place: Path, message: str, files: Mapping[str, str | None]) -> str:
    """Write files and commit them."""
    write(place, files)
    git(place, "add", "--all")
    git(place, "commit", "-q", "--allow-empty", "-m", message)
    return git(place, "rev-parse", "HEAD")


def new_repo(place: Path, files: Mapping[str, str | None]) -> Path:
    """A repository with one commit."""
    place.mkdir(parents=True)
    git(place, "init", "-q", "-b", "main")
    commit(place, "first", files)
    return place


def runner_of(
    repo: Path, home: Path, *, level: Level | None = None, slots: int = 2, **more: object
) -> Runner:
    """A runner for a repository with everything hidden away in `home`."""
    env = allowed_environment({"PATH": PATH, "HOME": str(home)}, extra={"PYTHONDONTWRITEBYTECODE": "1"})
    limits = more.pop("limits", Limits(seconds=60.0, memory_mb=1024, processes=128))
    readable = (sys.base_prefix, sys.prefix)
    around = Surroundings(env=env, readable=readable, limits=limits, **more)  # type: ignore[arg-type]
    return Runner(Trees(repo, home / "proof"), around, permits_for_proofs, slots=slots, level=level)
