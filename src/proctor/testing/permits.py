"""Permits for tests and rehearsals, minted through the gate's own door; no product code imports this."""

from __future__ import annotations

import hashlib
import time

from proctor.protocol.events import ActorKind
from proctor.protocol.ids import CallId, new_id
from proctor.protocol.permits import Permit, mint_permit

__all__ = ["permit_for_tests"]


def permit_for_tests(
    tool: str = "execute_command",
    *,
    actor: ActorKind = ActorKind.PROCTOR,
    content: str = "",
    seconds: float = 60.0,
    single_use: bool = True,
) -> Permit:
    """Mint a permit for one call of a test."""
    return mint_permit(
        call_id=CallId(new_id("call")),
        tool=tool,
        actor=actor,
        actor_name="tests",
        content_hash=hashlib.sha256(content.encode()).hexdigest(),
        expires=time.monotonic() + seconds,
        single_use=single_use,
    )
