"""Where a command that changes a workspace gets its permit: from the gate, which whoever registers it hands in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from proctor.protocol.permits import Permit

__all__ = ["PermitSource"]


class PermitSource(Protocol):
    """Asks the gate for leave to do one call as the human at the terminal; raises RefusedError with the cure."""

    def __call__(self, *, tool: str, arguments: Mapping[str, object]) -> Permit:
        """Give a permit for exactly this call."""
        ...
