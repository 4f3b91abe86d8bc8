"""The verdict table: its documented rows, and what must never come out of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.results import Context, read_results
from proctor.proof.schema import STATUSES
from proctor.proof.verdicts import TABLE, Facts, Leg, Suite, judge, leg_of, render_verdicts
from proctor.protocol.decisions import Proof
from tests.layers.tree import ROOT

GOOD = Facts(
    status="FIXED", base=Leg.FAILED, change=Leg.PASSED, reverted=Leg.FAILED, hallucination_base=Leg.FAILED,
    hallucination_change=Leg.PASSED, suite=Suite.GREEN, canary_noticed=True,
)  # fmt: skip


def test_seen_to_fail_and_pass_and_fail_again_is_proven() -> None:
    """The three legs, the check for hallucination and the guard together."""
    assert judge(GOOD).proof is Proof.PROVEN
    assert judge(replace(GOOD, suite=Suite.NONE, canary_noticed=None)).proof is Proof.PROVEN


@pytest.mark.parametrize(
    ("members", "proof", "rule"),
    [
        ({"base": Leg.WEAK, "reverted": Leg.WEAK}, Proof.PROVEN, "weak"),
        ({"changed": False}, Proof.REFUTED, "no-change"),
        ({"absent_claims": ("Line 3",)}, Proof.REFUTED, "absent"),
        ({"hollow": "two assertions were removed"}, Proof.REFUTED, "hollow"),
        ({"hallucination_change": Leg.FAILED}, Proof.REFUTED, "not-there"),
        ({"change": Leg.FAILED}, Proof.REFUTED, "still-fails"),
        ({"suite": Suite.NEWLY_RED}, Proof.REFUTED, "newly-red"),
        ({"base": Leg.PASSED}, Proof.REFUTED, "green-at-base"),
        ({"reverted": Leg.PASSED}, Proof.REFUTED, "green-reverted"),
        ({"base": Leg.PASSED, "tells_nothing": "it only shows"}, Proof.INCONCLUSIVE, "tells-nothing"),
        ({"canary_noticed": False, "base": Leg.PASSED}, Proof.INCONCLUSIVE, "elsewhere"),
        ({"change": Leg.BROKEN}, Proof.INCONCLUSIVE, "change-unsure"),
        ({"change": Leg.FLAKY}, Proof.INCONCLUSIVE, "change-unsure"),
        ({"base": Leg.BROKEN}, Proof.INCONCLUSIVE, "base-unsure"),
        ({"reverted": Leg.NOT_RUN}, Proof.INCONCLUSIVE, "reverted-unsure"),
        ({"isolated": False}, Proof.INCONCLUSIVE, "not-isolated"),
        ({"hallucination_change": Leg.BROKEN}, Proof.INCONCLUSIVE, "not-there-unsure"),
        ({"suite": Suite.UNKNOWN}, Proof.INCONCLUSIVE, "suite-unknown"),
        ({"suspicious": "time-out raised"}, Proof.INCONCLUSIVE, "suspicious"),
        ({"has_base": False}, Proof.INCONCLUSIVE, "no-base"),
        ({"refused": "no sandbox"}, Proof.INCONCLUSIVE, "not-run"),
        ({"status": "NO_CHANGE_NEEDED", "base": Leg.PASSED, "hallucination_base": Leg.PASSED}, Proof.PROVEN, "same"),
        ({"status": "ALREADY_IMPLEMENTED", "base": Leg.PASSED, "hallucination_base": Leg.NOT_RUN}, Proof.PROVEN, "same"),
        ({"status": "NO_CHANGE_NEEDED"}, Proof.REFUTED, "same-fails"),
        ({"status": "ALREADY_IMPLEMENTED", "base": Leg.PASSED}, Proof.REFUTED, "same-not-there"),
        ({"status": "NO_CHANGE_NEEDED", "base": Leg.BROKEN, "hallucination_base": Leg.PASSED},
         Proof.INCONCLUSIVE, "same-unsure"),
        ({"status": "NO_CHANGE_NEEDED", "base": Leg.PASSED, "hallucination_base": Leg.PASSED, "tells_nothing": "x"},
         Proof.INCONCLUSIVE, "same-tells-nothing"),
        ({"status": "PARTIALLY_FIXED"}, Proof.INCONCLUSIVE, "partial"),
        ({"status": "PARTIALLY_FIXED", "absent_claims": ("x",)}, Proof.REFUTED, "partial-absent"),
        ({"status": "PARTIALLY_FIXED", "hollow": "x"}, Proof.REFUTED, "partial-hollow"),
        ({"status": "FAILED"}, Proof.INCONCLUSIVE, "failed"),
        ({"status": "DONE"}, Proof.INCONCLUSIVE, "unknown"),
    ],
)  # fmt: skip
def test_every_row_gives_its_verdict(members: dict[str, Any], proof: Proof, rule: str) -> None:
    """One deviation from a proven fix, one row."""
    judged = judge(replace(GOOD, **members))
    assert (judged.proof, judged.rule) == (proof, rule)
    assert judged.reason
    assert "{" not in judged.reason


def test_every_row_can_be_reached() -> None:
    """No row stands in the shade of another: the rows above name them all."""
    marks = test_every_row_gives_its_verdict.pytestmark[0].args[1]
    assert {row.rule for row in TABLE} - {mark[2] for mark in marks} == {"proven"}


_legs = st.sampled_from(Leg)
_facts = st.builds(
    Facts,
    status=st.sampled_from([*STATUSES, "OTHER"]),
    base=_legs, change=_legs, reverted=_legs, hallucination_base=_legs, hallucination_change=_legs,
    suite=st.sampled_from(Suite), has_base=st.booleans(), changed=st.booleans(), isolated=st.booleans(),
    canary_noticed=st.sampled_from([None, True, False]), absent_claims=st.sampled_from([(), ("x",)]),
    hollow=st.sampled_from(["", "x"]),
    suspicious=st.sampled_from(["", "x"]), tells_nothing=st.sampled_from(["", "x"]), refused=st.sampled_from(["", "x"]),
)  # fmt: skip


@given(_facts)
def test_item_55_the_word_of_the_executor_proves_nothing(facts: Facts) -> None:
    """Proven means: seen before and after, nothing hollow, nothing absent, nothing unknown."""
    judged = judge(facts)
    if facts.status in {"PARTIALLY_FIXED", "FAILED"}:
        assert judged.proof is not Proof.PROVEN
        assert judged.follow_up
    if judged.proof is not Proof.PROVEN:
        return
    assert facts.has_base
    assert not (facts.hollow and facts.status == "FIXED")
    assert not facts.refused
    assert not facts.tells_nothing
    if facts.status == "FIXED":
        assert facts.change is Leg.PASSED
        assert {facts.base, facts.reverted} <= {Leg.FAILED, Leg.WEAK}
        assert facts.suite in {Suite.GREEN, Suite.NONE}
        assert facts.canary_noticed is not False
    else:
        assert facts.base is Leg.PASSED


def test_runs_become_legs_by_their_reason() -> None:
    """An assertion failed, a new name is weak, everything else is broken."""
    assert leg_of(read_results(0, "")) is Leg.PASSED
    assert leg_of(read_results(1, "")) is Leg.FAILED
    assert leg_of(read_results(127, "")) is Leg.BROKEN
    said = "NameError: name 'mul' is not defined"
    assert leg_of(read_results(1, said, context=Context(frozenset({"mul"})))) is Leg.WEAK


def test_the_documented_table_is_the_one_of_the_code() -> None:
    """docs/reference/verdicts.md is generated; `python3 dev.py docs` brings it up to date."""
    assert (ROOT / "docs" / "reference" / "verdicts.md").read_text() == render_verdicts()
