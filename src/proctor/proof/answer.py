"""What an executor answers: the `result` of a fix found in its own words, and the words it is asked with. Pure.

An answer that does not fit the contract counts as none; no answer is a failed fix, never a finished one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from proctor.proof.schema import Fix, FixFile, Result

__all__ = ["no_answer", "prompt_for", "result_in", "with_origin"]

MAX_TEXT: Final = 1 << 20
_MEMBERS: Final = (
    *("status", "changes_made", "finding", "problems_encountered", "solution", "verification_command"),
    "hallucination_check",
)
_ASK: Final = """\
Mend this one thing in the repository and nothing else. Commit nothing; your edits are taken as they are.

file: {file}
line: {line}
severity: {severity}
issue: {issue}
fix: {fix}
verification: {verification}

End with one JSON object on its own lines, exactly these members:
{{"status": "FIXED | NO_CHANGE_NEEDED | ALREADY_IMPLEMENTED | PARTIALLY_FIXED | FAILED",
 "changes_made": ["Line N: what was changed"], "finding": "only if nothing was changed",
 "verification_command": "one line of bash that fails without your change and passes with it, from any directory",
 "hallucination_check": "one line of bash that shows that the change is in the code"}}
Name files by their whole path below {root}.
"""


def prompt_for(data: FixFile, fix: Fix, root: str) -> str:
    """The task of one fix in words an agent understands."""
    facts = {name: getattr(fix, name) for name in ("file", "line", "issue", "fix", "verification")}
    asked = _ASK.format(**facts, severity=fix.severity.value, root=root)
    return f"Fix {fix.id} of {data.review_id} ({data.component}).\n\n{asked}"


def result_in(texts: Sequence[str]) -> dict[str, Any] | None:
    """The last thing said that is a result as the contract wants it."""
    for text in reversed(texts):
        for value in reversed(list(_objects(text[-MAX_TEXT:]))):
            inner = value.get("result", value)
            if not isinstance(inner, dict):
                continue
            chosen = {name: inner[name] for name in _MEMBERS if inner.get(name) is not None}
            try:
                Result.model_validate(chosen)
            except ValidationError:
                continue
            return chosen
    return None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        if isinstance(value, dict):
            yield value
        at = text.find("{", end)


def no_answer(reason: str) -> dict[str, Any]:
    """What is written for an executor that gave no usable answer; its commands always say no."""
    return {
        "status": "FAILED",
        "verification_command": "false",
        "hallucination_check": "false",
        "finding": "There is no usable answer.",
        "problems_encountered": [reason],
    }


def with_origin(result: Mapping[str, Any], **facts: object) -> dict[str, Any]:
    """The result with where it comes from: agent, task, commit, branch, and whether it was simulated."""
    return {**result, **{name: value for name, value in facts.items() if value}}
