"""The key and the seals of the trace."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.protocol.errors import ConfigError
from proctor.trace.chain import GENESIS, Head, link, load_key, sum_seals

ROW = (1, "t", 1, 5, "worker", "message", "success", "agent", "a", None, None, None, None, 1.5)


def test_the_key_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    """The file is 0600 and keeps its content."""
    path = tmp_path / "state" / "trace.key"
    key = load_key(path)
    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key(path) == key
    assert os.listdir(path.parent) == ["trace.key"]


def test_a_race_for_the_key_has_one_winner(tmp_path: Path) -> None:
    """All who come at once get the same key."""
    path = tmp_path / "trace.key"
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: load_key(path), range(32)))) == 1


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """The error says the cure."""
    path = tmp_path / "trace.key"
    load_key(path)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_key(path)


@pytest.mark.parametrize("content", ["", "abc", "zz" * 32, "ab" * 31])
def test_a_damaged_key_is_refused_and_never_replaced(tmp_path: Path, content: str) -> None:
    """A new key would make the whole log unverifiable."""
    path = tmp_path / "trace.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="not a key"):
        load_key(path)
    assert path.read_text() == content


@given(st.integers(0, 13), st.text(max_size=5))
def test_every_column_is_in_the_hash(column: int, other: str) -> None:
    """Change any column and the hash changes."""
    changed = tuple(f"{other}!" if n == column else value for n, value in enumerate(ROW))
    assert link(GENESIS, changed, b"{}") != link(GENESIS, ROW, b"{}")
    assert link(GENESIS, ROW, b"[]") != link(GENESIS, ROW, b"{}")


def test_the_hash_depends_on_the_one_before() -> None:
    """The same event elsewhere in the chain has another hash."""
    assert link(GENESIS, ROW, b"{}") != link(b"1" * 32, ROW, b"{}")


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=6))
def test_the_sum_of_seals_forgets_order_but_nothing_else(seals: list[bytes]) -> None:
    """Putting seals in and taking them out in any order comes back to nothing."""
    total = GENESIS
    for seal in seals:
        total = sum_seals(total, plus=seal)
    for seal in reversed(seals):
        total = sum_seals(total, minus=seal)
    assert total == GENESIS


@pytest.mark.parametrize("field", ["trace_id", "first_seq", "last_seq", "count", "started", "hash"])
def test_every_field_of_a_head_is_sealed(field: str) -> None:
    """A head with any other value does not carry the seal."""
    head = Head("t", 1, 2, 3, GENESIS, b"", 4)
    head.mac = head.seal(b"key")
    assert head.sealed(b"key")
    assert not head.sealed(b"other")
    value = getattr(head, field)
    setattr(head, field, b"1" * 32 if field == "hash" else value + type(value)(1))
    assert not head.sealed(b"key")
