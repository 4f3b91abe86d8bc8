"""The verdict on one fix: the executor's status and what the legs saw, in one table. Pure; the table is the documentation.

Invariants: the first row that holds decides; what refutes stands before what leaves it open, and that before what proves;
nothing unknown proves anything; PARTIALLY_FIXED and FAILED are never proven.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proctor.proof.results.model import Reason, TestRun
from proctor.proof.schema import STATUSES
from proctor.protocol.decisions import Proof

__all__ = ["TABLE", "Facts", "Judgement", "Leg", "Row", "Suite", "judge", "leg_of", "render_verdicts"]


class Leg(StrEnum):
    """What one run of a check said."""

    PASSED = "passed"
    FAILED = "failed"  # for the right reason: an assertion, or the named check
    WEAK = "weak"  # failed because something did not exist yet
    BROKEN = "broken"  # infrastructure, time-out, or no telling
    FLAKY = "flaky"  # repeated runs disagree
    NOT_RUN = "not run"


class Suite(StrEnum):
    """What the guard said: the suite before and after."""

    GREEN = "green"
    NEWLY_RED = "newly red"
    UNKNOWN = "unknown"
    NONE = "none"  # no suite is configured


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is known of one fix when its verdict is due."""

    status: str
    base: Leg = Leg.NOT_RUN
    change: Leg = Leg.NOT_RUN
    #: Source reverted, tests kept; the base leg again where that is the same tree.
    reverted: Leg = Leg.NOT_RUN
    hallucination_base: Leg = Leg.NOT_RUN
    hallucination_change: Leg = Leg.NOT_RUN
    suite: Suite = Suite.NONE
    has_base: bool = True
    #: Whether anything was changed at all between base and change.
    changed: bool = True
    #: Whether this fix's own change could be told from the others.
    isolated: bool = True
    #: False when a planted break in a changed file went unnoticed: the command tests something else.
    canary_noticed: bool | None = None
    #: Claims of changes_made that the diff does not bear out.
    absent_claims: tuple[str, ...] = ()
    #: Why the change is hollow, from the checks that refute.
    hollow: str = ""
    #: Why it looks hollow, from the checks that only suspect.
    suspicious: str = ""
    #: Why the command's status tells nothing (command_lint.proves_nothing).
    tells_nothing: str = ""
    #: Why nothing was run: no sandbox, policy.
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, the row that gave it, a sentence, and whether the fix goes on to a follow-up."""

    proof: Proof
    rule: str
    reason: str
    follow_up: bool
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    rule: str
    statuses: tuple[str, ...]
    when: str
    proof: Proof
    reason: str
    holds: Callable[[Facts], bool]


_FIXED: Final = ("FIXED",)
_SAME: Final = ("NO_CHANGE_NEEDED", "ALREADY_IMPLEMENTED")
_OPEN: Final = ("PARTIALLY_FIXED", "FAILED")
_UNSURE: Final = frozenset({Leg.BROKEN, Leg.FLAKY, Leg.NOT_RUN})
_REFUTED, _INCONCLUSIVE, _PROVEN = Proof.REFUTED, Proof.INCONCLUSIVE, Proof.PROVEN

TABLE: Final[tuple[Row, ...]] = (
    Row("not-run", STATUSES, "nothing could be run", _INCONCLUSIVE, "not run: {refused}", lambda f: bool(f.refused)),
    Row("failed", ("FAILED",), "always", _INCONCLUSIVE, "the executor could not do it", lambda f: True),
    Row("partial-absent", ("PARTIALLY_FIXED",), "a claimed change is not in the diff", _REFUTED,
        "claimed but absent: {claims}", lambda f: bool(f.absent_claims)),
    Row("partial-hollow", ("PARTIALLY_FIXED",), "the change is hollow", _REFUTED,
        "hollow: {hollow}", lambda f: bool(f.hollow)),
    Row("partial", ("PARTIALLY_FIXED",), "always", _INCONCLUSIVE, "only some of it was done", lambda f: True),
    Row("no-base", (*_FIXED, *_SAME), "there is no git or no base", _INCONCLUSIVE,
        "no base to compare with", lambda f: not f.has_base),
    Row("same-fails", _SAME, "the check fails at the base", _REFUTED,
        "the check fails at the base, so a change is needed",
        lambda f: f.base in {Leg.FAILED, Leg.WEAK}),
    Row("same-not-there", _SAME, "hallucination_check fails at the base", _REFUTED,
        "hallucination_check does not find it at the base",
        lambda f: f.hallucination_base in {Leg.FAILED, Leg.WEAK}),
    Row("same-unsure", _SAME, "the check could not be run, or disagrees with itself", _INCONCLUSIVE,
        "the check at the base was {base}",
        lambda f: f.base in _UNSURE),
    Row("same-tells-nothing", _SAME, "the command cannot fail", _INCONCLUSIVE,
        "the command tells nothing: {tells_nothing}",
        lambda f: bool(f.tells_nothing)),
    Row("same", _SAME, "the check passes at the base", _PROVEN,
        "the check passes at the base", lambda f: f.base is Leg.PASSED),
    Row("no-change", _FIXED, "nothing was changed", _REFUTED, "nothing was changed", lambda f: not f.changed),
    Row("absent", _FIXED, "a claimed change is not in the diff", _REFUTED, "claimed but absent: {claims}",
        lambda f: bool(f.absent_claims)),
    Row("hollow", _FIXED, "a hollow-change check refutes it", _REFUTED, "hollow: {hollow}", lambda f: bool(f.hollow)),
    Row("not-there", _FIXED, "hallucination_check fails with the change", _REFUTED,
        "hallucination_check does not find the change in the code", lambda f: f.hallucination_change is Leg.FAILED),
    Row("elsewhere", _FIXED, "a planted break goes unnoticed", _INCONCLUSIVE,
        "the command tests something else: a planted break in a changed file went unnoticed",
        lambda f: f.canary_noticed is False),
    Row("still-fails", _FIXED, "the check fails with the change", _REFUTED, "the check fails with the change",
        lambda f: f.change in {Leg.FAILED, Leg.WEAK}),
    Row("newly-red", _FIXED, "tests that passed before fail now", _REFUTED,
        "other tests are newly red", lambda f: f.suite is Suite.NEWLY_RED),
    Row("tells-nothing", _FIXED, "the command cannot fail", _INCONCLUSIVE, "the command tells nothing: {tells_nothing}",
        lambda f: bool(f.tells_nothing)),
    Row("green-at-base", _FIXED, "the check passes without the change", _REFUTED, "the check passes without the change",
        lambda f: f.base is Leg.PASSED and f.change is Leg.PASSED),
    Row("green-reverted", _FIXED, "the check passes with the change reverted", _REFUTED,
        "the check still passes with the change reverted", lambda f: f.reverted is Leg.PASSED and f.change is Leg.PASSED),
    Row("change-unsure", _FIXED, "the check with the change could not be run, or disagrees with itself", _INCONCLUSIVE,
        "the check with the change was {change}", lambda f: f.change in _UNSURE),
    Row("base-unsure", _FIXED, "the check at the base could not be run, or disagrees with itself", _INCONCLUSIVE,
        "the check at the base was {base}", lambda f: f.base in _UNSURE),
    Row("reverted-unsure", _FIXED,
        "the check with the change reverted could not be run, or disagrees with itself", _INCONCLUSIVE,
        "the check with the change reverted was {reverted}", lambda f: f.reverted in _UNSURE),
    Row("not-isolated", _FIXED, "this fix cannot be told from the others", _INCONCLUSIVE,
        "this fix's own change cannot be isolated", lambda f: not f.isolated),
    Row("not-there-unsure", _FIXED, "hallucination_check could not be run", _INCONCLUSIVE,
        "hallucination_check was {hallucination_change}",
        lambda f: f.hallucination_change in {Leg.BROKEN, Leg.FLAKY, Leg.WEAK}),
    Row("suite-unknown", _FIXED, "the suite could not be compared", _INCONCLUSIVE, "the suite could not be compared",
        lambda f: f.suite is Suite.UNKNOWN),
    Row("suspicious", _FIXED, "a hollow-change check suspects it", _INCONCLUSIVE, "looks hollow: {suspicious}",
        lambda f: bool(f.suspicious)),
    Row("weak", _FIXED, "failed before only because it did not exist, passes with the change", _PROVEN,
        "passes with the change; before it: weak, did not exist", lambda f: Leg.WEAK in {f.base, f.reverted}),
    Row("proven", _FIXED, "fails at the base, passes with the change, fails with the change reverted", _PROVEN,
        "failed before, passes with the change, fails again without it",
        lambda f: f.base is Leg.FAILED and f.change is Leg.PASSED and f.reverted is Leg.FAILED),
)  # fmt: skip


def judge(facts: Facts) -> Judgement:
    """Give the verdict: the first row of the table that holds; an unknown status proves nothing."""
    for row in TABLE:
        if facts.status in row.statuses and row.holds(facts):
            reason = row.reason.format(
                refused=facts.refused,
                claims="; ".join(facts.absent_claims[:3]),
                hollow=facts.hollow,
                suspicious=facts.suspicious,
                tells_nothing=facts.tells_nothing,
                base=facts.base.value,
                change=facts.change.value,
                reverted=facts.reverted.value,
                hallucination_change=facts.hallucination_change.value,
            )
            follow_up = row.proof is Proof.REFUTED or facts.status in _OPEN
            return Judgement(row.proof, row.rule, reason, follow_up, weak=row.rule == "weak")
    return Judgement(
        Proof.INCONCLUSIVE, "unknown", f"no row knows the status {facts.status!r}", follow_up=True
    )


def leg_of(run: TestRun) -> Leg:
    """What a run of tests or of a command counts as."""
    if run.passed:
        return Leg.PASSED
    if run.reason is Reason.ASSERTION:
        return Leg.FAILED
    return Leg.WEAK if run.reason is Reason.MISSING_SYMBOL else Leg.BROKEN


def render_verdicts() -> str:
    """Render docs/reference/verdicts.md from the table."""
    lines = [
        "# Verdicts",
        "",
        "<!-- Generated by `python3 dev.py docs`; edit the code, not this page. -->",
        "",
        "For each status that an executor can give, the rows are read from the top; the first that holds decides.",
        "A check is the `verification_command`, or the tests of the change. *Fails* means for the right reason: an",
        "assertion or the named check. A missing file, an import error, exit code 126 or 127, pytest's 4 and 5 and a",
        "time-out are *broken*, never *failed*; a name that did not exist yet is *weak*. Refuted fixes, and all that",
        "are PARTIALLY_FIXED or FAILED, go on to the follow-up file.",
    ]
    for statuses in (_FIXED, _SAME, ("PARTIALLY_FIXED",), ("FAILED",)):
        lines += [
            "",
            f"## {', '.join(statuses)}",
            "",
            "| # | when | verdict | reason | rule |",
            "|---|---|---|---|---|",
        ]
        rows = [row for row in TABLE if statuses[0] in row.statuses]
        for number, row in enumerate(rows, 1):
            reason = row.reason.replace("{", "*").replace("}", "*")
            lines.append(f"| {number} | {row.when} | **{row.proof.value}** | {reason} | `{row.rule}` |")
    tail = "A `hallucination_check` that already passes at the base proves no change; the legs of the check decide then."
    return "\n".join([*lines, "", tail, ""])
