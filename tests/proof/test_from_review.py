"""Reviews become fix files: every known shape, with line and field of what cannot be used."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.drafts import UNKNOWN, SourceError
from proctor.proof.fixfile import parse_fix_file
from proctor.proof.from_review import fixes_of_review
from tests.proof.seed import fix_file, text_of

ISSUE = {"severity": "high", "description": "add() loses the sign", "file": "core/calc.py"}
FULL = {
    "file": "core/calc.py",
    "line": 12,
    "severity": "major",
    "issue": "add() loses the sign of b",
    "fix": "return a + b",
    "reproduction_command": "python -c 'import calc; assert calc.add(1, -1) == 0'",
}
MARKDOWN = """# Review

All in all good.

- **[critical]** `core/calc.py:12` — add() loses the sign
  of b when it is negative
  - fix: return a + b
  - verification: Run pytest; it must pass
* core/calc.py:20-24 (nit): mul() has no docstring
1. [ ] blocker: tests/test_calc.py:3: asserts nothing

```
- not/a/finding.py
```
Thanks.
"""


def fixes(value: Any) -> list[dict[str, Any]]:
    """What comes out of a review given as JSON or as text; it is a fix file's list."""
    drafted = fixes_of_review(value if isinstance(value, str) else json.dumps(value, indent=1), "review")
    parse_fix_file(text_of(fix_file(*drafted.fixes)), "001_x_fixes.json")
    return drafted.fixes


@pytest.mark.parametrize(
    "review",
    [
        {"findings": [FULL]},
        [FULL],
        {"type": "peer_review", "verdict": "concerns", "issues": [FULL], "recommendations": []},
        {"type": "review_result", "reviewer": "codex", "payload": {"verdict": "blocker", "issues": [FULL]}},
        [{"type": "peer_review", "issues": [FULL]}],
    ],
)
def test_every_json_shape_gives_the_same_fix(review: Any) -> None:
    """Both wire forms of a peer review, a bare list and a list of reviews."""
    (made,) = fixes(review)
    assert (made["file"], made["line"], made["severity"]) == ("core/calc.py", 12, "major")
    assert made["fix"] == "return a + b"
    assert made["verification"].startswith("python -c")


def test_what_a_review_does_not_say_is_asked_for_and_never_invented() -> None:
    """No line and no verification: the gaps are named, and lint refuses the mark that stands there."""
    drafted = fixes_of_review(json.dumps({"issues": [ISSUE], "verdict": "blocker"}), "r")
    (made,) = drafted.fixes
    assert (made["severity"], made["line"], made["verification"]) == ("critical", 1, UNKNOWN)
    assert [gap.split(":")[1].strip() for gap in drafted.gaps] == ["verification", "line"]
    assert made["fix"].endswith("add() loses the sign")


def test_issues_in_words_take_the_verdicts_severity_and_the_paired_advice() -> None:
    """The first wire form has texts: the place is read from them, the severity from the verdict."""
    review = {"type": "peer_review", "verdict": "blocker", "issues": ["core/a.py:3: crashes on None"],
              "recommendations": ["guard with `if x is None`"]}  # fmt: skip
    (made,) = fixes(review)
    assert (made["file"], made["line"], made["severity"]) == ("core/a.py", 3, "critical")
    assert made["issue"] == "crashes on None"
    assert made["fix"] == "guard with `if x is None`"


def test_a_markdown_list_is_read_with_its_members() -> None:
    """Bullets, numbers, boxes, severities before and behind the place; prose and code blocks are no findings."""
    one, two, three = fixes(MARKDOWN)
    assert one["issue"] == "add() loses the sign of b when it is negative"
    assert (one["severity"], one["fix"], one["line"]) == ("critical", "return a + b", 12)
    assert one["verification"] == "Run pytest; it must pass"
    assert (two["severity"], two["line"], two["issue"]) == ("minor", "20-24", "mul() has no docstring")
    assert (three["severity"], three["file"], three["issue"]) == (
        "critical",
        "tests/test_calc.py",
        "asserts nothing",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"findings": [\n{"line": 3, "description": "x y z"}]}', "line 2: findings[0].file: must name the file"),
        ('{"findings": [{"file": "../x.py", "issue": "x"}]}', "leads outside the project"),
        ('{"findings": [{"file": "a.py", "line": "x", "issue": "x"}]}', "findings[0].line: must be a line number"),
        ('{"findings": [{"file": "a.py", "line": 1}]}', "findings[0].description: must say what is wrong"),
        ('{"findings": [{"file": "a.py", "issue": "x", "severity": "odd"}]}', "'odd' is none of critical"),
        ('{"findings": [7]}', "findings[0]: must be an object or a text"),
        ('{"issues": ["no place here"]}', "no `file:line` in 'no place here'"),
        ('{"verdict": "approved"}', "it holds no finding"),
        ("{", "line 1:"),
        ("- no place", "line 1: item: file: no `file:line`"),
        ("words\n\n- a.py:3", "line 3: item: issue: nothing is said about a.py:3"),
        ("- a.py:3: wrong\n  - severity: odd", "'odd' is none of critical"),
        ("- a.py:3: wrong\n- elsewhere", "line 2: item: file"),
        ("", "it holds no finding"),
        ("\n".join(f"- a.py:{n + 1}: wrong" for n in range(501)), "at most 500"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_by_line_and_field(text: str, words: str) -> None:
    """One wrong finding refuses the whole review; nothing is written."""
    with pytest.raises(SourceError) as caught:
        fixes_of_review(text, "r.md")
    assert words in str(caught.value)


@given(
    st.text(alphabet=st.sampled_from("-*+1.` \n:[]()/ab.py3{}\"'#|"), max_size=200) | st.text(max_size=200)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever comes, the answer is a fix file's list or a sentence."""
    with contextlib.suppress(SourceError):
        drafted = fixes_of_review(text, "r")
        assert parse_fix_file(text_of(fix_file(*drafted.fixes)), "001_x_fixes.json").fixes
