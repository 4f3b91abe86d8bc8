"""Limits as words: how much may be used, and an allowance that one piece of work brings along. Pure values.

Invariant: None means no limit; 0 means that nothing is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["Allowance", "Limits"]


def _none() -> Mapping[str, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be used; money in millionths of a dollar, time in milliseconds, all whole numbers."""

    calls: int | None = None
    tokens: int | None = None
    micro_usd: int | None = None
    millis: int | None = None
    domains: Mapping[str, int] = field(default_factory=_none)
    tools: Mapping[str, int] = field(default_factory=_none)
    warn_at: int = 80
    """The percentage of calls from which on a warning is due."""

    @property
    def unlimited(self) -> bool:
        """Whether nothing is limited at all."""
        whole = self.calls is self.tokens is self.micro_usd is self.millis is None
        return whole and not self.domains and not self.tools

    def of(self, bucket: str, amount: str) -> int | None:
        """The limit of one amount in one bucket: the empty one for all, `domain:…` or `tool:…`."""
        if not bucket:
            found: int | None = getattr(self, amount)
            return found
        if amount != "calls":
            return None
        kind, _, name = bucket.partition(":")
        return (self.domains if kind == "domain" else self.tools).get(name)


@dataclass(frozen=True, slots=True)
class Allowance:
    """A budget that work brings along beside those of profile, session and task: one more node of the tree."""

    name: str
    """Calls that name the same allowance share it."""
    limits: Limits

    @property
    def node_id(self) -> str:
        """Its place in the tree; sorts behind the profile, which is locked first."""
        return f"share:{self.name}"
