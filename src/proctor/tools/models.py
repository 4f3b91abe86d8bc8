"""What all families share: how inputs and outputs are shaped, and how the disk's errors become sentences.

Invariant: unknown parameters are refused, and every output says whether it is simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from proctor.protocol.errors import RefusedError

__all__ = [
    "MARK",
    "Moment",
    "NothingIn",
    "PathText",
    "Stored",
    "ToolInput",
    "ToolOutput",
    "disk_errors",
    "json_text",
    "moment_of",
    "now",
    "to_its_end",
]

T = TypeVar("T")

MARK = "SIMULATED"
"""Stands in every text that a mock adapter made up."""
MAX_TEXT = 16 * 1024 * 1024


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL character cannot be stored")
    return text


PathText = Annotated[str, Field(min_length=1, max_length=4096)]
Stored = AfterValidator(_without_nul)
"""Marks text that goes into a row: PostgreSQL takes no NUL."""
Moment = datetime


class ToolInput(BaseModel):
    """What a caller may say; anything else is refused."""

    # With a longest length pydantic looks at every character, so half a character (a lone surrogate) is refused too.
    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=MAX_TEXT)


class NothingIn(ToolInput):
    """Nothing to say."""


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


def json_text(path: str) -> str:
    """A name as JSON can carry it: bytes that are not UTF-8 become \\xNN."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


async def to_its_end(function: Callable[[], T]) -> T:
    """Do it in a thread and never leave it alone: who is cancelled meanwhile hears so when it is over."""
    future = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise
