"""Reading shell tests by robust text rules: bats, functions named test_…, or the script as one test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from proctor.proof.hollow.model import Assertion, TestCase, plain_literal

__all__ = ["is_strict", "read_shell_tests"]

_HEAD: Final = re.compile(
    r"^[ \t]*(?:@test\s+(?P<quote>[\"'])(?P<title>.*?)(?P=quote)\s*|(?:function\s+)?(?P<name>test_\w+)\s*(?:\(\))?\s*)\{",
    re.MULTILINE,
)
_ASSERT: Final = re.compile(
    r"(?:^|[;&|({]\s*|\bif\s+|\bthen\s+|\belse\s+|!\s*)(\[\[?\s|test\s|assert\w*\b|refute\w*\b|grep\b|diff\s|cmp\s|expect\w*\b|python3?\s|node\s)"
)
_DEMANDS: Final = re.compile(
    r"\|\|\s*(?:\{\s*)?(?:\w+\s+)*?(?:exit|return|fail|false|die|kill)\b|\|\|\s*\{[^}]*(?:exit|return|fail|false)"
)
_NOTHING: Final = re.compile(r"\|\|\s*(?:true|:|echo\b|printf\b)")
_LITERAL: Final = re.compile(r"(?<![\w$])-?\d+(?:\.\d+)?\b|\"(?:[^\"\\$`]|\\.)*\"|'[^']*'")


def is_strict(text: str) -> bool:
    """Whether the script stops at the first failure."""
    return (
        re.search(
            r"^[ \t]*set\s+-\w*e|^[ \t]*set\s+-o\s+errexit|^#!.*\b(?:ba)?sh\s+-\w*e|@test\b",
            text,
            re.MULTILINE,
        )
        is not None
    )


def read_shell_tests(path: str, text: str) -> list[TestCase]:
    """All tests of a script; without any named one the script itself is the test."""
    tests = []
    covered: list[tuple[int, int]] = []
    for found in _HEAD.finditer(text):
        end = _end(text, found.end() - 1)
        covered.append((found.start(), end))
        tests.append(_test(path, found["title"] or found["name"], text, found.start(), end, strict=True))
    rest = text
    for first, last in reversed(covered):
        rest = rest[:first] + re.sub(r"[^\n]", " ", rest[first:last]) + rest[last:]
    whole = _test(path, "(script)", rest, 0, len(rest), strict=is_strict(text))
    return [*tests, *([whole] if whole.assertions else [])]


def _end(text: str, opening: int) -> int:
    """Where a function ends: at a closing brace at the beginning of a line, as people write them."""
    found = re.compile(r"^\}", re.MULTILINE).search(text, opening)
    line = text.find("\n", opening)
    return found.end() if found else line if line >= 0 else len(text)


def _test(path: str, name: str, text: str, start: int, end: int, *, strict: bool) -> TestCase:
    body = text[start:end]
    skipped = re.search(r"^[ \t]*skip\b", body, re.MULTILINE)
    return TestCase(
        file=path,
        name=name,
        line=text.count("\n", 0, start) + 1,
        assertions=tuple(_assertions(body, text.count("\n", 0, start) + 1, strict=strict)),
        skipped="skip" if skipped else "",
        words=frozenset(re.findall(r"[A-Za-z_][\w./-]{2,}", body)),
        literals=frozenset(plain_literal(one) for one in _LITERAL.findall(body)),
        body=re.sub(r"[ \t]+", " ", body),
    )


def _assertions(body: str, first: int, *, strict: bool) -> Iterator[Assertion]:
    for number, raw in enumerate(body.replace("\\\n", "  ").split("\n")):
        line = re.sub(r"(?:^|\s)#.*$", "", raw).strip()
        if re.match(r"(?:exit|return)\s+0\b", line) and not raw[:1].isspace():
            return  # the rest is never reached
        found = _ASSERT.search(line)
        if not found or line.startswith(("echo ", "printf ")):
            continue
        swallowed = _NOTHING.search(line) is not None
        heard = (
            strict
            or _DEMANDS.search(line)
            or re.match(r"(?:if|elif|while|until|assert|refute)\b", line)
            or "&&" in line
        )
        strength = 0.0 if swallowed or not heard else _strength(line, found[1].strip())
        yield Assertion(
            re.sub(r"\s+", " ", line),
            strength,
            first + number,
            frozenset(plain_literal(one) for one in _LITERAL.findall(line)),
            swallowed,
        )


def _strength(line: str, word: str) -> float:
    if re.search(r"(?:^|\s)(?:\[\[?|test)\s+(?:-n\s+)?[\"']?[\w]+[\"']?\s*(?:\]|$)", line):
        return 0.0  # a constant
    if re.search(r"!=|-ne\b|\[\[?\s+!|^!|refute", line):
        return 1.5
    if word in {"diff", "cmp"} or re.search(
        r"\s(?:=|==|-eq)\s|assert_equal|assert_output(?!\s+--partial)", line
    ):
        return 3.0
    if word == "grep" or re.search(
        r"=~|\*|--partial|assert_(?:success|failure|line)|-(?:gt|ge|lt|le)\b", line
    ):
        return 2.0
    if re.search(r"\s-[nzfedrwxs]\s", line):
        return 1.0
    return 2.0
