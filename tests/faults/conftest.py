"""What the fault tests share: an order for victims on the test's database, and a queue to fill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.engine.tasks import Tasks
from proctor.store.database import Database
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter
from tests.engine.conftest import KEY
from tests.faults.victim import Order

__all__ = ["order_on", "until"]


def order_on(database: Database, root: Path) -> Order:
    """A victim's order on a database."""
    url = database.url.render_as_string(hide_password=False)
    engine_url = f"sqlite:///{root}/engine.db" if database.dialect == "sqlite" else url
    return Order(database_url=url, engine_url=engine_url, root=root, home=root / "home")


def until(fact: Callable[[], bool], seconds: float = 90.0) -> None:
    """Wait for a fact, with an end."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def order(database: Database, tmp_path: Path) -> Order:
    """A victim's order on this database."""
    return order_on(database, tmp_path)


@pytest.fixture
def queue(database: Database) -> Iterator[Tasks]:
    """The front door of an empty queue."""
    with TraceWriter(database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        yield Tasks(database, writer)
