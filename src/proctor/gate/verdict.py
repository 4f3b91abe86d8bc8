"""What the gate answers before anything runs: Allow, Ask or Deny, with a reason and a stable code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from proctor.gate.context import Confined
from proctor.gate.policy import Decision

__all__ = ["Allow", "Ask", "Deny", "Verdict"]


@dataclass(frozen=True, slots=True)
class Allow:
    """It may run, confined so."""

    confined: Confined = field(default_factory=Confined)
    reading: bool = False
    """Whether all its commands only read, so that nothing has to be saved first."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A person must answer first."""

    code: str
    reason: str
    rule: str
    irreversible: bool
    classes: tuple[str, ...]
    """What a grant would have to cover, all of it; empty when only this very call can be answered."""
    confined: Confined
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class Deny:
    """It does not run."""

    code: str
    reason: str
    rule: str
    cure: str = "`proctor policy explain` says more."


Verdict: TypeAlias = Allow | Ask | Deny
