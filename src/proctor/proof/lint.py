"""Lint of task files: is each fix clear enough that two people would make the same change and test it the same way.

Words are looked at only where nothing concrete stands beside them, so a precise sentence may say "improve". Pure but for
`root`: with it, the named files and lines are looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proctor.proof.command_lint import lint_command
from proctor.proof.findings import LintFinding, Weight
from proctor.proof.fixfile import FixDocument
from proctor.proof.names import FileNameError, parse_name
from proctor.proof.phrases import (
    ARCHITECTURE,
    COMMON,
    CONCRETE,
    EXPECTED,
    GOAL,
    GRAVE,
    LAZY_CHECK,
    PLACEHOLDER,
    REFACTOR,
    STEPS,
    TRIFLES,
    VAGUE,
)
from proctor.proof.schema import Fix
from proctor.protocol.decisions import Severity

__all__ = ["lint_document", "lint_name"]

_WORD: Final = re.compile(r"[a-z]{4,}")
_ROOTS: Final = frozenset(
    {"src", "lib", "tests", "test", "app", "pkg", "packages", "internal", "cmd", "source"}
)


def lint_document(document: FixDocument, *, root: Path | None = None) -> list[LintFinding]:
    """Everything that makes a task file hard to carry out or to check."""
    found: list[LintFinding] = []
    for index, fix in enumerate(document.fixes):
        for code, weight, member, sentence, cure in _fix_findings(fix, root):
            line = document.line_of(index, member)
            found.append(LintFinding(code, weight, f"fix {fix.id}: {member}", sentence, cure, line=line))
        found.extend(_result_findings(document, index, fix))
    found.extend(_bundle(document))
    found.extend(_head(document))
    return sorted(found, key=lambda one: (one.line, one.code))


def lint_name(name: str, review_id: str | None = None, *, follow_up: bool = False) -> list[LintFinding]:
    """Whether the file is named by the rule and its review_id after the first file of its cycle."""
    try:
        parsed = parse_name(name)
    except FileNameError as error:
        cure = "Name it like 005_stress_test_system_fixes.json."
        return [
            LintFinding(
                "file.name", Weight.ERROR, "file name", f"The name is wrong: {error.facts['problem']}.", cure
            )
        ]
    if parsed.kind != "fixes":
        cure = "Name it …_fixes.json."
        return [
            LintFinding(
                "file.name", Weight.ERROR, "file name", f"A file of fixes is not called {parsed.kind}.", cure
            )
        ]
    if review_id is not None and not follow_up and review_id != parsed.review_id:
        sentence = f"review_id is {review_id[:60]!r}, but the file begins the cycle {parsed.review_id!r}."
        cure = "Take the file's sequence and focus area, or name the file it follows in previous_file."
        return [LintFinding("file.review-id", Weight.WARNING, "review_id", sentence, cure)]
    return []


_Found = tuple[str, Weight, str, str, str]


def _fix_findings(fix: Fix, root: Path | None) -> Iterator[_Found]:
    yield from _vague(fix)
    yield from _scope(fix)
    yield from _checking(fix)
    yield from _severity(fix)
    for member in ("file", "issue", "fix", "verification"):
        if PLACEHOLDER.search(str(getattr(fix, member))):
            yield (
                "fix.placeholder",
                Weight.ERROR,
                member,
                "It still holds a placeholder.",
                "Write the real thing.",
            )
    if root is not None:
        yield from _places(fix, root)


def _vague(fix: Fix) -> Iterator[_Found]:
    for member in ("issue", "fix"):
        text = str(getattr(fix, member))
        concrete = CONCRETE.search(text) is not None
        if not concrete and (VAGUE.search(text) or len(text.split()) < 3):
            sentence = f"{text[:60]!r} is vague: two people would do two different things."
            cure = "Name the function, the value or the condition, and what has to become of it."
            yield f"fix.vague-{member}", Weight.ERROR, member, sentence, cure


def _scope(fix: Fix) -> Iterator[_Found]:
    text = f"{fix.fix} {fix.issue}"
    if ARCHITECTURE.search(fix.fix):
        sentence = "This asks for a change of architecture, which is not a fix."
        yield (
            "fix.architecture",
            Weight.ERROR,
            "fix",
            sentence,
            "Plan it as a task of its own and keep here what one change can mend.",
        )
    elif REFACTOR.search(fix.fix) and not GOAL.search(text):
        sentence = "It asks for refactoring without a goal."
        yield (
            "fix.refactoring",
            Weight.ERROR,
            "fix",
            sentence,
            "Say what must be true afterwards, for example which function is split and why.",
        )


def _checking(fix: Fix) -> Iterator[_Found]:
    text = fix.verification
    if LAZY_CHECK.fullmatch(text):
        sentence = f"{text[:60]!r} does not say how to test it."
        yield (
            "fix.verification",
            Weight.ERROR,
            "verification",
            sentence,
            "Write the steps or the command, and what must come out.",
        )
        return
    grave = fix.severity is not Severity.MINOR
    if grave and not STEPS.search(f"{fix.issue} {text}"):
        sentence = "There are no steps that show the problem."
        yield (
            "fix.reproduction",
            Weight.WARNING,
            "verification",
            sentence,
            "Say what to run or do so that it goes wrong today.",
        )
    if not EXPECTED.search(f"{text} {fix.fix}"):
        sentence = "It does not say what is expected afterwards."
        yield "fix.expected", Weight.WARNING, "verification", sentence, "Say what must be seen when it works."


def _severity(fix: Fix) -> Iterator[_Found]:
    trifle, grave = TRIFLES.search(fix.issue), GRAVE.search(fix.issue)
    if fix.severity is Severity.CRITICAL and trifle and not grave:
        sentence = f"{trifle[0]!r} is not critical: crashes, data loss and security are."
        yield "fix.severity", Weight.WARNING, "severity", sentence, "Use minor."
    if fix.severity is Severity.MINOR and grave and not trifle:
        sentence = f"{grave[0]!r} is more than minor."
        yield (
            "fix.severity",
            Weight.WARNING,
            "severity",
            sentence,
            "Use critical for crashes, data loss and security, major for reliability.",
        )


def _places(fix: Fix, root: Path) -> Iterator[_Found]:
    path = root / fix.path
    if path.is_symlink() or not path.is_file():
        if not re.search(r"\b(add|create|new|write|missing)\b", f"{fix.issue} {fix.fix}", re.IGNORECASE):
            yield (
                "fix.file",
                Weight.WARNING,
                "file",
                f"There is no file {fix.path!r}.",
                "Write the path from the project's root.",
            )
        return
    if path.stat().st_size > 4 * 1024 * 1024:
        return
    count = path.read_bytes().count(b"\n") + 1
    if fix.lines[1] > count:
        sentence = f"{fix.path} has {count} lines, so line {fix.lines[1]} does not exist."
        yield "fix.line", Weight.ERROR, "line", sentence, "Name the line where the problem is today."


def _result_findings(document: FixDocument, index: int, fix: Fix) -> Iterator[LintFinding]:
    if fix.result is None:
        return
    for member in ("verification_command", "hallucination_check"):
        place = f"fix {fix.id}: result.{member}"
        line = document.line_of(index, "result", member)
        yield from lint_command(str(getattr(fix.result, member)), place, line=line)
    if not fix.result.claims_change and not fix.result.finding:
        line = document.line_of(index, "result")
        sentence = f"{fix.result.status} comes without a finding."
        yield LintFinding(
            "result.finding",
            Weight.WARNING,
            f"fix {fix.id}: result",
            sentence,
            "Say in finding what was found.",
            line=line,
        )


def _head(document: FixDocument) -> Iterator[LintFinding]:
    if "result" not in document.data.instructions.lower():
        sentence = "The instructions do not ask for a result in each fix."
        cure = "Say: add a 'result' to each fix in THIS file."
        line = document.source.line(("instructions",))
        yield LintFinding(
            "file.instructions", Weight.WARNING, "instructions", sentence, cure, line, fixable=True
        )
    if len(document.fixes) >= 3 and all(fix.lines == (1, 1) for fix in document.fixes):
        sentence = "Every fix names line 1."
        yield LintFinding(
            "file.lines",
            Weight.WARNING,
            "line",
            sentence,
            "Name the line where each problem is.",
            document.line_of(0, "line"),
        )


def _bundle(document: FixDocument) -> Iterator[LintFinding]:
    """Fixes belong together when they share a file, a directory, or a word that matters."""
    marks = [_marks(fix) for fix in document.fixes]
    groups: list[tuple[set[str], list[int]]] = []
    for index, words in enumerate(marks):
        touching = [group for group in groups if group[0] & words]
        groups = [group for group in groups if group not in touching]
        groups.append((words.union(*(g[0] for g in touching)), [*(i for g in touching for i in g[1]), index]))
    if len(groups) > 1:
        names = " | ".join(
            ", ".join(str(document.fixes[i].id) for i in sorted(group[1])[:5]) for group in groups[:4]
        )
        cure = "Put what does not belong together into files of their own."
        sentence = f"The fixes have nothing to do with each other: {names}."
        line = document.source.line(("fixes",))
        yield LintFinding("file.bundle", Weight.WARNING, "fixes", sentence, cure, line)


def _marks(fix: Fix) -> set[str]:
    parts = fix.path.split("/")
    words = {part for part in parts[:-1] if part not in _ROOTS} | {fix.path}
    stem = re.sub(r"([a-z])([A-Z])", r"\1 \2", parts[-1].split(".")[0]).lower()
    return words | {
        word
        for word in _WORD.findall(f"{stem} {fix.issue} {fix.fix}".lower().replace("_", " "))
        if word not in COMMON
    }
