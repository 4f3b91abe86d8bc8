"""Tools for façades that do not await: one call through the gate, as the person whose process this is.

Nothing is done here beside the gate. What the gate or the tool says against a call is raised as the built-in error that
callers of the seeds' functions expect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proctor.compat.house import House
from proctor.config import current_directory, find_workspace
from proctor.protocol.errors import ProctorError
from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Actor, Call, CallResult

__all__ = [
    "MissingError",
    "NotAllowedError",
    "WrongError",
    "call_tool",
    "output_of",
    "pass_gate",
    "workspace_here",
]

_NOT_FOUND: Final = 4
_REFUSED: Final = 5
_USAGE: Final = 2


class MissingError(ProctorError, FileNotFoundError):
    """{message}"""

    code = "not_found"
    exit_code = _NOT_FOUND


class NotAllowedError(ProctorError, PermissionError):
    """{message}"""

    code = "refused"
    exit_code = _REFUSED


class WrongError(ProctorError, ValueError):
    """{message}"""

    code = "usage"
    exit_code = _USAGE


class FailedError(ProctorError, OSError):
    """{message}"""

    code = "failed"


_KINDS: Final[Mapping[int, type[ProctorError]]] = {
    _NOT_FOUND: MissingError,
    _REFUSED: NotAllowedError,
    _USAGE: WrongError,
}


def workspace_here() -> Path:
    """The workspace the process stands in, as the commands find it."""
    place = current_directory()
    return find_workspace(place) or place


async def pass_gate(
    house: House, tool: str, inputs: Mapping[str, Any], *, workspace: Path | None = None
) -> CallResult:
    """Make one call as the person whose process this is."""
    settings = house.app.settings
    call = Call(
        tool=tool,
        inputs={name: value for name, value in inputs.items() if value is not None},
        actor=Actor(ActorKind.HUMAN, house.person().name),
        profile=settings.profile,
        workspace=workspace or workspace_here(),
    )
    try:
        return await house.app.gate.run(call)
    finally:
        if not house.app.registry.find(tool).read_only:
            # The request is over, so its snapshot is only kept as long as any other backup.
            await asyncio.shield(house.app.gate.finish_run(call.run_id))


def call_tool(
    house: House, tool: str, inputs: Mapping[str, Any], *, workspace: Path | None = None
) -> dict[str, Any]:
    """The same for callers that do not await; gives the output or raises."""
    return output_of(house.line.run(pass_gate(house, tool, inputs, workspace=workspace)))


def output_of(result: CallResult, message: str = "") -> dict[str, Any]:
    """The output of a call; what was said against it is raised, in `message`'s words where it was not found."""
    if result.waiting:
        raise NotAllowedError(message=f"It waits for an answer to {result.approval_id}: see `proctor inbox`.")
    if result.error is not None:
        missing = result.error.code == "not_found"
        kind = MissingError if missing else _KINDS.get(result.error.exit_code, FailedError)
        raise kind(message=message if missing and message else result.error.message)
    return dict(result.output or {})
