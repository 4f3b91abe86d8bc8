"""Reading JavaScript and TypeScript tests by robust text rules: jest, vitest, mocha with chai, node:test, ava."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from proctor.proof.hollow.brackets import Brackets, blanked
from proctor.proof.hollow.model import Assertion, TestCase, graded, plain_literal

__all__ = ["read_script_tests"]

_TEST: Final = re.compile(
    r"(?<![\w.$])(?P<word>it|test|xit|xtest|fit|specify|describe|xdescribe|fdescribe|suite|context)"
    r"(?P<more>(?:\.\w+)*)\s*(?=[(`])"
)
_MAX_SPANS: Final = 20_000
_MAX_NESTED: Final = 3
_GROUPS: Final = frozenset({"describe", "xdescribe", "fdescribe", "suite", "context"})
_ASSERT: Final = re.compile(
    r"(?<![\w.$])(?:await\s+)?(?:expect(?:\.\w+)*|assert(?:\.\w+)*|"
    r"t\.(?:is|not|deepEqual|like|true|false|truthy|falsy|throws|throwsAsync|regex|pass|fail|assert|ok|equal|strictEqual))\s*\("
)
_CHAIN: Final = re.compile(r"\s*\.\s*([\w$]+)\s*")
_STRENGTHS: Final = graded(
    (
        3.0,
        "toBe toEqual toStrictEqual toHaveBeenCalledWith toHaveBeenLastCalledWith toHaveBeenNthCalledWith toHaveLength",
    ),
    (
        3.0,
        "toBeNull toBeUndefined toBeNaN toMatchInlineSnapshot equal equals strictEqual deepEqual deepStrictEqual eql eq is",
    ),
    (3.0, "throwsAsync lengthOf null undefined calledWith"),
    (2.8, "toBeCloseTo closeTo approximately"),
    (2.5, "toMatchObject toContainEqual toHaveProperty property like toHaveBeenCalledTimes"),
    (
        2.0,
        "toMatch toContain include includes contain match regex toMatchSnapshot snapshot toBeTruthy toBeFalsy ok true",
    ),
    (2.0, "false truthy falsy fail"),
    (
        1.5,
        "toBeGreaterThan toBeGreaterThanOrEqual toBeLessThan toBeLessThanOrEqual above below least most toBeInstanceOf",
    ),
    (1.5, "instanceof a an"),
    (
        1.0,
        "toBeDefined toHaveBeenCalled called exist notEqual notStrictEqual notDeepEqual notDeepStrictEqual doesNotThrow",
    ),
    (1.0, "doesNotMatch not"),
    (0.0, "pass"),
)
_LITERAL: Final = re.compile(
    r"(?<![\w.$])-?\d+(?:\.\d+)?|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`$]*`"
)
_CONSTANT: Final = re.compile(
    r"\s*(?:true|false|null|undefined|-?\d+(?:\.\d+)?|\"[^\"]*\"|'[^']*'|!0|!!1)?\s*"
)


def read_script_tests(path: str, text: str) -> list[TestCase]:
    """All tests of a file, named by their groups."""
    code = Brackets(blanked(text))
    spans = list(islice(_spans(text, code), _MAX_SPANS))
    focused = any(_only(span) for span in spans)
    tests = []
    open_spans: list[_Span] = []
    for span in spans:
        open_spans = [one for one in open_spans if one.end >= span.end]
        groups = [one for one in open_spans if one.word in _GROUPS]
        if span.word not in _GROUPS and len(open_spans) - len(groups) < _MAX_NESTED:
            tests.append(_test(path, text, code, span, groups, focused=focused))
        open_spans.append(span)
    return tests


class _Span(NamedTuple):
    """One call of a test function or of a group: where it stands and how many cases it has."""

    word: str
    more: str
    title: str
    start: int
    end: int
    cases: int


def _only(span: _Span) -> bool:
    return ".only" in span.more or span.word in {"fit", "fdescribe"}


def _test(
    path: str, text: str, code: Brackets, span: _Span, groups: list[_Span], *, focused: bool
) -> TestCase:
    body, masked = text[span.start : span.end], code.masked[span.start : span.end]
    off = next(
        (f"{one.word}{one.more}" for one in groups if ".skip" in one.more or one.word.startswith("x")), ""
    )
    skipped = off or _skip(span.word, span.more, masked)
    if focused and not skipped and not any(_only(one) for one in (span, *groups)):
        skipped = "another test is marked only"
    return TestCase(
        file=path,
        name="::".join([*(one.title for one in groups), span.title]),
        line=text.count("\n", 0, span.start) + 1,
        assertions=tuple(_assertions(text, code, span.start, span.end)),
        skipped=skipped,
        cases=span.cases,
        words=frozenset(re.findall(r"([\w$]+)\s*\(", masked)),
        literals=frozenset(plain_literal(one) for one in _LITERAL.findall(body)),
        body=re.sub(r"\s+", " ", body),
    )


def _spans(text: str, code: Brackets) -> Iterator[_Span]:
    """Calls of test functions: word, modifiers, title, first and last place, number of cases."""
    masked = code.masked
    for found in _TEST.finditer(masked):
        place = found.end()
        cases = 1
        if ".each" in found["more"] and masked[place] == "(":
            opening = masked.find("[", place)
            cases = max(code.elements(opening), 1) if 0 <= opening < code.closing(place) else 1
            place = code.closing(place)
            while place < len(masked) and masked[place].isspace():
                place += 1
        if place >= len(masked) or masked[place] != "(":
            continue
        end = code.closing(place)
        title = re.match(r"\(\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)", text[place:end])
        if title or found["word"] in _GROUPS or "=>" in masked[place:end] or "function" in masked[place:end]:
            word = "describe" if ".describe" in found["more"] or ".suite" in found["more"] else found["word"]
            yield _Span(word, found["more"], title[1][1:-1] if title else "unnamed", place, end, cases)


def _skip(word: str, more: str, masked: str) -> str:
    if ".skip" in more or ".todo" in more or ".failing" in more or word.startswith("x"):
        return f"{word}{more}"
    options = re.search(
        r"[{,]\s*(skip|todo)\s*:\s*(?!false\b)", masked[: masked.find("=>") if "=>" in masked else 200]
    )
    if options:
        return options[1]
    called = re.search(r"\b(?:t|this|ctx|context)\.(skip|todo)\s*\(", masked)
    return called[1] if called else ""


def _assertions(text: str, code: Brackets, start: int, end: int) -> Iterator[Assertion]:
    masked = code.masked
    swallowing = list(_swallowing(code, start, end))
    loops = list(_loops(code, start, end))
    for found in _ASSERT.finditer(masked, start + 1, end):
        finish = code.closing(found.end() - 1)
        names = re.findall(r"[\w$]+", found[0])
        last_start = found.end() - 1
        while (link := _CHAIN.match(masked, finish)) and finish < end:
            names.append(link[1])
            finish = link.end()
            if masked[finish : finish + 1] == "(":
                last_start = finish
                finish = code.closing(finish)
        whole = re.sub(r"\s+", " ", text[found.start() : finish]).strip()
        swallowed = any(first <= found.start() < last for first, last in swallowing)
        subject = text[found.end() : code.closing(found.end() - 1) - 1]
        argument = text[last_start + 1 : code.closing(last_start) - 1].strip()
        strength = 0.0 if swallowed else _strength(names, subject, argument)
        times = max([count for first, last, count in loops if first <= found.start() < last], default=1)
        line = text.count("\n", 0, found.start()) + 1
        yield Assertion(
            whole,
            strength,
            line,
            frozenset(plain_literal(one) for one in _LITERAL.findall(whole)),
            swallowed,
            times,
        )


def _strength(names: list[str], subject: str, argument: str) -> float:
    first, last = names[0] if names[0] != "await" else names[1], names[-1]
    if first == "expect" and last == "expect":
        return 0.0  # an expectation without a demand
    if _CONSTANT.fullmatch(subject.partition(",")[0]) and (first == "expect" or "," not in subject):
        return 0.0
    if "not" in names[1:]:
        return 1.0
    if last in {"toThrow", "toThrowError", "throws", "throw", "rejects"}:
        demanded = argument if first == "expect" else argument.partition(",")[2].strip()
        return 3.0 if demanded and demanded != "Error" else 2.0
    if _STRENGTHS.get(last) == 3.0 and argument in {"true", "false"}:
        return 2.0
    return _STRENGTHS.get(last, 2.0 if first in {"assert", "t"} else 1.0)


def _swallowing(code: Brackets, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Places of try blocks whose catch does nothing that fails."""
    masked = code.masked
    for found in re.finditer(r"\btry\s*\{", masked[start:end]):
        opening = start + found.end() - 1
        finish = code.closing(opening)
        caught = re.match(r"\s*catch\s*(?:\([^)]*\))?\s*\{", masked[finish:end])
        if caught:
            body = masked[finish + caught.end() - 1 : code.closing(finish + caught.end() - 1)]
            if not re.search(r"\b(?:throw|fail|expect|assert|done|reject)\b", body):
                yield opening, finish


def _loops(code: Brackets, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Loops over lists that stand there: first and last place, number of turns."""
    masked = code.masked
    for found in re.finditer(r"\bfor\s*\([^)]*?\bof\s*(?=\[)", masked[start:end]):
        opening = start + found.end()
        after = masked.find(")", code.closing(opening))
        yield (
            opening,
            code.closing(masked.find("{", after)) if after > 0 else end,
            max(code.elements(opening), 1),
        )
    for found in re.finditer(r"\]\s*\.forEach\s*\(", masked[start:end]):
        finish = start + found.end() - 1
        opening = code.opening(start + found.start())
        yield finish, code.closing(finish), max(code.elements(opening), 1) if opening >= 0 else 1
