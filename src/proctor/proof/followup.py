"""Follow-up files: the same review, the next number, the file before named, and the fixes that are still open.

Pure: makes the content; writing it under the next free number is the exchange's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from proctor.proof.fixfile import FixDocument
from proctor.proof.mend import INSTRUCTIONS
from proctor.proof.names import FileNameError, parse_name, snake_case
from proctor.proof.verdicts import Judgement
from proctor.protocol.errors import NotFoundError

__all__ = ["focus_of", "followup", "open_fixes", "render_fix_file"]

_OPEN: Final = frozenset({"FAILED", "PARTIALLY_FIXED"})


def open_fixes(document: FixDocument, judgements: Mapping[str, Judgement] | None = None) -> list[int]:
    """Places of the fixes that go on: failed, done in part, refuted, or never answered."""
    told = judgements or {}
    return [
        index
        for index, fix in enumerate(document.fixes)
        if fix.result is None
        or fix.result.status in _OPEN
        or (str(fix.id) in told and told[str(fix.id)].follow_up)
    ]


def followup(
    document: FixDocument, *, date: str, judgements: Mapping[str, Judgement] | None = None
) -> dict[str, Any]:
    """Make the content of the next file of a cycle; with nothing open there is none."""
    places = open_fixes(document, judgements)
    if not places:
        raise NotFoundError(
            kind="open fix in", name=document.name, cure="Nothing failed and nothing was refuted."
        )
    told = judgements or {}
    data = document.data
    head = {
        name: value
        for name, value in document.source.value.items()
        if name not in {"fixes", "date", "instructions", "previous_file"}
    }
    return {
        **head,
        "date": date,
        "instructions": f"Follow-up of {document.name}: these fixes are still open. {INSTRUCTIONS}",
        "previous_file": document.name,
        "fixes": [_carried(document, index, told.get(str(data.fixes[index].id))) for index in places],
    }


def _carried(document: FixDocument, index: int, judgement: Judgement | None) -> dict[str, Any]:
    """A fix as it was asked for, with what came of it; its old result would look like an answer."""
    fix = {
        name: value
        for name, value in document.raw_fix(index).items()
        if name not in {"result", "previous_result"}
    }
    result = document.fixes[index].result
    said: dict[str, Any] = {"status": result.status if result else "not answered"}
    if result is not None:
        kept = ("finding", "problems_encountered", "verification_command")
        said |= {name: value for name in kept if (value := getattr(result, name)) is not None}
    if judgement is not None:
        said |= {"verdict": judgement.proof.value, "reason": judgement.reason}
    return {**fix, "previous_result": said}


def focus_of(document: FixDocument) -> str:
    """The focus area a follow-up is named by: that of the file, else of the component."""
    try:
        return parse_name(document.name).focus
    except FileNameError:
        return snake_case(document.data.component)


def render_fix_file(content: Mapping[str, Any]) -> str:
    """Write the content of a fix file as text."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
