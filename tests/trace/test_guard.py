"""A guard is asked while the log is locked: who lost the right to write meanwhile writes nothing."""

from __future__ import annotations

import json
from functools import partial

import pytest
import sqlalchemy as sa

from proctor.protocol.errors import UsageError
from proctor.protocol.events import Draft, EventKind
from proctor.store.database import Database
from proctor.store.tables import events
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter
from tests.support.rows import rows_of

KEY = b"k" * 32


def _guard(number: int) -> Exception | None:
    return UsageError(message="no longer yours") if number == 1 else None


def test_a_refused_event_is_not_written_and_others_of_its_batch_are(database: Database) -> None:
    """The refusal goes to its own caller only."""
    with TraceWriter(database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        futures = [
            writer.submit(
                [Draft("trace", "message", kind=EventKind.WORKER, details={"n": n})], guard=partial(_guard, n)
            )
            for n in range(3)
        ]
        assert [len(futures[n].result(20)) for n in (0, 2)] == [1, 1]
        with pytest.raises(UsageError, match="no longer yours"):
            futures[1].result(20)
    told = rows_of(database, sa.select(events.c.details).order_by(events.c.seq))
    assert [json.loads(row["details"])["n"] for row in told] == [0, 2]
