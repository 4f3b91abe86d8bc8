"""How a profile bends the policy: which kinds of allowed commands are free, and what outside and unanswered mean.

Invariant: no posture turns a deny or an irreversible ask into an allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proctor.gate.policy.decision import Effect, Kind
from proctor.protocol.errors import UsageError

__all__ = ["POSTURES", "Posture", "posture_of"]


@dataclass(frozen=True, slots=True)
class Posture:
    """One profile's view of commands and paths."""

    name: str
    free: frozenset[Kind]
    asks: bool = True
    outside: Effect = Effect.ASK


_ALL: Final = frozenset(Kind)

POSTURES: Final[dict[str, Posture]] = {
    posture.name: posture
    for posture in (
        Posture("standard", _ALL),
        Posture("careful", frozenset({Kind.READ})),
        Posture("unattended", _ALL, asks=False, outside=Effect.DENY),
        Posture("enterprise", frozenset({Kind.READ}), outside=Effect.DENY),
        Posture("smb", frozenset({Kind.READ, Kind.EDIT})),
        Posture("technical", _ALL),
    )
}


def posture_of(profile: str | Posture) -> Posture:
    """Find the posture of a profile by name; a custom profile passes its own."""
    if isinstance(profile, Posture):
        return profile
    try:
        return POSTURES[profile]
    except KeyError:
        raise UsageError(
            message=f"There is no profile {profile!r}; take one of {', '.join(POSTURES)}."
        ) from None
