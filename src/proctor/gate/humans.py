"""Who answers must be a person: whoever can show the token that only the user's own processes can read (law 8).

The sandbox hides the token file from agents from level 2 on; below that a mark in the environment of everything Proctor
starts is all there is, and `proctor doctor` says so.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.protocol.errors import RefusedError

__all__ = [
    "MARKS",
    "TASK_TOKEN",
    "Human",
    "NotHumanError",
    "human_with_token",
    "load_token",
    "user_at_terminal",
]

TASK_TOKEN: Final = "PROCTOR_TASK_TOKEN"  # noqa: S105 - its name, not its value
"""The variable that holds the token of an agent's attempt (gate.task_tokens)."""
# Set for every command and agent that Proctor starts (sandbox.process, agents.identity, engine.attempts).
MARKS: Final = ("PROCTOR_RUN", "PROCTOR_ATTEMPT_MARK", TASK_TOKEN)
_BYTES: Final = 32
_CAP: Final = 4096
_made = secrets.token_bytes(16)


class NotHumanError(RefusedError):
    """Refused: only a person may answer ({reason}). Answer in your own terminal, or with the token in {token_file}."""

    code = "not_human"


@dataclass(frozen=True, slots=True)
class Human:
    """A person who was recognised; made only by this module."""

    name: str
    proof: bytes

    def __post_init__(self) -> None:
        if not hmac.compare_digest(self.proof, _proof(self.name)):
            raise NotHumanError(reason="nobody was recognised", token_file=Path("token"))


def _proof(name: str) -> bytes:
    return hmac.digest(_made, name.encode("utf-8", "surrogateescape"), "sha256")


def load_token(path: Path) -> str:
    """Read the user's token; the first who asks makes it, readable by nobody else."""
    with suppress(FileExistsError):
        if not path.exists():
            _make(path)
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        reason = "the token file is not a file that only you can read"
        raise NotHumanError(reason=reason, token_file=path)
    with path.open("rb") as file:
        token = file.read(_CAP).decode("ascii", "replace").strip()
    if len(token) < _BYTES:
        raise NotHumanError(reason="the token file is damaged; remove it", token_file=path)
    return token


def _make(path: Path) -> None:
    """Put a whole file in place, so that nobody ever reads half a token."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".token.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(temporary)
    finally:
        Path(temporary).unlink()


def human_with_token(presented: str, *, token_file: Path, name: str) -> Human:
    """Recognise who shows the token, as a request over the network does."""
    if not hmac.compare_digest(presented.encode("utf-8", "replace"), load_token(token_file).encode()):
        raise NotHumanError(reason="the token is wrong", token_file=token_file)
    return Human(name, _proof(name))


def user_at_terminal(environ: Mapping[str, str], *, token_file: Path, name: str) -> Human:
    """Recognise the user of a command: can read the token, and is not a child of something Proctor started."""
    for mark in MARKS:
        if mark in environ:
            reason = "this command was started by an agent or by Proctor itself"
            raise NotHumanError(reason=reason, token_file=token_file)
    try:
        load_token(token_file)
    except OSError as error:
        reason = f"the token cannot be read: {error.strerror}; `proctor doctor` says why"
        raise NotHumanError(reason=reason, token_file=token_file) from error
    return Human(name, _proof(name))
