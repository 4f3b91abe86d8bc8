"""Identifiers sort by creation and do not collide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proctor.protocol.ids import new_id


@given(st.integers(0, 2**40), st.integers(1, 2**40))
def test_later_ids_sort_later(first: int, gap: int) -> None:
    """Text order is time order."""
    assert new_id("task", now_ms=first) < new_id("task", now_ms=first + gap)


def test_ids_of_one_millisecond_differ() -> None:
    """Chance keeps names apart within a millisecond."""
    assert len({new_id("t", now_ms=1) for _ in range(1000)}) == 1000
