"""No keeper stays behind after a case."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proctor.sandbox import process


@pytest.fixture(autouse=True)
def _no_keeper_stays() -> Iterator[None]:
    """Keepers go with the test."""
    yield
    process.close_idle_keepers()
