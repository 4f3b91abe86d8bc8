"""Limits of a budget and the nodes they hang on: profile and day → session → task. Pure values.

Invariant: None means no limit; 0 means that nothing is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from proctor.protocol.limits import Limits

__all__ = ["AMOUNTS", "TOTAL", "WARN_AT", "Limits", "Node", "domain_bucket", "tighter", "tool_bucket"]

AMOUNTS: Final = ("calls", "tokens", "micro_usd", "millis")
TOTAL: Final = ""
WARN_AT: Final = 80  # percent, of tokens, money and time


def domain_bucket(domain: str) -> str:
    """The bucket of all calls of one domain."""
    return f"domain:{domain}"


def tool_bucket(tool: str) -> str:
    """The bucket of all calls of one tool."""
    return f"tool:{tool}"


@dataclass(frozen=True, slots=True)
class Node:
    """One place of the tree; its parent counts everything it counts."""

    node_id: str
    kind: str  # profile, session, task; an allowance counts as a task
    limits: Limits = field(default_factory=Limits)

    def bucket_id(self, bucket: str) -> str:
        """The key of one of its rows."""
        return f"{self.node_id}/{bucket}"


def tighter(one: Limits, other: Limits) -> Limits:
    """Both at once: the smaller of each."""
    return Limits(
        calls=_least(one.calls, other.calls),
        tokens=_least(one.tokens, other.tokens),
        micro_usd=_least(one.micro_usd, other.micro_usd),
        millis=_least(one.millis, other.millis),
        domains=_both(one.domains, other.domains),
        tools=_both(one.tools, other.tools),
        warn_at=min(one.warn_at, other.warn_at),
    )


def _least(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return min(known, default=None)


def _both(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    names = {*one, *other}
    return MappingProxyType({name: min(t[name] for t in (one, other) if name in t) for name in names})
