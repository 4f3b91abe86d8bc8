"""What the static checks found against what the runs showed: a green run is what a hollow change wants. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proctor.proof.change import Change
from proctor.proof.hollow.model import HollowFinding, HollowKind, HollowWeight
from proctor.proof.judgement import ACCEPTED, Word

__all__ = ["is_doubt", "settles", "weigh_edited", "weigh_lost", "weighed", "without_effect"]

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


def weigh_lost(path: str, skipped: Sequence[str], gone: Sequence[str]) -> list[HollowFinding]:
    """What runs tell of tests that passed at the base and do not run any more."""
    return [
        *_told(HollowKind.TEST_SKIPPED, path, skipped, "passed before the change and is skipped now"),
        *_told(HollowKind.TEST_DELETED, path, gone, "passed before the change and is not run any more"),
    ]


def weigh_edited(path: str, names: Sequence[str], broken: Sequence[str]) -> list[HollowFinding]:
    """What runs tell of tests that pass only as the change edited them."""
    only = "failed before and passes only as the change edited the tests, not as they were"
    edited = "passed before, fails with the change as it was, and was edited to pass"
    return [
        *_told(HollowKind.TEST_WEAKENED, path, names, only),
        *_told(HollowKind.TEST_WEAKENED, path, broken, edited),
    ]


def _told(kind: HollowKind, path: str, names: Sequence[str], what: str) -> list[HollowFinding]:
    """One finding about all these tests; none without any."""
    return [HollowFinding(kind, HollowWeight.SUSPICIOUS, path, 1, f"{_some(names)} {what}")] if names else []


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
