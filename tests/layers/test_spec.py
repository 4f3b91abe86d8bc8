"""docs/SPEC.md names tests that are there: a guarantee without a test is a wish."""

from __future__ import annotations

import re

from tests.layers.tree import ROOT, functions

TEXT = (ROOT / "docs" / "SPEC.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
PLACES = re.findall(r"`(tests/[\w/.]+?)(?:::\w+)?`", TEXT)


def test_every_test_the_page_names_exists() -> None:
    """By file and by function."""
    assert len(NAMED) > 50
    known = {file: {one.name for one in functions(ROOT / file)} for file in {file for file, _ in NAMED}}
    assert [f"{file}::{name}" for file, name in NAMED if name not in known[file]] == []
    assert [place for place in PLACES if not (ROOT / place).exists()] == []


def test_every_rule_and_every_bug_of_the_seeds_has_a_row() -> None:
    """Ten rules, and the bugs that plans, coordinators and surfaces must not have."""
    rules = re.findall(r"^\| (\d+) [A-Z]", TEXT, re.MULTILINE)
    bugs = re.findall(r"^\| (\d+) [a-z0-9`]", TEXT, re.MULTILINE)
    assert rules == [str(number) for number in range(1, 11)]
    assert set(bugs) >= {str(number) for number in range(1, 34)}
