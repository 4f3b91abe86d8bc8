"""Outputs made comparable: times, addresses and temporary names replaced, so that equal runs have equal hashes."""

from __future__ import annotations

import hashlib
import re
from typing import Final

__all__ = ["digest_text", "head_of", "plain_text"]

HEAD: Final = 4000
_CHANGES: Final = (
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"), "<time>"),
    (re.compile(r"\b\d+(?:\.\d+)?(?:e-?\d+)?\s?(?:ms|µs|us|ns|secs?|seconds?|minutes?|s|m)\b"), "<time>"),
    (re.compile(r"\b(duration(?:_ms)?|time|elapsed|cost)([\"':= ]+)\d+(?:\.\d+)?"), r"\1\2<time>"),
    (re.compile(r"\b0x[0-9a-fA-F]{6,}\b"), "<address>"),
    (re.compile(r"/tmp/[\w.-]+(?:/[\w.-]+)*"), "<temporary>"),  # noqa: S108 - a pattern
    (re.compile(r"\bpid[ =:]+\d+"), "pid <n>"),
)


def plain_text(text: str) -> str:
    """The text without what differs between two equal runs."""
    for pattern, replacement in _CHANGES:
        text = pattern.sub(replacement, text)
    return text


def digest_text(text: str) -> str:
    """SHA-256 of the comparable text, in hex."""
    return hashlib.sha256(plain_text(text).encode("utf-8", "surrogateescape")).hexdigest()


def head_of(text: str, cap: int = HEAD) -> str:
    """The beginning and, when it is long, the end, with a clear mark between: failures tell the reason last."""
    plain = plain_text(text).encode("utf-8", "replace").decode("utf-8", "replace")
    if len(plain) <= cap:
        return plain
    half = cap // 2
    return f"{plain[:half]}\n[… truncated: {len(plain) - 2 * half} characters left out …]\n{plain[-half:]}"
