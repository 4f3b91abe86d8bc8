"""A gate for each test, once on SQLite and once on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.store.database import Database
from tests.gate.world import World


@pytest.fixture
def make_world(database: Database, tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Make a world with settings of its own."""
    made: list[World] = []

    def make(**more: Any) -> World:
        made.append(World(database, tmp_path, **more))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A world as it comes."""
    return make_world()
