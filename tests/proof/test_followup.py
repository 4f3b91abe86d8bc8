"""Follow-ups keep the review, move the number on, name the file before, and carry what is open."""

from __future__ import annotations

import pytest

from proctor.proof.fixfile import parse_fix_file
from proctor.proof.followup import focus_of, followup, render_fix_file
from proctor.proof.verdicts import Facts, Leg, judge
from proctor.protocol.errors import NotFoundError
from tests.proof.seed import RESULT, fix, fix_file, text_of

FAILED = {**RESULT, "status": "FAILED", "finding": "needs a newer server", "note": "kept?"}
NAME = "005_stress_test_system_fixes.json"


def test_failed_refuted_partial_and_unanswered_fixes_are_carried() -> None:
    """Proven ones stay behind; what was asked comes along whole, what was answered as the past."""
    fixes = [
        fix(id=1, result=RESULT),
        fix(id=2, result=FAILED, owner="me"),
        fix(id=3, result={**RESULT, "status": "PARTIALLY_FIXED"}),
        fix(id=4),
        fix(id="five", result=RESULT),
    ]
    document = parse_fix_file(text_of({**fix_file(*fixes), "team": "core"}), NAME)
    refuted = judge(Facts(status="FIXED", base=Leg.PASSED, change=Leg.PASSED))
    content = followup(document, date="2025-07-01", judgements={"five": refuted})
    made = parse_fix_file(render_fix_file(content), "006_stress_test_system_fixes.json")
    assert [one.id for one in made.fixes] == [2, 3, 4, "five"]
    assert (made.data.review_id, made.data.previous_file, made.data.date) == (
        "005_stress_test_system",
        NAME,
        "2025-07-01",
    )
    assert NAME in made.data.instructions
    assert all(one.result is None for one in made.fixes)
    assert content["team"] == "core"
    assert content["fixes"][0]["owner"] == "me"
    assert content["fixes"][0]["previous_result"]["finding"] == "needs a newer server"
    assert content["fixes"][2]["previous_result"] == {"status": "not answered"}
    assert content["fixes"][3]["previous_result"]["verdict"] == "refuted"
    assert focus_of(document) == "stress_test_system"


def test_nothing_open_makes_no_file() -> None:
    """A finished cycle ends with a sentence."""
    with pytest.raises(NotFoundError, match="Nothing failed"):
        followup(parse_fix_file(text_of(fix_file(fix(result=RESULT))), NAME), date="2025-07-01")
