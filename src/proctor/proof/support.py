"""Whether a receipt's word follows from its runs: what was seen again must be what the word stands for.

A receipt travels through other hands. Its digest tells that it is whole, not that it is true: anybody can write one. So
the runs are weighed anew, and what the change did to its judges is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from proctor.proof.change import Change
from proctor.proof.hollow import HollowWeight, find_hollow
from proctor.proof.judgement import Word
from proctor.proof.legs import Leg
from proctor.proof.subject import parts_of

__all__ = ["unsupported"]

_SAME: Final = frozenset({"NO_CHANGE_NEEDED", "ALREADY_IMPLEMENTED"})


def unsupported(receipt: Mapping[str, Any], change: Change, legs: Sequence[Leg]) -> str:
    """Say what is missing for the word of the receipt; nothing when its runs show it."""
    word, by = receipt["verdict"], {leg.name: leg for leg in reversed(legs)}
    if word == Word.PRESERVED:
        both = all(name in by and by[name].reading.sound for name in ("after", "base"))
        return "" if both else "there is no run on both sides"
    if word != Word.PROVEN:
        return ""
    fix = receipt.get("fix")
    status = fix.get("status") if isinstance(fix, Mapping) else None
    if status in _SAME:
        right = "base" in by and by["base"].passed and by["base"].tree == receipt["change"]["base_tree"]
        return "" if right else "no check passes at the base"
    parts = parts_of(change.diff)
    judged = {*parts.source, *parts.rest, *([str(fix.get("file"))] if isinstance(fix, Mapping) else [])}
    return _proof(by, _taken(receipt), judged) or _hollow(receipt, change, fix)


def _taken(receipt: Mapping[str, Any]) -> dict[str, set[str]]:
    """Which paths of the change each leg had."""
    return {str(leg["name"]): set(leg["recipe"].get("paths") or ()) for leg in reversed(receipt["legs"])}


def _proof(by: Mapping[str, Leg], taken: Mapping[str, set[str]], judged: set[str]) -> str:
    before, after = by.get("before"), by.get("after")
    if before is None or after is None:
        return "there is no run with and without the change"
    # A slow suite may be cut to the tests of the change without it, which only adds words to the command.
    commands = zip([one.command for one in before.ran], [one.command for one in after.ran], strict=False)
    if len(before.ran) != len(after.ran) or not all(one.startswith(other) for one, other in commands):
        return "with and without the change other commands were run"
    if not (taken["after"] - taken["before"]) & judged:
        return "nothing of the code differs between its runs"
    if not before.reading.turned_green(after.reading):
        return "no test fails without the change and passes with it"
    return ""


def _hollow(receipt: Mapping[str, Any], change: Change, fix: object) -> str:
    findings = [
        one
        for one in find_hollow(change, [str(line) for line in receipt["commands"]])
        if one.weight is HollowWeight.REFUTES
    ]
    if isinstance(fix, Mapping):
        source = set(parts_of(change.diff).source)
        findings = [one for one in findings if one.file == fix.get("file") or one.file not in source]
    return f"hollow: {findings[0]}" if findings else ""
