"""What a proof says: one word of the ladder, refuted, or inconclusive; the reasons; and everything it was seen in.

Only `proven` is called proven. `needs_you` asks for a person's look where no run can decide, for example edited checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proctor.proof.cover import Coverage
from proctor.proof.legs import Leg
from proctor.proof.subject import Subject
from proctor.protocol.decisions import Proof, Severity, Verdict, verdict_of_proof

__all__ = ["ACCEPTED", "Judgement", "Word", "exit_code_of"]


class Word(StrEnum):
    """The words a proof can end with."""

    PROVEN = "proven"
    PRESERVED = "preserved"
    CHECKED = "checked"
    SHOWN = "shown"
    NOT_APPLICABLE = "not applicable"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


#: Words that do not stand in a change's way.
ACCEPTED = frozenset({Word.PROVEN, Word.PRESERVED, Word.CHECKED, Word.SHOWN, Word.NOT_APPLICABLE})


@dataclass(frozen=True, slots=True)
class Judgement:
    """The word, why, and on what it rests."""

    word: Word
    reasons: tuple[str, ...]
    kind: str
    kind_reason: str
    subject: Subject
    commands: tuple[str, ...] = ()
    legs: tuple[Leg, ...] = ()
    evidence: tuple[str, ...] = ()
    weak: bool = False
    notes: tuple[str, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()
    coverage: Coverage | None = None
    needs_you: bool = False
    pictures: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""

    @property
    def proof(self) -> Proof:
        """As the decision policy knows it; a word of the ladder below proven says nothing there."""
        if self.word is Word.REFUTED:
            return Proof.REFUTED
        return Proof.PROVEN if self.word is Word.PROVEN else Proof.INCONCLUSIVE

    def verdict(self, severity: Severity, target: str) -> Verdict | None:
        """What follows for a fix of this severity: blocker, concern or warning when it is refuted."""
        return verdict_of_proof(self.proof, severity, target=target)


def exit_code_of(words: list[Word], *, needs_you: bool = False) -> int:
    """0 when everything holds, 1 when something is refuted, 3 when a person must look, 8 when it stays open."""
    if Word.REFUTED in words:
        return 1
    if needs_you:
        return 3
    return 8 if Word.INCONCLUSIVE in words else 0
