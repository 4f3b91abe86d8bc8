"""The pure decision policy: verdicts in, one action out. No clock, no I/O, no agent.

Order of seed 003: any blocker stops; a majority of concerns pauses; one concern is logged; otherwise go on.
No verdict at all is never CONTINUE (SPEC.md section 5, item 47).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Action", "Decision", "Proof", "Severity", "Verdict", "VerdictKind", "decide", "verdict_of_proof"]


class VerdictKind(StrEnum):
    """A reviewer's judgement."""

    APPROVED = "approved"
    WARNING = "warning"
    CONCERNS = "concerns"
    BLOCKER = "blocker"


class Action(StrEnum):
    """What Proctor does about the verdicts."""

    CONTINUE = "CONTINUE"
    LOG_WARNING = "LOG_WARNING"
    PAUSE_AND_CLARIFY = "PAUSE_AND_CLARIFY"
    STOP_AND_ESCALATE = "STOP_AND_ESCALATE"


class Severity(StrEnum):
    """How bad the thing is that a fix was to mend."""

    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"


class Proof(StrEnum):
    """Three-valued truth."""

    PROVEN = "proven"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One reviewer's word on one target."""

    reviewer: str
    target: str
    kind: VerdictKind
    issues: tuple[str, ...] = ()
    recommendations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows, why, and what a person can do next."""

    action: Action
    reason: str
    next_steps: tuple[str, ...]


def verdict_of_proof(proof: Proof, severity: Severity, *, target: str) -> Verdict | None:
    """Turn a refuted fix into a verdict; proven and inconclusive ones say nothing here."""
    if proof is not Proof.REFUTED:
        return None
    kinds = {
        Severity.CRITICAL: VerdictKind.BLOCKER,
        Severity.MAJOR: VerdictKind.CONCERNS,
        Severity.MINOR: VerdictKind.WARNING,
    }
    return Verdict(
        reviewer="proctor", target=target, kind=kinds[severity], issues=(f"{severity} fix refuted",)
    )


def decide(verdicts: Sequence[Verdict]) -> Decision:
    """Apply the policy in the seed's order; the answer does not depend on the order of the verdicts."""
    if not verdicts:
        return Decision(
            Action.PAUSE_AND_CLARIFY, "no verdict was given", ("ask for a review again", "decide yourself")
        )
    blockers = _named(verdicts, VerdictKind.BLOCKER)
    concerns = _named(verdicts, VerdictKind.CONCERNS)
    warnings = _named(verdicts, VerdictKind.WARNING)
    if blockers:
        return Decision(
            Action.STOP_AND_ESCALATE, f"blocker from {_list(blockers)}", ("retry", "fixed by hand", "abort")
        )
    if len(concerns) >= 2:
        return Decision(
            Action.PAUSE_AND_CLARIFY, f"concerns from {_list(concerns)}", ("clarify", "review again")
        )
    if concerns:
        return Decision(
            Action.LOG_WARNING, f"one concern, from {_list(concerns)}", ("review again in 10 minutes",)
        )
    if warnings:
        return Decision(Action.LOG_WARNING, f"warning from {_list(warnings)}", ())
    return Decision(Action.CONTINUE, f"approved by {_list(_named(verdicts, VerdictKind.APPROVED))}", ())


def _named(verdicts: Sequence[Verdict], kind: VerdictKind) -> list[str]:
    return sorted(verdict.reviewer for verdict in verdicts if verdict.kind is kind)


def _list(names: list[str]) -> str:
    """Each name once, with how often it spoke."""
    counted = {name: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(name if times == 1 else f"{name} ({times} times)" for name, times in counted.items())
