"""Judging a fix file: each fix by its own commands in legs of its own, side by side, without cross-talk.

The verdict is the table's (`verdicts`); this file only finds the facts. A fix whose commands cannot be run stays open
with the reason; one fix's trouble never reaches another.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from proctor.proof.canary import plant
from proctor.proof.chance import CONFIRMATIONS, chance_in
from proctor.proof.change import Change
from proctor.proof.claims import ClaimReport, check_claims
from proctor.proof.command_lint import proves_nothing
from proctor.proof.edited import (
    broken_and_edited,
    lost_by_edit,
    only_adds_tests,
    passes_only_as_edited,
    unread_tests,
)
from proctor.proof.hollow import HollowFinding, HollowWeight, find_hollow, inert
from proctor.proof.isolate import Isolated, isolate, own_commit
from proctor.proof.judgement import Judgement, Word
from proctor.proof.legs import Leg, Legs
from proctor.proof.results import Context, Reason
from proctor.proof.schema import Fix, Result
from proctor.proof.stale import TestTimes, claimed_times
from proctor.proof.subject import Subject, change_between, judges_in, parts_of
from proctor.proof.symbols import added_symbols
from proctor.proof.verdicts import Facts, Suite, judge
from proctor.proof.verdicts import Judgement as Ruling
from proctor.proof.verdicts import Leg as Seen
from proctor.proof.weigh import settles, weigh_edited, weigh_lost, without_effect
from proctor.protocol.decisions import Proof
from proctor.protocol.errors import ProctorError

__all__ = ["FixJudgement", "FixVerifier", "Guard"]

_SAME = ("NO_CHANGE_NEEDED", "ALREADY_IMPLEMENTED")
_SHORT = 3

_ABOUT_TEXT: Final = re.compile(
    r"\bdoc|comment|header|licen[cs]e|copyright|typo|spelling|wording|annotat|type.?hint|noqa|todo|fixme|readme|usage",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Guard:
    """The project's own suite around all fixes: which tests are newly red, or that it could not be compared."""

    suite: Suite = Suite.NONE
    red: frozenset[str] = frozenset()
    commands: tuple[str, ...] = ()
    legs: tuple[Leg, ...] = ()


@dataclass(frozen=True, slots=True)
class FixJudgement:
    """One fix: the table's ruling and the judgement its receipt is made of."""

    fix: Fix
    ruling: Ruling
    judgement: Judgement
    claims: ClaimReport | None
    notes: tuple[str, ...] = ()
    trace_id: str | None = None

    def facts(self) -> dict[str, Any]:
        """What the receipt says about the fix besides the legs."""
        result = self.fix.result
        return {
            "fix": {
                "id": self.fix.id,
                "file": self.fix.file,
                "line": self.fix.line,
                "severity": self.fix.severity.value,
                "status": result.status if result else None,
                "rule": self.ruling.rule,
                "claims": [
                    {"text": c.text, "state": c.state.value, "reason": c.reason} for c in self._claims()
                ],
                "unclaimed": [
                    f"{u.path}:{u.first}-{u.last}" for u in (self.claims.unclaimed if self.claims else ())
                ],
            }
        }

    def _claims(self) -> Sequence[Any]:
        return self.claims.claims if self.claims else ()


@dataclass
class _Case:
    """One fix on its way."""

    fix: Fix
    result: Result
    own: Isolated
    claims: ClaimReport
    facts: Facts
    legs: list[Leg] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def doubt(self, why: str) -> None:
        """Add what a person must look at."""
        self.facts = replace(self.facts, suspicious="; ".join(filter(None, (self.facts.suspicious, why))))


class FixVerifier:
    """Judges the fixes of one file against one change."""

    def __init__(
        self,
        legs: Legs,
        subject: Subject,
        change: Change,
        findings: Sequence[HollowFinding],
        *,
        has_base: bool = True,
    ) -> None:
        self._legs = legs
        self._trees = legs.runner.trees
        self._subject = subject
        self._change = change
        self._parts = parts_of(change.diff)
        self._findings = findings
        self._has_base = has_base

    async def guard(self, commands: Sequence[str]) -> Guard:
        """Run the project's own suite with all fixes, and without them only if something is red."""
        if not commands or not self._has_base:
            return Guard()
        subject = self._subject
        after = await self._legs.run("suite after", subject.tree, subject.head, commands)
        if after.reading.green:
            return Guard(Suite.GREEN, commands=tuple(commands), legs=(after,))
        base = await self._legs.run("suite before", subject.base_tree, subject.base_head, commands, keep=True)
        legs = (after, base)
        if not (after.reading.sound and base.reading.sound):
            return Guard(Suite.UNKNOWN, commands=tuple(commands), legs=legs)
        red = frozenset(after.reading.failed) - frozenset(base.reading.failed)
        if not after.reading.failed:
            red = frozenset({"the command"}) if base.reading.green else frozenset()
        return Guard(Suite.NEWLY_RED if red else Suite.GREEN, red, tuple(commands), legs)

    async def verify(self, fix: Fix, fixes: Sequence[Fix], guard: Guard) -> FixJudgement:
        """Judge one fix; whatever stops its runs is the reason it stays open."""
        if fix.result is None:
            ruling = Ruling(Proof.INCONCLUSIVE, "unanswered", "the fix has no result", follow_up=True)
            return FixJudgement(fix, ruling, self._judged(ruling, (), [], fix), None)
        apart = await asyncio.to_thread(self._apart, fix)
        if apart is not None:
            return await apart.verify(fix, [fix], Guard())
        case = await asyncio.to_thread(self._case, fix, fix.result, fixes)
        try:
            await self._run(case, guard)
        except ProctorError as error:
            case.facts = replace(case.facts, refused=str(error))
        ruling = judge(case.facts)
        judgement = self._judged(ruling, case.legs, case.notes, fix)
        return FixJudgement(fix, ruling, judgement, case.claims, tuple(case.notes))

    def _apart(self, fix: Fix) -> FixVerifier | None:
        """A fix whose commit lies on a branch of its own is judged there, against where that branch began."""
        commit = own_commit(fix)
        found = self._trees.git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}"
        )
        if commit is None or found.returncode != 0 or not self._has_base:
            return None
        head = found.stdout.strip()
        base = self._trees.merge_base(self._subject.head, head)
        if base is None or base == head:
            return None
        trees = self._trees
        subject = Subject(f"commit {head[:12]}", base, trees.tree(base), head, trees.tree(head))
        change = change_between(trees, subject.base_tree, subject.tree)
        commands = [fix.result.verification_command] if fix.result else []
        context = Context(added_symbols(change), frozenset(file.path for file in change.diff.files))
        legs = Legs(self._legs.runner, context=context)
        return FixVerifier(legs, subject, change, find_hollow(change, commands))

    def _case(self, fix: Fix, result: Result, fixes: Sequence[Fix]) -> _Case:
        own = isolate(self._trees, self._subject, self._change.diff, self._parts, fix, fixes)
        claims = check_claims(result.changes_made or [], self._change.diff, fix.path)
        hollow = [str(f) for f in self._about(own) if f.weight is HollowWeight.REFUTES]
        doubts = [str(f) for f in self._about(own) if f.weight is HollowWeight.SUSPICIOUS]
        facts = Facts(
            status=result.status,
            has_base=self._has_base,
            changed=self._subject.tree != self._subject.base_tree,
            isolated=own.without is not None,
            absent_claims=tuple(claim.text for claim in claims.absent) if result.claims_change else (),
            hollow="; ".join(hollow[:_SHORT]),
            suspicious="; ".join(doubts[:_SHORT]),
            tells_nothing=proves_nothing(result.verification_command) or "",
        )
        notes = [own.problem] if own.problem and result.claims_change else []
        if result.claims_change and (said := self._times(fix, result).sentence):
            notes.append(said)
        return _Case(fix, result, own, claims, facts, notes=notes)

    def _times(self, fix: Fix, result: Result) -> TestTimes:
        """When it was edited and tested, as far as that can be known.

        A commit's time is none of an edit: one tests first and commits then. A file that is not committed tells it.
        """
        place = self._trees.root / fix.path
        there = not self._subject.committed and own_commit(fix) is None and place.is_file()
        edited = datetime.fromtimestamp(place.stat().st_mtime, UTC) if there else None
        return claimed_times(result.model_extra, edited=edited)

    async def _settle_doubts(self, case: _Case) -> None:
        """Doubts about edited tests and judges are settled when the command passes with them as they were."""
        edited = {*case.own.tests, *judges_in([case.result.verification_command], self._parts.source)}
        doubts = [f for f in self._about(case.own) if f.weight is HollowWeight.SUSPICIOUS]
        settled = all(f.file in edited and settles(f) for f in doubts)
        if not doubts or case.facts.change is not Seen.PASSED or not settled:
            return
        known = set(await asyncio.to_thread(self._trees.names, self._subject.base_tree))
        old = sorted(path for path in edited & known if path != case.fix.path)
        tree = await asyncio.to_thread(self._trees.overlay, self._subject.tree, self._subject.base_tree, old)
        leg = await self._leg(case, "old tests", tree, self._subject.head, case.result.verification_command)
        if leg.passed and leg.reading.green:
            case.notes.append(
                "tests or judges were edited; as they were before they pass with the change too"
            )
            case.facts = replace(case.facts, suspicious="")

    async def _only_as_edited(self, case: _Case) -> None:
        """Where old tests were touched, the old ones are asked: what they still refuse was only edited to pass."""
        tests, subject, command = case.own.tests, self._subject, case.result.verification_command
        proves = case.facts.change is Seen.PASSED and case.facts.base in {Seen.FAILED, Seen.WEAK}
        if not proves or await asyncio.to_thread(only_adds_tests, self._change, tests):
            return
        base = await self._leg(case, "base", subject.base_tree, subject.base_head, command)
        after = next(leg for leg in case.legs if leg.name == "after")
        if not base.reading.sound:
            return
        unread = unread_tests(tests)
        found = weigh_lost(tests[0], *lost_by_edit(base.reading, after.reading, unread=unread))
        if not base.reading.green or unread:
            tree = await asyncio.to_thread(self._trees.overlay, subject.tree, subject.base_tree, tests)
            old = await self._leg(case, "old tests", tree, subject.head, command)
            names = passes_only_as_edited(base.reading, old.reading, after.reading)
            broken = broken_and_edited(base.reading, old.reading, after.reading) if unread else []
            found += weigh_edited(tests[0], names, broken)
        for finding in found:
            case.doubt(str(finding))

    def _without_effect(self, case: _Case) -> None:
        """Nothing that a run could notice was changed, and yet the check tells before from after.

        A search for text may do so where the fix asks for text: documentation, comments, type hints.
        """
        named = any(leg.name == "after" and leg.reading.named for leg in case.legs)
        if not named and _ABOUT_TEXT.search(f"{case.fix.issue} {case.fix.fix}"):
            return
        proves = case.facts.change is Seen.PASSED and case.facts.base in {Seen.FAILED, Seen.WEAK}
        if proves and (idle := inert(self._change, names=named)):
            case.doubt(str(without_effect(self._change, idle)))

    def _about(self, own: Isolated) -> list[HollowFinding]:
        """Findings in tests and checks concern every fix; findings in source only the fix whose source it is."""
        mine = set(own.diff.paths)
        return [f for f in self._findings if f.file in mine or f.file not in self._parts.source]

    async def _run(self, case: _Case, guard: Guard) -> None:
        if case.result.status in _SAME or not self._has_base:
            await self._at_one_side(case)
        elif case.result.status == "FIXED":
            await self._three_legs(case)
            await self._settle_doubts(case)
            await self._only_as_edited(case)
            self._without_effect(case)
            case.facts = replace(case.facts, suite=await self._suite(case, guard))

    async def _at_one_side(self, case: _Case) -> None:
        """Nothing was to change: both commands at the base. Without a base: where the work is, for their exit codes."""
        subject, result = self._subject, case.result
        tree, head = (
            (subject.base_tree, subject.base_head) if self._has_base else (subject.tree, subject.head)
        )
        base = await self._leg(case, "base", tree, head, result.verification_command)
        there = await self._leg(case, "hallucination base", tree, head, result.hallucination_check)
        case.facts = replace(case.facts, base=_seen(base), hallucination_base=_seen(there))

    async def _three_legs(self, case: _Case) -> None:
        subject, command = self._subject, case.result.verification_command
        before_tree = await asyncio.to_thread(
            self._trees.overlay, subject.base_tree, subject.tree, case.own.tests
        )
        tree = await asyncio.to_thread(self._fair, subject.tree, case)
        after = await self._leg(case, "after", tree, subject.head, command)
        before = await self._leg(case, "before", before_tree, subject.base_head, command)
        reverted: Leg | None = None
        if case.own.without is not None:
            without = await asyncio.to_thread(self._fair, case.own.without, case)
            reverted = await self._leg(case, "reverted", without, subject.head, command)
        before, after, reverted = await self._steadied(case, before, after, reverted)
        facts = replace(
            case.facts,
            base=_seen(before),
            change=_seen(after),
            reverted=_seen(reverted) if reverted is not None else Seen.NOT_RUN,
        )
        if facts.base is Seen.PASSED and facts.change is Seen.PASSED:
            facts = replace(facts, canary_noticed=await self._canary(case, command))
        case.facts = await self._hallucination(case, facts, before_tree)
        if after.passed and str(self._trees.root) not in command:
            await self._elsewhere(case, command)

    def _fair(self, tree: str, case: _Case) -> str:
        """The tree with the base's version of scripts that judge: a change must not bring its own judge."""
        base = self._subject.base_tree
        paths = [path for path in (*self._parts.source, *self._parts.rest) if path != case.fix.path]
        judges = judges_in([case.result.verification_command], paths)
        old = [path for path in judges if self._trees.blob(base, path) is not None]
        if old and (
            note := f"the change edits what judges it ({', '.join(old)}): the base's version was used"
        ):
            case.notes += [note] if note not in case.notes else []
        return self._trees.overlay(tree, base, old) if old else tree

    async def _hallucination(self, case: _Case, facts: Facts, before_tree: str) -> Facts:
        subject, check = self._subject, case.result.hallucination_check
        there = await self._leg(case, "hallucination after", subject.tree, subject.head, check)
        old = await self._leg(case, "hallucination before", before_tree, subject.base_head, check)
        if old.passed:
            case.notes.append("hallucination_check passes without the change too, so it shows nothing")
        return replace(facts, hallucination_change=_seen(there), hallucination_base=_seen(old))

    async def _steadied(
        self, case: _Case, before: Leg, after: Leg, reverted: Leg | None
    ) -> tuple[Leg, Leg, Leg | None]:
        """Repeat where chance may decide: named in the files, or when two legs that should agree do not."""
        texts = [file.after or "" for file in self._change.files]
        disagree = reverted is not None and _seen(before) is not _seen(reverted)
        if not disagree and not chance_in([case.result.verification_command, *texts]):
            return before, after, reverted
        command = [case.result.verification_command]
        times = CONFIRMATIONS if not disagree else 1
        steady = [await self._legs.repeated(leg, command, times) for leg in (before, after)]
        for old, new in zip((before, after), steady, strict=True):
            case.legs[case.legs.index(old)] = new
        return steady[0], steady[1], reverted

    async def _canary(self, case: _Case, command: str) -> bool | None:
        paths = [path for path in case.own.diff.paths if path not in case.own.tests]
        tree = await asyncio.to_thread(plant, self._trees, self._subject.tree, paths)
        if tree is None:
            return None
        leg = await self._leg(case, "canary", tree, self._subject.head, command)
        return not leg.passed

    async def _elsewhere(self, case: _Case, command: str) -> None:
        """The contract asks for commands that work from any directory; this one is tried from another."""
        subject = self._subject
        run = await self._legs.runner.run(subject.tree, subject.head, command, cwd="/")
        if not run.ok:
            case.notes.append(
                "verification_command depends on the directory: it fails when run from elsewhere"
            )

    async def _suite(self, case: _Case, guard: Guard) -> Suite:
        """Newly red tests are this fix's doing only if they are green without it."""
        if guard.suite is not Suite.NEWLY_RED or case.own.without is None:
            return guard.suite
        leg = await self._leg(case, "suite reverted", case.own.without, self._subject.head, *guard.commands)
        still = (
            guard.red & set(leg.reading.failed)
            if leg.reading.failed
            else guard.red
            if not leg.passed
            else set()
        )
        return Suite.GREEN if still == guard.red else Suite.NEWLY_RED

    async def _leg(self, case: _Case, name: str, tree: str, head: str, *commands: str) -> Leg:
        leg = await self._legs.run(name, tree, head, commands)
        case.legs.append(leg)
        return leg

    def _judged(self, ruling: Ruling, legs: Sequence[Leg], notes: Sequence[str], fix: Fix) -> Judgement:
        commands = [fix.result.verification_command, fix.result.hallucination_check] if fix.result else []
        return Judgement(
            word=Word(ruling.proof.value),
            reasons=(ruling.reason,),
            kind="fix",
            kind_reason="it stands in a fix file",
            subject=self._subject,
            commands=tuple(commands),
            legs=tuple(legs),
            weak=ruling.weak,
            notes=tuple(notes),
            findings=tuple(finding.as_dict() for finding in self._findings),
            environment=self._legs.environment(self._subject.tree),
        )


def _seen(leg: Leg) -> Seen:
    """What a leg counts as in the table."""
    if leg.unsteady:
        return Seen.FLAKY
    if leg.passed and leg.reading.green:
        return Seen.PASSED
    words: Mapping[Reason | None, Seen] = {Reason.ASSERTION: Seen.FAILED, Reason.MISSING_SYMBOL: Seen.WEAK}
    return words.get(leg.reading.reason, Seen.BROKEN)
