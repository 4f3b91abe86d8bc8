"""The decision policy: the seed's order, no verdict is never consent, order of verdicts does not matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.protocol.decisions import Action, Proof, Severity, Verdict, VerdictKind, decide, verdict_of_proof

verdicts = st.lists(
    st.builds(Verdict, st.sampled_from(["a", "b", "c", "d"]), st.just("t"), st.sampled_from(VerdictKind))
)


def _of(*kinds: VerdictKind) -> list[Verdict]:
    return [Verdict(f"r{i}", "t", kind) for i, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("kinds", "action"),
    [
        ((), Action.PAUSE_AND_CLARIFY),
        ((VerdictKind.APPROVED,), Action.CONTINUE),
        ((VerdictKind.CONCERNS, VerdictKind.APPROVED), Action.LOG_WARNING),
        ((VerdictKind.WARNING, VerdictKind.APPROVED), Action.LOG_WARNING),
        ((VerdictKind.CONCERNS, VerdictKind.CONCERNS), Action.PAUSE_AND_CLARIFY),
        ((VerdictKind.BLOCKER, VerdictKind.CONCERNS, VerdictKind.CONCERNS), Action.STOP_AND_ESCALATE),
    ],
)
def test_policy_follows_the_seeds_order(kinds: tuple[VerdictKind, ...], action: Action) -> None:
    """Blocker, then majority of concerns, then one concern, then go on; nothing said pauses."""
    assert decide(_of(*kinds)).action is action


@given(verdicts, st.randoms())
def test_order_of_verdicts_does_not_matter(given_verdicts: list[Verdict], random: object) -> None:
    """The same verdicts in any order give the same decision."""
    shuffled = sorted(given_verdicts, key=lambda verdict: (verdict.kind, verdict.reviewer))
    assert decide(given_verdicts) == decide(shuffled)


@given(verdicts)
def test_one_more_blocker_never_softens_the_answer(given_verdicts: list[Verdict]) -> None:
    """Adding a blocker always stops."""
    assert (
        decide([*given_verdicts, Verdict("x", "t", VerdictKind.BLOCKER)]).action is Action.STOP_AND_ESCALATE
    )


@pytest.mark.parametrize(
    ("severity", "kind"),
    [
        (Severity.CRITICAL, VerdictKind.BLOCKER),
        (Severity.MAJOR, VerdictKind.CONCERNS),
        (Severity.MINOR, VerdictKind.WARNING),
    ],
)
def test_refuted_fixes_weigh_by_severity(severity: Severity, kind: VerdictKind) -> None:
    """A refuted critical fix blocks, a major one is a concern, a minor one a warning."""
    verdict = verdict_of_proof(Proof.REFUTED, severity, target="fix 1")
    assert verdict is not None
    assert verdict.kind is kind


@pytest.mark.parametrize("proof", [Proof.PROVEN, Proof.INCONCLUSIVE])
def test_only_a_refuted_proof_speaks(proof: Proof) -> None:
    """Proven and inconclusive proofs add no verdict."""
    assert verdict_of_proof(proof, Severity.CRITICAL, target="fix 1") is None


def test_one_who_speaks_often_is_named_once() -> None:
    """A file of many fixes gives many verdicts of one reviewer; the reason stays a sentence."""
    many = [Verdict("proctor", f"fix {number}", VerdictKind.BLOCKER) for number in range(120)]
    assert decide(many).reason == "blocker from proctor (120 times)"
