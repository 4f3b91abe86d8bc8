"""A home of its own for each test of proofs, and no keeper left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.sandbox import process


@pytest.fixture(autouse=True)
def _own_home(home: Path) -> Iterator[None]:
    """No settings of the user's take part; keepers go with the test."""
    yield
    process.close_idle_keepers()
