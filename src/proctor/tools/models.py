"""What all families share: how inputs and outputs are shaped, and how the disk's errors become sentences.

Invariant: unknown parameters are refused, and every output says whether it is simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from proctor.protocol.errors import RefusedError

__all__ = ["MARK", "Moment", "PathText", "ToolInput", "ToolOutput", "disk_errors", "moment_of", "now"]

MARK = "SIMULATED"
"""Stands in every text that a mock adapter made up."""

PathText = Annotated[str, Field(min_length=1, max_length=4096)]
Moment = datetime


class ToolInput(BaseModel):
    """What a caller may say; anything else is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolOutput(BaseModel):
    """What a tool answers."""

    model_config = ConfigDict(frozen=True)

    simulated: bool = Field(default=False, description="Whether a mock adapter made this up.")


def now() -> datetime:
    """The present moment, in UTC."""
    return datetime.now(UTC)


def moment_of(seconds: float) -> datetime:
    """Turn a file's time into a moment; one that no calendar holds becomes the first of 1970."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Say in one sentence what the disk, or a name no file system takes, did not let us do."""
    try:
        yield
    except OSError as error:
        reason = f"{path[:200]!r}: {error.strerror or type(error).__name__}"
        raise RefusedError(reason=reason, cure="Check the name, its rights and the space left.") from error
    except UnicodeError as error:
        raise RefusedError(reason=f"{path[:200]!r} is no file name", cure="Name an existing one.") from error
