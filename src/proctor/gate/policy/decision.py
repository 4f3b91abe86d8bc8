"""What the policy answers: allow, ask or deny, by which rule, why, and what each part of a command resolved to.

Invariant: `Effect` is ordered by strictness, and joining decisions can only make them stricter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

__all__ = ["Decision", "Effect", "Finding", "Kind", "Part"]


class Effect(StrEnum):
    """The three answers, least strict first."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def rank(self) -> int:
        """How strict the answer is; the highest one wins."""
        return _RANK[self]


_RANK = {Effect.ALLOW: 0, Effect.ASK: 1, Effect.DENY: 2}


class Kind(IntEnum):
    """What an allowed command does inside the sandbox; a profile says which kinds are free."""

    READ = 0
    EDIT = 1
    RUN = 2


class Finding(NamedTuple):
    """One thing that was noticed, with its weight."""

    effect: Effect
    rule: str
    reason: str
    irreversible: bool = False
    kind: Kind = Kind.READ


@dataclass(frozen=True, slots=True)
class Part:
    """One simple command after quoting and wrappers, or one redirect; None stands for a word known only at run time."""

    argv: tuple[str | None, ...]
    effect: Effect
    rule: str
    reason: str
    kind: Kind = Kind.READ


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for one command line or one path."""

    effect: Effect
    rule: str
    reason: str
    code: str
    irreversible: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether it may run without a question."""
        return self.effect is Effect.ALLOW

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain values, for JSON."""
        return {
            "effect": self.effect.value,
            "rule": self.rule,
            "reason": self.reason,
            "code": self.code,
            "irreversible": self.irreversible,
            "parts": [
                {
                    "argv": list(part.argv),
                    "effect": part.effect.value,
                    "rule": part.rule,
                    "reason": part.reason,
                }
                for part in self.parts
            ],
        }
