"""Lines and tails: the same whatever the cuts, and never more memory than allowed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proctor.agents.lines import Line, LineSplitter, Tail


def split(data: bytes, cuts: list[int], limit: int = 1000) -> list[Line]:
    """Feed data in pieces."""
    splitter = LineSplitter(limit)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    lines = [line for a, b in pairwise(places) for line in splitter.feed(data[a:b])]
    return lines + splitter.finish()


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=20), st.integers(1, 400))
def test_cuts_do_not_change_lines(data: bytes, cuts: list[int], limit: int) -> None:
    """However the bytes arrive, the lines are the same."""
    assert split(data, cuts, limit) == split(data, [], limit)


def test_half_character_waits_for_its_rest() -> None:
    """A character cut in two is one character; a broken one is replaced, not fatal."""
    assert split("ü\n".encode(), [1]) == [Line("ü")]
    assert split(b"\xff\n", []) == [Line("\ufffd")]


def test_overlong_line_is_cut_and_says_so() -> None:
    """The line after an overlong one is whole again."""
    assert split(b"abcdef\ngh\n", [2, 5], limit=4) == [Line("abcd", truncated=True), Line("gh")]


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_tail_keeps_both_ends(chunks: list[bytes]) -> None:
    """Head and tail are exact and the missing middle is counted."""
    tail = Tail(head=10, tail=20)
    for chunk in chunks:
        tail.feed(chunk)
    whole = b"".join(chunks)
    if len(whole) <= 30:
        assert tail.text == whole.decode(errors="replace")
    else:
        assert f"{len(whole) - 30} bytes" in tail.text
