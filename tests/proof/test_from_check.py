"""Judgements become fix files: what is hollow, red, not executed or open, each with its place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proctor.proof.drafts import Drafted, SourceError
from proctor.proof.findings import has_errors
from proctor.proof.fixfile import parse_fix_file
from proctor.proof.from_check import fixes_of_check
from proctor.proof.lint import lint_document
from proctor.proof.receipt import SCHEMA
from tests.proof.seed import fix_file, text_of

PATCH = "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -3,2 +4,2 @@\n-x\n+y\n"


def leg(name: str, **failed: str) -> dict[str, Any]:
    """One leg of a receipt."""
    tests = {"passed": [], "failed": failed, "skipped": [], "reason": "assertion", "detail": "assert 1 == 0"}
    return {"name": name, "tests": tests, "recipe": {"paths": ["calc.py", "tests/test_calc.py"]}, "runs": []}


def receipt(verdict: str, *reasons: str, **more: Any) -> dict[str, Any]:
    """A receipt with what is read from it."""
    body = {
        "schema": SCHEMA, "verdict": verdict, "reasons": list(reasons), "commands": ["pytest -q"], "legs": [],
        "findings": [], "coverage": None, "change": {"label": "x", "commit": None, "patch": PATCH},
    }  # fmt: skip
    return {**body, **more}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with a test in it."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "calc.py").write_text("x = 1\n" * 30)
    (tmp_path / "tests/test_calc.py").write_text(
        "import calc\n\n\ndef test_add():\n    assert calc.x == 1\n" * 4
    )
    return tmp_path


def none(_name: str) -> Mapping[str, Any]:
    """No receipt is asked for."""
    raise AssertionError


def made(value: Any, root: Path) -> Drafted:
    """The fixes; they are a fix file that lint has nothing to refuse in."""
    drafted = fixes_of_check(value, "r.json", root=root, load=none)
    if drafted.fixes:
        document = parse_fix_file(text_of(fix_file(*drafted.fixes)), "005_stress_test_system_fixes.json")
        assert not has_errors(lint_document(document, root=root))
    return drafted


def test_hollow_findings_become_fixes_with_a_check_that_finds_the_old_assertion(root: Path) -> None:
    """Place, severity and cure by kind; notes are none."""
    weakened = {"kind": "test weakened", "weight": "refutes", "file": "tests/test_calc.py", "line": 5,
                "why": "`f() == 5` became `f() is not None`, which demands less"}  # fmt: skip
    slower = {**weakened, "kind": "tolerance raised", "weight": "suspicious", "why": "the limit is 10, was 1"}
    note = {**weakened, "weight": "note"}
    found = made(receipt("refuted", "hollow: x", findings=[weakened, slower, note]), root).fixes
    assert [(one["severity"], one["line"]) for one in found] == [("major", 5), ("minor", 5)]
    assert found[0]["hallucination_check"] == f"grep -qF -- 'f() == 5' {root}/tests/test_calc.py"
    assert found[0]["verification_command"] == f"cd {root} && pytest -q"
    assert "hallucination_check" not in found[1]


@pytest.mark.parametrize("name", ["../outside.py", "tests/pipe.py", "tests/no\0name.py", "tests/link.py"])
def test_a_reports_names_lead_nowhere_outside_the_checkout(root: Path, name: str) -> None:
    """A report may come from anybody: what it names is read only if it is a file in here, and only so much of it."""
    (root.parent / "outside.py").write_text("def test_add(): pass\n")
    (root / "tests" / "link.py").symlink_to(root.parent / "outside.py")
    os.mkfifo(root / "tests" / "pipe.py")
    said = receipt("refuted", "x", legs=[leg("after", **{f"{name}::test_add": "assertion"}), leg("base")])
    (found,) = made(said, root).fixes
    assert (found["file"], found["line"]) == ("tests/test_calc.py", 4)


def test_newly_red_tests_are_named_where_they_stand(root: Path) -> None:
    """What was red before is not asked for; the runner's name leads to file and line."""
    legs = [
        leg("after", **{"tests.test_calc::test_add": "assertion", "old": "assertion"}),
        leg("base", old="assertion"),
    ]
    (one,) = made(receipt("refuted", "newly red with the change: x", legs=legs), root).fixes
    assert (one["file"], one["line"]) == ("tests/test_calc.py", 4)
    assert "calc.py so that tests.test_calc::test_add passes" in one["fix"]


def test_open_reasons_and_lines_that_nobody_runs_are_fixes_too(root: Path) -> None:
    """The changed source file with its first changed line, and the range that no test reaches."""
    coverage = {"missed": {"calc.py": [7, 9]}, "executed": {}, "unknown": []}
    reason = "no test tells before from after: the same ones pass with and without the change"
    one, two = made(receipt("inconclusive", reason, coverage=coverage, legs=[leg("before")]), root).fixes
    assert (one["file"], one["line"], one["severity"]) == ("calc.py", 4, "minor")
    assert "Add a test that fails without the change" in one["fix"]
    assert (two["line"], two["severity"]) == ("7-9", "minor")


def test_nothing_open_gives_nothing(root: Path) -> None:
    """A proven change leaves no fix."""
    assert made(receipt("proven", "failed without the change and passes with it: t"), root).fixes == []


def test_a_report_of_fixes_is_followed_to_its_receipts(root: Path) -> None:
    """Only what is not proven; place and severity are the fix's own."""
    fix = {"id": 7, "file": "calc.py", "line": 3, "severity": "critical"}
    rows = [{"verdict": "proven", "receipt": "a"}, {"verdict": "refuted", "receipt": "b"}]
    kept = {"b": receipt("refuted", "nothing was changed", fix=fix)}
    drafted = fixes_of_check({"fixes": rows}, "v.json", root=root, load=kept.__getitem__)
    (one,) = drafted.fixes
    assert (one["file"], one["line"], one["severity"]) == ("calc.py", 3, "critical")
    assert "Fix 7 is refuted: nothing was changed" in one["issue"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "neither a receipt"),
        ({"fixes": []}, "neither a receipt"),
        ({"fixes": [{"verdict": "refuted"}]}, "fixes[0].receipt"),
        ({"schema": SCHEMA, "verdict": "refuted"}, "reasons: is missing"),
    ],
)
def test_anything_else_is_refused_by_name(root: Path, value: Any, words: str) -> None:
    """The sentence says which member is wrong."""
    with pytest.raises(SourceError) as caught:
        fixes_of_check(value, "r.json", root=root, load=none)
    assert words in str(caught.value)
