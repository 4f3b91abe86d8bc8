"""Claims are looked up in the real diff: found, absent or unclear, and what was changed beside them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.change import change_of
from proctor.proof.claims import ClaimState, check_claims
from proctor.proof.diff import Diff
from tests.proof.seed import RESULT

BEFORE = (
    "".join(f"line{n} = {n}\n" for n in range(1, 184))
    + "async def handle(ws):\n    process = await start(ws)\n    await pump(ws, process)\n"
)
AFTER = BEFORE.replace(
    "    await pump(ws, process)\n",
    "    try:\n        await pump(ws, process)\n    finally:\n        if process is not None:\n"
    "            process.terminate()\n            await process.wait()\n",
)  # fmt: skip
PATH = "core/websocket_handler.py"
DIFF = change_of({PATH: (BEFORE, AFTER)}).diff


def state(claim: str, diff: Diff = DIFF, file: str | None = PATH) -> ClaimState:
    """What becomes of one claim."""
    return check_claims([claim], diff, file).claims[0].state


def test_the_contracts_claims_are_found() -> None:
    """Line 185 try-finally, terminate and wait are in the diff, and nothing else was changed."""
    report = check_claims(RESULT["changes_made"], DIFF, PATH)
    assert [claim.state for claim in report.claims] == [ClaimState.FOUND] * 3
    assert report.unclaimed == ()


@pytest.mark.parametrize(
    "claim",
    [
        "Line 40: Added retry_count parameter",
        "Added kill_group() to the finally block of shutdown_pool()",
        "Line 12: Fixed rounding",
        "Updated core/server.py to close sockets",
        "Removed process.terminate() call",
        "Added `asyncio.timeout(5)` around the pump",
    ],
)
def test_claims_the_diff_does_not_bear_out_are_absent(claim: str) -> None:
    """Other words, other lines, other files, the other direction."""
    assert state(claim) is ClaimState.ABSENT


@pytest.mark.parametrize(
    "claim",
    [
        "Line 186: Wrapped body in try/finally",
        "websocket_handler.py:188 calls terminate",
        "core/websocket_handler.py: cleanup",
        "Added a null check with `process is not None`",
        "Lines 180-192: cleanup",
        "Line 300: Added process.wait()",
    ],
)
def test_claims_in_other_words_are_found(claim: str) -> None:
    """Files, ranges, ticks, and numbers that drifted."""
    assert state(claim) is ClaimState.FOUND


def test_a_claim_that_names_nothing_is_unclear() -> None:
    """What cannot be looked up is neither borne out nor refuted."""
    assert state("Improved the overall robustness") is ClaimState.UNCLEAR


def test_nothing_changed_refutes_every_claim() -> None:
    """An empty diff bears out nothing."""
    assert state("Improved the overall robustness", Diff()) is ClaimState.ABSENT
    assert state("Line 3: x", change_of({"other.py": ("a\n", "b\n")}).diff) is ClaimState.ABSENT


def test_changes_nobody_claims_are_listed() -> None:
    """Another file and another part of the same file are shown with their lines."""
    after = AFTER.replace("line5 = 5\n", "line5 = 6\n")
    diff = change_of({PATH: (BEFORE, after), "tests/test_x.py": ("assert x == 1\n", "assert x\n")}).diff
    report = check_claims(RESULT["changes_made"], diff, PATH)
    assert [(one.path, one.first) for one in report.unclaimed] == [(PATH, 5), ("tests/test_x.py", 1)]


@given(st.lists(st.text(max_size=60), max_size=4), st.text(max_size=10) | st.none())
def test_any_claim_gets_a_state(claims: list[str], file: str | None) -> None:
    """No text is too odd to be looked up."""
    assert len(check_claims(claims, DIFF, file).claims) == len(claims)
