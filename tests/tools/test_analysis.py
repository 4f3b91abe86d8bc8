"""What a request is about is found from its words, quickly whatever they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.tools.analysis import analyze

FILES = ["src/app.py", "src/app.pyc", "docs/guide.md", "app", ".env", "a.b.c"]


@given(st.text("ab./- \n", max_size=40), st.sampled_from(FILES))
def test_files_that_the_text_names_come_first(noise: str, file: str) -> None:
    """A name stands for itself wherever a sentence ends around it."""
    said = set(re.findall(r"[\w./\-]+\.\w+", f"{noise} {file} {noise}"))
    found = analyze(f"{noise} {file} {noise}", None, [], [file])
    assert (file in found.files) >= (file in said)


@pytest.mark.parametrize("unit", ["a", "1", "_", "-", ".", "/", "a/", "a.b", "a. "])
def test_no_request_stops_the_server(unit: str) -> None:
    """A megabyte of anything is looked at in moments; one word without a dot took hours."""
    found = analyze(unit * (1_000_000 // len(unit)), None, [], FILES)
    assert found.complexity >= 1
