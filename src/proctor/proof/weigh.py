"""What the static checks found against what the runs showed: a green run is what a hollow change wants. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proctor.proof.change import Change
from proctor.proof.hollow.model import HollowFinding, HollowKind, HollowWeight
from proctor.proof.judgement import ACCEPTED, Word

__all__ = ["is_doubt", "settles", "weighed", "without_effect"]

_SHOWN: Final = 5
#: Doubts about new tests themselves: that old ones pass says nothing about them.
_UNSETTLED: Final = frozenset({HollowKind.STAGED, HollowKind.INERT})


def weighed(
    word: Word, reasons: list[str], findings: Sequence[HollowFinding]
) -> tuple[Word, list[str], bool]:
    """The word and its reasons after the findings, and whether a person must look."""
    hollow = [f"hollow: {finding}" for finding in findings if finding.weight is HollowWeight.REFUTES]
    if hollow:
        return Word.REFUTED, [*hollow[:_SHOWN], *reasons], False
    doubts = [f"look at this: {finding}" for finding in findings if is_doubt(finding)]
    if doubts and word in ACCEPTED:
        return Word.INCONCLUSIVE, [*doubts[:_SHOWN], *reasons], True
    return word, [*reasons, *doubts[:_SHOWN]], False


def is_doubt(finding: HollowFinding) -> bool:
    """Whether a person would have to look."""
    return finding.weight is HollowWeight.SUSPICIOUS


def settles(finding: HollowFinding) -> bool:
    """Whether a run of the tests as they were can settle the doubt."""
    return is_doubt(finding) and finding.kind not in _UNSETTLED


def without_effect(change: Change, why: str) -> HollowFinding:
    """The finding that tests tell before from after although no run could notice the change."""
    path = next(file.path for file in change.files if file.kind.value == "source")
    said = f"{why}, and yet the tests tell before from after: they look for the change, not at what it does"
    return HollowFinding(HollowKind.INERT, HollowWeight.SUSPICIOUS, path, 1, said)
