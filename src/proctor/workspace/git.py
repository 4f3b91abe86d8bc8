"""Calling git for Proctor itself: hooks, prompts, fsmonitor and signing off, a deadline, and no GIT_
variables.

What an agent may have written into a worktree (its `.git` above all) is never asked where the repository
is: after creation every call names the git directory. Blocking; async callers use a thread.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from proctor.config import environment
from proctor.protocol.errors import ProctorError, UnavailableError
from proctor.workspace.locks import directory_lock

__all__ = ["Git", "GitError", "lock_repository"]

SECONDS = 300.0
LOCK_SECONDS = 120.0
QUIET = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("commit.gpgSign", "false"),
    ("gc.auto", "0"),
    ("advice.detachedHead", "false"),
)


class GitError(ProctorError):
    """git {action} failed in {place}: {reason}. Run `git {action}` there to see it yourself."""

    code = "git"


class Git:
    """git with a fixed directory, or with a fixed git directory and work tree."""

    def __init__(self, place: Path, git_dir: Path | None = None) -> None:
        self.place = place
        self._where = ["-C", str(place)]
        if git_dir is not None:
            self._where += [f"--git-dir={git_dir}", f"--work-tree={place}"]

    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None, text: str = "") -> str:
        """Run a command and give its output without the last line end; a failure is an error."""
        ran = self.run(*arguments, env=env, text=text)
        if ran.returncode != 0:
            reason = (ran.stderr or ran.stdout).strip().splitlines()[-1:] or [f"exit code {ran.returncode}"]
            raise GitError(action=arguments[0], place=str(self.place), reason=reason[0])
        return ran.stdout.rstrip("\n")

    def ok(self, *arguments: str) -> bool:
        """Run a command that answers yes or no by its exit code."""
        return self.run(*arguments).returncode == 0

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and give everything."""
        ran = self._spawn(arguments, env, text.encode("utf-8", "surrogateescape"))
        out, err = (_text(stream) for stream in (ran.stdout, ran.stderr))
        return subprocess.CompletedProcess(ran.args, ran.returncode, out, err)

    def raw(self, *arguments: str, env: Mapping[str, str] | None = None, data: bytes = b"") -> bytes:
        """Run a command on bytes and give its output as it is; a failure is an error."""
        ran = self._spawn(arguments, env, data)
        if ran.returncode != 0:
            reason = _text(ran.stderr).strip().splitlines()[-1:] or [f"exit code {ran.returncode}"]
            raise GitError(action=arguments[0], place=str(self.place), reason=reason[0])
        return ran.stdout

    def _spawn(
        self, arguments: tuple[str, ...], env: Mapping[str, str] | None, data: bytes
    ) -> subprocess.CompletedProcess[bytes]:
        options = [word for name, value in QUIET for word in ("-c", f"{name}={value}")]
        try:
            return subprocess.run(
                ["git", *self._where, *options, *arguments],
                input=data,
                capture_output=True,
                timeout=SECONDS,
                env={**_clean(), **(env or {})},
                check=False,
            )
        except FileNotFoundError as error:
            raise UnavailableError(what="git", reason="it is not on PATH", cure="Install git.") from error
        except subprocess.TimeoutExpired as error:
            reason = f"no answer within {SECONDS:g} s"
            raise GitError(action=arguments[0], place=str(self.place), reason=reason) from error


def _text(stream: bytes) -> str:
    """As text mode would read it: line ends unified, bytes that are no UTF-8 kept."""
    return stream.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


def _clean() -> dict[str, str]:
    """Our environment without what would point git elsewhere or make it ask a person."""
    own = {name: value for name, value in environment().items() if not name.startswith("GIT_")}
    return {**own, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def lock_repository(common: Path) -> AbstractContextManager[None]:
    """Let one process at a time change worktrees and branches."""
    return directory_lock(common, wait_seconds=LOCK_SECONDS)
