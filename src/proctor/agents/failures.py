"""Failure texts of the real CLIs, as data: a pattern and the class the recovery acts on.

Looked for only in terminal events and stderr, never in what the agent says or in the files it reads.
"""

from __future__ import annotations

import re

from proctor.agents.driver import Failure

__all__ = ["from_http_status", "from_text"]

# Order matters: the first match wins, so the specific ones come first.
_PATTERNS: tuple[tuple[Failure, re.Pattern[str]], ...] = tuple(
    (failure, re.compile(pattern, re.IGNORECASE))
    for failure, pattern in (
        (Failure.DIRECTORY, r"--skip-git-repo-check|not inside a trusted directory|workspace directories"),
        (Failure.QUOTA, r"quota exceeded|insufficient_quota|usage limit|usage_limit_reached"),
        (Failure.CONTEXT, r"prompt is too long|context window|context_length|maximum context length"),
        (Failure.RATE_LIMIT, r"\b429\b|rate.?limit|too many requests"),
        (
            Failure.AUTH,
            r"\b40[13]\b|not logged in|failed to authenticate|unauthorized|missing environment variable"
            r"|missing api key|invalid auth method|must specify the \w+ environment variable",
        ),
        (Failure.MODEL, r"issue with the selected model|model_?not_?found|modelnotfound"),
        (Failure.OVERLOADED, r"overloaded|high demand|\b5(00|02|03|29)\b|internal server error"),
        (
            Failure.NETWORK,
            r"econnrefused|connection (refused|failed|error)|fetch failed|stream disconnected"
            r"|timed out|enotfound",
        ),
        (Failure.LIMIT, r"max(imum)? (number of )?turns|budget"),
        (Failure.LAUNCH, r"unknown option|unexpected argument|cannot be used with root"),
    )
)


def from_text(text: str) -> Failure:
    """Classify a terminal message or stderr; NONE when nothing is known about it."""
    return next((failure for failure, pattern in _PATTERNS if pattern.search(text)), Failure.NONE)


def from_http_status(status: int) -> Failure:
    """Classify the status of a refused API request."""
    known = {
        401: Failure.AUTH,
        403: Failure.AUTH,
        404: Failure.MODEL,
        429: Failure.RATE_LIMIT,
        413: Failure.CONTEXT,
    }
    return known.get(status, Failure.OVERLOADED if status >= 500 else Failure.NONE)
