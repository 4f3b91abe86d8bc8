"""What a tool's handler gets for one call: the permit, where it may work, how it is confined, and how to report.

A handler takes everything from here and nothing from the process: no environment, no current directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from proctor.config import Settings
from proctor.protocol.errors import UsageError
from proctor.protocol.permits import Permit
from proctor.protocol.tools import Call, Usage
from proctor.sandbox.spec import Level, Network
from proctor.store.database import Database
from proctor.trace.writer import TraceWriter

__all__ = ["Confined", "Context", "ProgressCallback"]

ProgressCallback = Callable[[str, float | None], None]  # what is being done, and how much of it (0 to 1)


@dataclass(frozen=True, slots=True)
class Confined:
    """How a command of this call must be confined: pass all of it on in `sandbox.Spec`."""

    level_required: Level = Level.LANDLOCK
    network: Network = Network.OFF
    hosts: tuple[str, ...] = ()
    hosts_optional: bool = False


def _no_progress(_what: str, _share: float | None) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class Meter:
    """What a handler says it has used so far."""

    used: Usage | None = None

    def charge(self, usage: Usage) -> None:
        """Add to what was used; a price that is not known stays unknown."""
        before = self.used or Usage()
        known = before.micro_usd is not None and usage.micro_usd is not None
        self.used = Usage(
            tokens=before.tokens + usage.tokens,
            micro_usd=(before.micro_usd or 0) + (usage.micro_usd or 0) if known else None,
            plan_micro_usd=before.plan_micro_usd + usage.plan_micro_usd,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One call, seen from its handler."""

    call: Call
    permit: Permit
    settings: Settings
    database: Database
    """For `database.read()`; what must be written goes through `writer.transact_async`, with its events."""
    writer: TraceWriter
    confined: Confined = field(default_factory=Confined)
    seconds: float = 300.0
    """How long the call may take; pass it on as the limit of a command."""
    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the caller wants it ended; a handler that waits looks at it or passes it on."""
    progress: ProgressCallback = _no_progress
    meter: Meter = field(default_factory=Meter)

    @property
    def root(self) -> Path:
        """The directory the call may work in; a tool that needs none does not ask."""
        if self.call.workspace is None:
            raise UsageError(
                message="This needs a workspace. Run it inside a project, or name its directory."
            )
        return self.call.workspace

    def charge(self, usage: Usage) -> None:
        """Say what was used; may be called often. Without it the estimate is charged."""
        self.meter.charge(usage)
