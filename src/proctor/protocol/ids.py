"""Identifiers: one NewType per noun that travels, and one maker of time-ordered names."""

from __future__ import annotations

import secrets
import time
from typing import NewType

__all__ = ["AgentName", "CallId", "ExecutorId", "PlanId", "SessionId", "TaskId", "TraceId", "new_id"]

TraceId = NewType("TraceId", str)
SessionId = NewType("SessionId", str)
TaskId = NewType("TaskId", str)
PlanId = NewType("PlanId", str)
CallId = NewType("CallId", str)
AgentName = NewType("AgentName", str)
ExecutorId = NewType("ExecutorId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base 32: no letter that looks like another
_PAIRS = [one + other for one in _ALPHABET for other in _ALPHABET]


def new_id(prefix: str, *, now_ms: int | None = None) -> str:
    """Make `<prefix>_<10 characters of time><10 of chance>`: sorts by creation, cannot be guessed."""
    millis = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return f"{prefix}_{_ten(millis)}{_ten(secrets.randbits(50))}"


def _ten(value: int) -> str:
    """The lowest 50 bits in ten characters."""
    return "".join([_PAIRS[value >> shift & 1023] for shift in (40, 30, 20, 10, 0)])
