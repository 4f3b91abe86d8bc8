"""Lists of names written as plain text, one blank between two."""

from __future__ import annotations

__all__ = ["listed"]


def listed(text: str) -> frozenset[str]:
    """Read a list of names."""
    return frozenset(text.split())
