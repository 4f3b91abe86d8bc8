"""The trace's key comes from the environment or from one file; a wrong one is refused with the cure."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.config import load_settings
from proctor.protocol.errors import ConfigError, NotFoundError
from proctor.trace.key import KEY_VARIABLE, key_of


def test_a_given_key_wins_over_the_file(tmp_path: Path) -> None:
    """Machines on one database share it through the environment."""
    settings = load_settings(tmp_path, {"HOME": str(tmp_path), KEY_VARIABLE: "ab" * 32})
    assert key_of(settings) == b"\xab" * 32
    assert not settings.paths.key_file.exists()


def test_without_one_the_file_is_made_once(tmp_path: Path) -> None:
    """The second call reads what the first made."""
    settings = load_settings(tmp_path, {"HOME": str(tmp_path)})
    assert key_of(settings) == key_of(settings, create=False)


def test_looking_makes_no_key(tmp_path: Path) -> None:
    """Verifying without a key says so instead of making one that fits nothing."""
    settings = load_settings(tmp_path, {"HOME": str(tmp_path)})
    with pytest.raises(NotFoundError, match="key of the trace"):
        key_of(settings, create=False)


@pytest.mark.parametrize("wrong", ["zz", "ab" * 31, "ab" * 33])
def test_a_wrong_key_is_refused(tmp_path: Path, wrong: str) -> None:
    """A key that cannot be one names the variable and the cure."""
    with pytest.raises(ConfigError, match=r"PROCTOR_TRACE_KEY.*trace\.key"):
        key_of(load_settings(tmp_path, {"HOME": str(tmp_path), KEY_VARIABLE: wrong}))
