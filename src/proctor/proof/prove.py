"""From a change and its kind to a judgement: the legs are run, compared, repeated where they disagree, and weighed.

Fail closed: whatever could not be seen (no command, no sandbox, a broken environment, chance) is inconclusive, and
what was seen to be hollow is refuted. A word of the ladder is given only when every condition for it was seen.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from proctor.proof.canary import plant
from proctor.proof.chance import CONFIRMATIONS, chance_in
from proctor.proof.change import Change
from proctor.proof.cover import Coverage, cover_environment, prepare_tracer, read_coverage
from proctor.proof.documents import check_documents
from proctor.proof.edited import (
    broken_and_edited,
    lost_by_edit,
    only_adds_tests,
    passes_only_as_edited,
    unread_tests,
)
from proctor.proof.hollow.model import HollowFinding
from proctor.proof.hollow.staged import inert
from proctor.proof.judgement import ACCEPTED, Judgement, Word
from proctor.proof.kinds import Kind
from proctor.proof.legs import Leg, Legs
from proctor.proof.results import Reason
from proctor.proof.runner import TRACER
from proctor.proof.selection import select
from proctor.proof.settings import ProofSettings
from proctor.proof.subject import Parts, Subject, judges_in, other_code, parts_of
from proctor.proof.weigh import is_doubt, settles, weigh_edited, weigh_lost, weighed, without_effect
from proctor.protocol.errors import RefusedError

__all__ = ["Prover"]

SLOW_SECONDS = 30.0
_SHOWN = 5


@dataclass
class _State:
    """What is known so far about one change."""

    subject: Subject
    change: Change
    parts: Parts
    kind: Kind
    kind_reason: str
    commands: tuple[str, ...]
    tree: str  # the change, judged by the base's own judges
    legs: list[Leg]
    notes: list[str]
    evidence: dict[str, Reason]
    judges: tuple[str, ...] = ()  # scripts that judge, taken from the base although the change edits them
    coverage: Coverage | None = None
    pictures: dict[str, str] = field(default_factory=dict)


class Prover:
    """Judges changes of one repository with the legs' runner."""

    def __init__(self, legs: Legs, proof: ProofSettings, *, trace_lines: bool = False) -> None:
        self.legs = legs
        self._proof = proof
        self._trees = legs.runner.trees
        self._trace_lines = trace_lines

    async def prove(
        self,
        subject: Subject,
        change: Change,
        kind: Kind,
        kind_reason: str,
        commands: Sequence[str],
        findings: Sequence[HollowFinding] = (),
    ) -> Judgement:
        """Judge a change whose evidence is the project's own tests."""
        state = await asyncio.to_thread(self._begin, subject, change, kind, kind_reason, tuple(commands))
        try:
            word, reasons = await self._word(state)
        except RefusedError as error:
            word, reasons = Word.INCONCLUSIVE, [f"not run: {error}"]
        findings = [*await self._doubted(state, word, findings), *await self._only_as_edited(state, word)]
        if word is Word.PROVEN and (idle := inert(change, names=kind is Kind.FIX)):
            findings.append(without_effect(change, idle))
        word, reasons, needs_you = weighed(word, reasons, findings)
        return Judgement(
            word=word,
            reasons=tuple(reasons),
            kind=kind.value,
            kind_reason=kind_reason,
            subject=subject,
            commands=state.commands,
            legs=tuple(state.legs),
            evidence=tuple(sorted(state.evidence)),
            weak=bool(state.evidence) and set(state.evidence.values()) == {Reason.MISSING_SYMBOL},
            notes=tuple(state.notes),
            findings=tuple(finding.as_dict() for finding in findings),
            coverage=state.coverage,
            needs_you=needs_you,
            pictures=state.pictures,
            environment=await asyncio.to_thread(self.legs.environment, subject.tree),
        )

    def _begin(
        self, subject: Subject, change: Change, kind: Kind, kind_reason: str, commands: tuple[str, ...]
    ) -> _State:
        parts, notes, tree = parts_of(change.diff), [], subject.tree
        judges = judges_in(commands, [*parts.source, *parts.rest])
        if judges and subject.tree != subject.base_tree:
            old = [path for path in judges if self._trees.blob(subject.base_tree, path) is not None]
            new = [path for path in judges if path not in old]
            tree = self._trees.overlay(tree, subject.base_tree, old)
            if old:
                notes.append(f"the change edits what judges it ({_some(old)}): the base's version was used")
            parts = parts.without(judges, tests=new)
        return _State(subject, change, parts, kind, kind_reason, commands, tree, [], notes, {}, judges)

    async def _word(self, state: _State) -> tuple[Word, list[str]]:
        if state.subject.tree == state.subject.base_tree:
            if state.kind is Kind.DOCS:
                return Word.NOT_APPLICABLE, ["nothing was changed"]
            return Word.REFUTED, ["nothing was changed"]
        if code := self._unfit(state):
            said = f"{_some(code)} is code and needs a proof: leave `--kind {state.kind.value}` away"
            return Word.INCONCLUSIVE, [said]
        if state.kind is Kind.DOCS:
            return await self._checked(state)
        if state.kind is Kind.UI and (self._proof.pictures or not state.parts.tests):
            return await self._shown(state)
        if not state.commands:
            return Word.INCONCLUSIVE, ["there is no test command; set `test` in [project] of proctor.toml"]
        if state.kind is Kind.REFACTOR:
            return await self._preserved(state)
        return await self._proven(state)

    def _unfit(self, state: _State) -> list[str]:
        """Code in a change that is said to be of documents, or of an interface that nobody can look at."""
        bare = state.kind is Kind.UI and not self._proof.pictures and not state.parts.tests
        if (state.kind is not Kind.DOCS and not bare) or inert(state.change, names=False):
            return []
        return other_code(state.change.diff, state.kind)

    # Fix and feature

    async def _proven(self, state: _State) -> tuple[Word, list[str]]:
        if not state.parts.source:
            return await self._tests_alone(state)
        after = await self._after(state)
        if not after.reading.sound:
            return Word.INCONCLUSIVE, [f"the command could not judge the change: {_why(after)}"]
        if not after.reading.green and (told := await self._still_red(state, after)):
            return told
        before = await self._before(state, after)
        state.evidence = before.reading.turned_green(after.reading)
        lost = _vanished(before, after)
        if not state.evidence:
            return await self._no_evidence(state, before, after)
        if lost:
            return Word.INCONCLUSIVE, [f"tests that ran before the change do not run after it: {_some(lost)}"]
        if told := await self._reverted(state, before, after):
            return told
        if told := await self._by_chance(state, before, after):
            return told
        return self._evidenced(state, before)

    def _evidenced(self, state: _State, before: Leg) -> tuple[Word, list[str]]:
        names = [name for name in sorted(state.evidence) if name]
        what = _some(names) if names else "the command"
        if set(state.evidence.values()) == {Reason.MISSING_SYMBOL}:
            weak = f"weak: what is tested did not exist before ({before.reading.detail})"
            if state.kind is not Kind.FEATURE:
                return Word.INCONCLUSIVE, [weak, "a fix needs a test that fails on the code as it was"]
            return Word.PROVEN, [f"{what} passes with the change and not without it", weak]
        return Word.PROVEN, [f"failed without the change and passes with it: {what}"]

    async def _after(self, state: _State) -> Leg:
        """The change itself, the whole suite, once; lines are traced where that is cheap or asked for."""
        extra = await asyncio.to_thread(self._cover, state)
        subject = state.subject
        leg = await self.legs.run("after", state.tree, subject.head, state.commands, extra=extra)
        state.legs.append(leg)
        state.coverage = await asyncio.to_thread(self._coverage, state, leg)
        return leg

    def _cover(self, state: _State) -> dict[str, str]:
        runner = self.legs.runner
        tracer = prepare_tracer(self._trees.home)
        place = TRACER if runner.placed else str(tracer)
        present = [file.path for file in state.change.files if file.after is not None]
        paths = [path for path in present if path in state.parts.source]
        given = runner.surroundings.env.get("PYTHONPATH", "")
        return cover_environment(
            self._trees.root, paths, place, given, trace=self._trace_lines or state.kind is Kind.REFACTOR
        )

    def _coverage(self, state: _State, leg: Leg) -> Coverage | None:
        after = {file.path: file.after for file in state.change.files if file.after is not None}
        changed = {
            file.path: [number for number, _text in file.added]
            for file in state.change.diff.files
            if file.path in state.parts.source and file.path in after
        }
        contents = {path: (after[path] or "").encode("utf-8", "surrogateescape") for path in changed}
        return read_coverage(leg.files, changed, contents, leg.place) if changed else None

    async def _before(self, state: _State, after: Leg) -> Leg:
        """The base with the change's tests: the whole suite, or the affected tests when the suite is slow."""
        subject, tests = state.subject, state.parts.tests
        tree = await asyncio.to_thread(self._trees.overlay, subject.base_tree, state.tree, tests)
        commands = list(state.commands)
        if after.seconds > SLOW_SECONDS and tests:
            commands = [select(command, tests) or command for command in commands]
        leg = await self.legs.run("before", tree, subject.base_head, commands, keep=not tests)
        state.legs.append(leg)
        return leg

    async def _base(self, state: _State) -> Leg:
        subject = state.subject
        leg = await self.legs.run("base", subject.base_tree, subject.base_head, state.commands, keep=True)
        if all(each.tree != leg.tree for each in state.legs):
            state.legs.append(leg)
        return leg

    async def _still_red(self, state: _State, after: Leg) -> tuple[Word, list[str]] | None:
        """The change leaves tests red: newly, as they were, or by chance; None when only old ones are."""
        base = await self._base(state)
        old = set(base.reading.failed)
        red = {name for name in after.reading.failed if name not in old and not self._proof.is_flaky(name)}
        if not after.reading.failed and not base.reading.green:
            return Word.REFUTED, [f"the command fails after the change as it did before: {_why(after)}"]
        if not red and after.reading.failed:
            left = sorted(name for name in after.reading.failed if not self._proof.is_flaky(name))
            state.notes.append(
                f"still red as before the change: {_some(left)}" if left else "only known-flaky tests fail"
            )
            return None
        again = await self.legs.repeated(after, state.commands, 1)
        state.legs[state.legs.index(after)] = again
        if again.unsteady:
            return Word.INCONCLUSIVE, [
                f"flaky: two runs of the same tree disagree about {_some(again.unsteady)}"
            ]
        what = _some(sorted(red)) if red else _why(after)
        new = red - base.reading.passed - base.reading.skipped if base.reading.named else set()
        if new and new == red:
            return Word.REFUTED, [f"its own tests fail with the change: {what}"]
        return Word.REFUTED, [f"newly red with the change: {what}"]

    async def _no_evidence(self, state: _State, before: Leg, after: Leg) -> tuple[Word, list[str]]:
        if not before.reading.sound:
            return Word.INCONCLUSIVE, [f"could not be run without the change: {_why(before)}"]
        if not state.parts.tests:
            same = "fail" if before.reading.failed else "pass"
            reason = f"no test tells before from after: the same ones {same} with and without the change"
            return Word.INCONCLUSIVE, [reason]
        if told := await self._unnoticed(state):
            return told
        names = _some(state.parts.tests)
        return Word.REFUTED, [
            f"its tests ({names}) pass without the change too: they do not show that it does anything"
        ]

    async def _unnoticed(self, state: _State) -> tuple[Word, list[str]] | None:
        """Plant a break in the changed source; a command that does not notice tests something else."""
        tree = await asyncio.to_thread(plant, self._trees, state.tree, list(state.parts.source))
        if tree is None:
            return None
        leg = await self.legs.run("canary", tree, state.subject.head, state.commands)
        state.legs.append(leg)
        if not leg.reading.green:
            return None
        files = _some(state.parts.source)
        reason = f"the command does not notice a break in {files}: it tests something else, or nothing of it"
        return Word.INCONCLUSIVE, [reason]

    async def _reverted(self, state: _State, before: Leg, after: Leg) -> tuple[Word, list[str]] | None:
        """Take the source back and keep everything else: the evidence must fail again."""
        subject = state.subject
        tree = await asyncio.to_thread(
            self._trees.overlay, subject.tree, subject.base_tree, state.parts.source
        )
        if tree == before.tree:
            return None
        leg = await self.legs.run("reverted", tree, subject.head, state.commands)
        state.legs.append(leg)
        again = leg.reading.turned_green(after.reading)
        if set(again) & set(state.evidence) or (again and "" in state.evidence):
            return None
        if not leg.reading.sound:
            return Word.INCONCLUSIVE, [f"could not be run with the source reverted: {_why(leg)}"]
        kept = _some(state.parts.rest)
        return Word.REFUTED, [f"it still passes with the source reverted; only {kept} makes the difference"]

    async def _by_chance(self, state: _State, before: Leg, after: Leg) -> tuple[Word, list[str]] | None:
        texts = [
            file.after for file in state.change.files if file.after and file.path not in state.parts.rest
        ]
        word = chance_in(texts)
        if not word:
            return None
        for leg in (before, after):
            again = await self.legs.repeated(leg, state.commands, CONFIRMATIONS)
            state.legs[state.legs.index(leg)] = again
            if again.unsteady:
                what = f"two runs of the same tree disagree about {_some(again.unsteady)}"
                return Word.INCONCLUSIVE, [f"flaky: {what} (`{word}` lets chance in)"]
        state.notes.append(f"`{word}` lets chance in; {CONFIRMATIONS} further runs of both legs agreed")
        return None

    async def _tests_alone(self, state: _State) -> tuple[Word, list[str]]:
        """Only tests were changed: they can be run, but there is nothing for them to prove."""
        after = await self._after(state)
        if not after.reading.sound:
            return Word.INCONCLUSIVE, [f"the command could not judge the change: {_why(after)}"]
        if not after.reading.green and (told := await self._still_red(state, after)):
            return told
        if state.kind_reason == ASKED:
            return Word.REFUTED, [
                "only tests were changed: there is no change of the code that they could prove"
            ]
        return Word.CHECKED, ["only tests were changed, and they pass"]

    # Documents and pictures

    async def _checked(self, state: _State) -> tuple[Word, list[str]]:
        subject = state.subject
        paths = [file.path for file in state.change.diff.files]
        found = await asyncio.to_thread(check_documents, self._trees, subject.base_tree, subject.tree, paths)
        if found.problems:
            return Word.REFUTED, list(found.problems[:_SHOWN])
        if self._proof.docs:
            leg = await self.legs.run("after", subject.tree, subject.head, self._proof.docs)
            state.legs.append(leg)
            state.commands = self._proof.docs
            if not leg.reading.sound:
                return Word.INCONCLUSIVE, [f"the documents could not be checked: {_why(leg)}"]
            if not leg.reading.green:
                return Word.REFUTED, [f"the documents' own check fails: {_why(leg)}"]
            return Word.CHECKED, ["the documents' own check passes"]
        if not found.anything:
            return Word.NOT_APPLICABLE, ["documents and settings alone; nothing in them can be checked"]
        links = "1 link leads" if found.links == 1 else f"{found.links} links lead"
        files = "1 file" if found.files == 1 else f"{found.files} files"
        return Word.CHECKED, [f"{links} somewhere, {files} can be read"]

    async def _shown(self, state: _State) -> tuple[Word, list[str]]:
        if not self._proof.pictures:
            return Word.NOT_APPLICABLE, [
                "no command makes pictures; set `pictures` in [proof] of proctor.toml"
            ]
        subject, extra = state.subject, {"PROCTOR_PICTURES": "{out}/pictures"}
        state.commands = self._proof.pictures
        before = await self.legs.run(
            "before", subject.base_tree, subject.base_head, state.commands, extra=extra
        )
        after = await self.legs.run("after", subject.tree, subject.head, state.commands, extra=extra)
        state.legs += [before, after]
        if not (before.passed and after.passed):
            failed = after if before.passed else before
            return Word.INCONCLUSIVE, [f"the pictures could not be made ({failed.name}): {_why(failed)}"]
        old, new = _pictures(before), _pictures(after)
        state.pictures = {f"before/{name}": digest for name, digest in old.items()}
        state.pictures |= {f"after/{name}": digest for name, digest in new.items()}
        if not new or old == new:
            return Word.INCONCLUSIVE, [
                "the pictures are the same with and without the change" if new else "no picture was made"
            ]
        return Word.SHOWN, [f"{len(new)} pictures after the change, {len(old)} before; they differ"]

    async def _doubted(
        self, state: _State, word: Word, findings: Sequence[HollowFinding]
    ) -> Sequence[HollowFinding]:
        """Drop doubts that runs can settle: edited judges that were not used, edited tests whose old form passes too."""
        findings = [
            finding for finding in findings if finding.file not in state.judges or not is_doubt(finding)
        ]
        about_tests = [
            finding for finding in findings if settles(finding) and finding.file in state.parts.tests
        ]
        if word not in ACCEPTED or not about_tests or not state.commands:
            return findings
        leg = await self._with_old_tests(state)
        if not leg.reading.green:
            return findings
        state.notes.append("the tests were edited; as they were before they pass with the change too")
        return [finding for finding in findings if finding not in about_tests]

    async def _only_as_edited(self, state: _State, word: Word) -> list[HollowFinding]:
        """Tests of a proof that pass only as the change edited them, not as they were, or that it took away."""
        tests = state.parts.tests
        if word is not Word.PROVEN or await asyncio.to_thread(only_adds_tests, state.change, tests):
            return []
        base, unread = await self._base(state), unread_tests(tests)
        after = next(each for each in state.legs if each.name == "after")
        if not base.reading.sound:
            return []
        found = weigh_lost(tests[0], *lost_by_edit(base.reading, after.reading, unread=unread))
        if base.reading.green and not unread:
            return found
        subject = state.subject
        tree = await asyncio.to_thread(self._trees.overlay, state.tree, subject.base_tree, tests)
        leg = await self.legs.run("old tests", tree, subject.head, state.commands)
        if all(each.tree != leg.tree for each in state.legs):
            state.legs.append(leg)
        names = passes_only_as_edited(base.reading, leg.reading, after.reading)
        broken = broken_and_edited(base.reading, leg.reading, after.reading) if unread else []
        return [*found, *weigh_edited(tests[0], names, broken)]

    async def _with_old_tests(self, state: _State) -> Leg:
        subject = state.subject
        known = await asyncio.to_thread(self._trees.names, subject.base_tree)
        old = [path for path in state.parts.tests if path in set(known)]
        tree = await asyncio.to_thread(self._trees.overlay, state.tree, subject.base_tree, old)
        leg = await self.legs.run("old tests", tree, subject.head, state.commands)
        if all(each.tree != leg.tree for each in state.legs):
            state.legs.append(leg)
        return leg

    # Refactoring

    async def _preserved(self, state: _State) -> tuple[Word, list[str]]:
        after = await self._after(state)
        base = await self._base(state)
        for leg, where in ((after, "with"), (base, "without")):
            if not leg.reading.sound:
                return Word.INCONCLUSIVE, [f"the command could not be run {where} the change: {_why(leg)}"]
        if not after.reading.green and (told := await self._still_red(state, after)):
            return told
        if state.parts.tests and (told := await self._by_old_tests(state)):
            return told
        if lost := _vanished(base, after):
            return Word.INCONCLUSIVE, [f"tests that ran before the change do not run after it: {_some(lost)}"]
        if told := await self._unnoticed(state):
            return told
        return self._covered(state)

    async def _by_old_tests(self, state: _State) -> tuple[Word, list[str]] | None:
        """The tests were changed too, so the old ones must hold for the new code."""
        leg = await self._with_old_tests(state)
        if leg.reading.green:
            state.notes.append("the tests were changed; the old ones pass on the new code too")
            return None
        return Word.INCONCLUSIVE, [
            f"the tests were changed with the code, and the old ones do not pass: {_why(leg)}"
        ]

    def _covered(self, state: _State) -> tuple[Word, list[str]]:
        coverage = state.coverage
        green = "the same tests pass on both sides"
        if coverage is None or coverage.complete:
            return Word.PRESERVED, [f"{green}, and they execute every changed line"]
        if coverage.missed:
            where = [
                f"{path}:{','.join(map(str, lines[:_SHOWN]))}" for path, lines in coverage.missed.items()
            ]
            return Word.INCONCLUSIVE, [f"{green}, but changed lines are not executed: {_some(where)}"]
        if coverage.unknown:
            return Word.INCONCLUSIVE, [
                f"{green}, but it is unknown whether they execute {_some(coverage.unknown)}"
            ]
        return Word.PRESERVED, [f"{green}; no changed line can be executed"]


ASKED = "you said so"


def _pictures(leg: Leg) -> dict[str, str]:
    names = [name for name in leg.files if name.startswith("pictures/")]
    return {name.removeprefix("pictures/"): hashlib.sha256(leg.files[name]).hexdigest() for name in names}


def _vanished(before: Leg, after: Leg) -> list[str]:
    """Tests that passed before and are not even skipped visibly after: no longer collected, or skipped now."""
    if not (before.reading.whole and after.reading.whole):
        return []
    return sorted(before.reading.passed - after.reading.passed - set(after.reading.failed))


def _why(leg: Leg) -> str:
    reading = leg.reading
    last = leg.ran[-1] if leg.ran else None
    said = reading.detail or (f"exit code {last.exit_code}" if last else "nothing was run")
    return f"{reading.reason.value if reading.reason else 'red'}: {said}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
