"""Tests before against tests after: deleted, skipped, weakened, or honestly rearranged.

Assertions are first matched inside the same test, then by their exact text anywhere, then by the values they name: a test
that was renamed, split, or made a table of cases demands as much as before and is no finding.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from proctor.proof.hollow.model import Assertion, HollowFinding, HollowKind, HollowWeight, TestCase

__all__ = ["compare_tests"]

_ALIKE: Final = 0.6
_PLAIN: Final = frozenset({"None", "True", "False", "''", "0", "1", "-1", "0.0", "1.0"})
# Bounds against files that are made to be slow to compare.
_CANDIDATES: Final = 5
_TEXT: Final = 2000
_LINE: Final = 200
_SCANNED: Final = 2000


@dataclass(slots=True)
class _Open:
    """An assertion after the change that may still stand for one before it; a table of cases may stand for many."""

    test: TestCase
    assertion: Assertion
    left: int


@dataclass(slots=True)
class _Book:
    """What is still open while the tests are matched."""

    open: list[_Open]
    matched: dict[int, list[_Open]] = field(default_factory=dict)


def compare_tests(
    before: Sequence[TestCase], after: Sequence[TestCase], *, moved: Mapping[str, str], gone: frozenset[str]
) -> list[HollowFinding]:
    """Compare; `moved` gives the new path of a renamed file, `gone` the names the change removed from the product."""
    pairs = _pairs(before, after, moved)
    entries = {
        id(test): [_Open(test, one, one.times * test.cases) for one in test.assertions if one.strength > 0]
        for test in after
    }
    book = _Book([entry for listed in entries.values() for entry in listed], entries)
    lost: list[tuple[TestCase, TestCase | None, list[Assertion]]] = []
    for old, new in pairs:
        rest = _cancel(old, book.matched[id(new)] if new else [])
        lost.append((old, new, rest))
    lost = [(old, new, _cancel_anywhere(rest, book.open)) for old, new, rest in lost]
    findings: list[HollowFinding] = []
    for old, new, rest in lost:
        findings += _verdict(old, new, rest, book, gone)
    findings += list(_skips(pairs, after))
    findings += list(_empty_assertions(pairs, after))
    return findings


def _pairs(
    before: Sequence[TestCase], after: Sequence[TestCase], moved: Mapping[str, str]
) -> list[tuple[TestCase, TestCase | None]]:
    """Pair every test before with the one it became: by place and name, by name alone, then by likeness."""
    by_key = {(test.file, test.name): test for test in after}
    by_name: dict[str, list[TestCase]] = {}
    for test in after:
        by_name.setdefault(test.short, []).append(test)
    keys = {(moved.get(old.file, old.file), old.name) for old in before}
    free = {id(test): test for test in after if (test.file, test.name) not in keys}
    pairs: list[tuple[TestCase, TestCase | None]] = []
    for old in before:
        new = by_key.get((moved.get(old.file, old.file), old.name))
        if new is None:
            same = [test for test in by_name.get(old.short, []) if id(test) in free]
            new = same[0] if len(same) == 1 and old.short != "(module)" else None
        if new is not None:
            free.pop(id(new), None)
        pairs.append((old, new))
    return [(old, new or _likeliest(old, free)) for old, new in pairs]


def _likeliest(old: TestCase, free: dict[int, TestCase]) -> TestCase | None:
    """The likeliest among the few that share most words: comparing texts costs much, comparing words little."""
    near = sorted(free.values(), key=lambda test: _same_words(old, test), reverse=True)[:_CANDIDATES]
    scored = [(_likeness(old, test), test) for test in near]
    best = max(scored, key=lambda one: one[0], default=None)
    if best is None or best[0] < _ALIKE:
        return None
    return free.pop(id(best[1]))


def _same_words(old: TestCase, new: TestCase) -> float:
    return len(old.words & new.words) / max(len(old.words | new.words), 1)


def _likeness(old: TestCase, new: TestCase) -> float:
    body = difflib.SequenceMatcher(None, old.body[:_TEXT], new.body[:_TEXT], autojunk=False).ratio()
    return 0.7 * body + 0.3 * _same_words(old, new)


def _cancel(old: TestCase, entries: list[_Open]) -> list[Assertion]:
    """Take away what stands unchanged in the same test, case by case."""
    rest: list[Assertion] = []
    for one in old.assertions:
        if one.strength <= 0:
            continue
        for _ in range(one.times * old.cases):
            same = next(
                (entry for entry in entries if entry.left > 0 and entry.assertion.text == one.text), None
            )
            if same is None:
                rest.append(one)
            else:
                same.left -= 1
    return rest


def _cancel_anywhere(rest: list[Assertion], entries: list[_Open]) -> list[Assertion]:
    by_text: dict[str, list[_Open]] = {}
    for entry in entries:
        by_text.setdefault(entry.assertion.text, []).append(entry)
    left: list[Assertion] = []
    for one in rest:
        same = next((entry for entry in by_text.get(one.text, ()) if entry.left > 0), None)
        if same is None:
            left.append(one)
        else:
            same.left -= 1
    return left


def _verdict(
    old: TestCase, new: TestCase | None, rest: list[Assertion], book: _Book, gone: frozenset[str]
) -> Iterator[HollowFinding]:
    """What is to be said about one test of before, once all its unchanged assertions are taken away."""
    lost: list[tuple[Assertion, _Open | None]] = []
    changed: list[tuple[Assertion, _Open]] = []
    for one in rest:
        stands = _within(one, book.matched[id(new)]) if new else None
        stands = stands or _elsewhere(one, old, book.open)
        if stands is None:
            lost.append((one, _weaker(one, book.matched[id(new)]) if new else None))
        else:
            stands.left -= 1
            if new is not None and stands.test is new and stands.assertion.literals != one.literals:
                changed.append((one, stands))
    if new is None and (lost or not any(one.strength > 0 for one in old.assertions)):
        yield _deleted(old, lost, gone)
    elif new is not None and lost:
        yield from _weakened(old, new, lost)
    if new is not None:
        for was, now in changed[:3]:
            why = f"`{was.text[:80]}` became `{now.assertion.text[:80]}`"
            yield HollowFinding(
                HollowKind.EXPECTATION_CHANGED, HollowWeight.NOTE, new.file, now.assertion.line, why
            )


def _within(one: Assertion, entries: list[_Open]) -> _Open | None:
    """An assertion of the same test that demands at least as much."""
    fitting = [entry for entry in entries if entry.left > 0 and entry.assertion.strength >= one.strength]
    return max(fitting[:20], key=lambda entry: _shared(one, entry.assertion), default=None)


def _shared(one: Assertion, other: Assertion) -> float:
    return difflib.SequenceMatcher(None, one.text[:_LINE], other.text[:_LINE], autojunk=False).ratio()


def _elsewhere(one: Assertion, old: TestCase, entries: list[_Open]) -> _Open | None:
    """An assertion of another test that calls the same and names the same values, in its cases or its body."""
    telling = one.literals - _PLAIN
    for entry in entries[:_SCANNED]:
        if entry.left <= 0 or entry.assertion.strength < one.strength:
            continue
        same_words = (entry.test.words & old.words) - {
            "len",
            "str",
            "list",
            "dict",
            "expect",
            "assertEqual",
            "toBe",
            "toEqual",
        }
        if same_words and one.literals <= entry.test.literals and (telling or one.literals):
            return entry
    return None


def _weaker(one: Assertion, entries: list[_Open]) -> _Open | None:
    loose = [entry for entry in entries if entry.left > 0][:20]
    best = max(loose, key=lambda entry: _shared(one, entry.assertion), default=None)
    return best if best is not None and _shared(one, best.assertion) > 0.4 else None


def _deleted(
    old: TestCase, lost: list[tuple[Assertion, _Open | None]], gone: frozenset[str]
) -> HollowFinding:
    total = sum(one.times for one in old.assertions if one.strength > 0) * old.cases
    if lost and len(lost) < total:
        example = lost[0][0].text[:80]
        why = f"{old.name} is gone and {len(lost)} of its {total} assertions stand nowhere else: `{example}`"
        return HollowFinding(HollowKind.TEST_WEAKENED, HollowWeight.REFUTES, old.file, old.line, why)
    tested = sorted(old.words & gone)
    if tested:
        why = f"{old.name} was deleted together with {tested[0]}, which it tested"
        return HollowFinding(HollowKind.TEST_DELETED, HollowWeight.NOTE, old.file, old.line, why)
    return HollowFinding(
        HollowKind.TEST_DELETED, HollowWeight.REFUTES, old.file, old.line, f"{old.name} was deleted"
    )


def _weakened(
    old: TestCase, new: TestCase, lost: list[tuple[Assertion, _Open | None]]
) -> Iterator[HollowFinding]:
    kept = sum(one.strength > 0 for one in new.assertions)
    had = sum(one.strength > 0 for one in old.assertions)
    if kept >= had and new.cases < old.cases and all(now is None for _, now in lost):
        why = f"{new.name} has {new.cases} cases, {old.cases} before"
        yield HollowFinding(HollowKind.CASES_REMOVED, HollowWeight.REFUTES, new.file, new.line, why)
        return
    for was, now in lost[:3]:
        if now is None:
            why = f"{new.name} no longer asserts `{was.text[:80]}`"
            yield HollowFinding(HollowKind.TEST_WEAKENED, HollowWeight.REFUTES, new.file, new.line, why)
            continue
        why = f"`{was.text[:80]}` became `{now.assertion.text[:80]}`, which demands less"
        only_nearly = was.strength - now.assertion.strength < 0.5 and now.assertion.strength > 2.5
        weight = HollowWeight.SUSPICIOUS if only_nearly else HollowWeight.REFUTES
        yield HollowFinding(HollowKind.TEST_WEAKENED, weight, new.file, now.assertion.line, why)


def _skips(
    pairs: list[tuple[TestCase, TestCase | None]], after: Sequence[TestCase]
) -> Iterator[HollowFinding]:
    paired = set()
    for old, new in pairs:
        if new is None:
            continue
        paired.add(id(new))
        if new.skipped and not old.skipped:
            why = f"{new.name} is not run any more ({new.skipped})"
            yield HollowFinding(HollowKind.TEST_SKIPPED, HollowWeight.REFUTES, new.file, new.line, why)
        elif new.maybe_skipped and not old.maybe_skipped and not old.skipped:
            why = f"{new.name} is run only under a condition now"
            yield HollowFinding(HollowKind.TEST_SKIPPED, HollowWeight.SUSPICIOUS, new.file, new.line, why)
    for test in after:
        if id(test) not in paired and test.skipped:
            why = f"the new {test.name} is not run ({test.skipped})"
            yield HollowFinding(HollowKind.TEST_SKIPPED, HollowWeight.NOTE, test.file, test.line, why)


def _empty_assertions(
    pairs: list[tuple[TestCase, TestCase | None]], after: Sequence[TestCase]
) -> Iterator[HollowFinding]:
    """New assertions that demand nothing, or whose failure nobody hears."""
    before = {id(new): old for old, new in pairs if new is not None}
    for test in after:
        old = before.get(id(test))
        known = Counter(one.text for one in old.assertions if one.strength == 0) if old else Counter()
        sure = old is not None and old.strength > test.strength
        alone = not any(one.strength > 0 for one in test.assertions)
        for one in test.assertions:
            if one.strength > 0 or known[one.text] > 0:
                continue
            kind = HollowKind.SWALLOWED_ASSERTION if one.swallowed else HollowKind.TRIVIAL_ASSERTION
            said = "whose failure is swallowed" if one.swallowed else "which is always true"
            weight = HollowWeight.REFUTES if sure else HollowWeight.SUSPICIOUS if alone else HollowWeight.NOTE
            yield HollowFinding(
                kind, weight, test.file, one.line, f"{test.name} asserts `{one.text[:80]}`, {said}"
            )
