"""Which part of a change is one fix's own: its commit where it names one, else its hunks in its file.

Several fixes in one file share its hunks by nearness to the lines they name; where that leaves a doubt, nothing is
guessed: the fix cannot be isolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from proctor.proof.diff import Diff, FileDiff, Hunk, parse_diff, render_diff, reverse
from proctor.proof.kinds import is_test_file
from proctor.proof.schema import Fix
from proctor.proof.subject import Parts, Subject
from proctor.workspace.trees import Trees
from proctor.workspace.worktree import NoCommitError

__all__ = ["Isolated", "isolate", "own_commit"]


@dataclass(frozen=True, slots=True)
class Isolated:
    """The fix's own part: its diff, the tree without it, and why not when it could not be told."""

    diff: Diff
    without: str | None
    tests: tuple[str, ...]
    problem: str = ""


def isolate(
    trees: Trees, subject: Subject, diff: Diff, parts: Parts, fix: Fix, fixes: Sequence[Fix]
) -> Isolated:
    """Find the fix's own part of a change and take it back; the change's tests stay, but for the fix's own file."""
    tests = tuple(path for path in parts.tests if path != fix.path)
    commit = own_commit(fix)
    if commit is not None:
        return _by_commit(trees, subject, commit, tests, fix)
    rivals = [other for other in fixes if other.path == fix.path and other.id != fix.id and _claims(other)]
    file = diff.of(fix.path)
    if file is None:
        return _elsewhere(trees, subject, diff, parts, tests, fix, fixes)
    if not rivals:
        without = trees.overlay(subject.tree, subject.base_tree, _both(file))
        return Isolated(Diff((file,)), without, tests)
    return _by_lines(trees, subject, file, tests, fix, rivals)


def _claims(fix: Fix) -> bool:
    return fix.result is not None and fix.result.claims_change


def _both(file: FileDiff) -> list[str]:
    return [path for path in {file.old_path, file.new_path} if path]


def own_commit(fix: Fix) -> str | None:
    """The commit that a fix names as its own."""
    extra: dict[str, Any] = (fix.result.model_extra if fix.result is not None else None) or {}
    commit = extra.get("commit")
    return commit if isinstance(commit, str) and commit.strip() else None


def _by_commit(trees: Trees, subject: Subject, commit: str, tests: tuple[str, ...], fix: Fix) -> Isolated:
    nothing = Diff(())
    try:
        own = trees.commit(commit)
        if not trees.git.ok("merge-base", "--is-ancestor", own, subject.head):
            return Isolated(nothing, None, tests, f"its commit {commit[:12]} is not part of the change")
        parent = trees.commit(f"{own}~1")
    except NoCommitError:
        return Isolated(nothing, None, tests, f"its commit {commit[:12]} does not exist")
    diff = parse_diff(trees.diff(trees.tree(parent), trees.tree(own)))
    source = [file for file in diff.files if file.path == fix.path or not is_test_file(file.path)]
    without = _taken_back(trees, subject.tree, Diff(tuple(source)))
    return Isolated(diff, without, tests, "" if without else "its commit cannot be taken back alone")


def _taken_back(trees: Trees, tree: str, diff: Diff) -> str | None:
    return trees.applied(tree, render_diff(reverse(diff))) if diff.files else None


def _elsewhere(
    trees: Trees,
    subject: Subject,
    diff: Diff,
    parts: Parts,
    tests: tuple[str, ...],
    fix: Fix,
    fixes: Sequence[Fix],
) -> Isolated:
    """The fix's file was not touched; when it is the only one, the whole change must be its doing."""
    if sum(_claims(other) for other in fixes) == 1 and parts.source:
        without = trees.overlay(subject.tree, subject.base_tree, parts.source)
        return Isolated(diff, without, tests)
    return Isolated(Diff(()), None, tests, f"{fix.path} was not changed, and other files may be other fixes'")


def _by_lines(
    trees: Trees, subject: Subject, file: FileDiff, tests: tuple[str, ...], fix: Fix, rivals: Sequence[Fix]
) -> Isolated:
    own = []
    for hunk in file.hunks:
        mine, theirs = _distance(hunk, fix), min(_distance(hunk, other) for other in rivals)
        if mine == theirs:
            return Isolated(
                Diff((file,)), None, tests, f"fixes {_ids(fix, rivals)} change the same lines of {fix.path}"
            )
        if mine < theirs:
            own.append(hunk)
    diff = Diff((replace(file, hunks=tuple(own)),)) if own else Diff(())
    without = _taken_back(trees, subject.tree, diff)
    return Isolated(diff, without, tests, "" if without else f"no hunk of {fix.path} is this fix's alone")


def _ids(fix: Fix, rivals: Sequence[Fix]) -> str:
    return ", ".join(str(one.id) for one in (fix, *rivals))


def _distance(hunk: Hunk, fix: Fix) -> int:
    """How far a fix's lines are from a hunk's changed lines, in the old or the new file, whichever is nearer."""
    first, last = fix.lines
    spans = []
    for kind in "-+":
        numbers = [number for number, line in hunk.numbered() if line.kind == kind]
        if numbers:
            spans.append((min(numbers), max(numbers)))
    gaps = [max(0, start - last, first - end) for start, end in spans]
    return min(gaps, default=1 << 30)
