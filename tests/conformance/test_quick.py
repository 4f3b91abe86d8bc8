"""Statements that go straight to the driver say and see the same as SQLAlchemy's own, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.store.database import Database
from proctor.store.quick import Quick, drive, keys
from proctor.store.tables import calls

INSERT = Quick(lambda _, __: calls.insert(), inserts=True)
FIND = Quick(lambda _, size: calls.select().where(calls.c.call_id.in_(keys(size))).order_by(calls.c.call_id))
ROW: dict[str, Any] = {
    "idempotency_key": "key",
    "content_hash": "h",
    "tool_name": "look % ' \" :x",
    "domain": "d",
    "side_effect": "read-only",
    "adapter": "real",
    "simulated": True,
    "actor": "agent",
    "actor_name": "ö",
    "trace_id": "trace_q",
    "attempt": None,
    "profile": "standard",
    "inputs": {"a": [1, None, "ä"]},
    "state": "started",
    "started_at": datetime(2026, 5, 1, 12, 0, 0, 5, tzinfo=UTC),
    "duration_ms": 1.5,
}


def row(name: str) -> dict[str, Any]:
    """A row of calls."""
    return {**ROW, "call_id": name, "idempotency_key": f"key-{name}"}


@pytest.mark.parametrize("watched", [False, True])
def test_rows_go_in_and_come_out_as_through_sqlalchemy(database: Database, watched: bool) -> None:
    """Every type is written and read alike, whether somebody listens to statements or not."""
    heard: list[str] = []
    if watched:
        sa.event.listen(database.engine, "before_cursor_execute", lambda *facts: heard.append(facts[2]))
    with database.write() as connection:
        assert INSERT.run(connection, row("a")) == 1
        assert INSERT.run(connection, {**row("b"), "result": {"x": 1}}) == 1
        found = FIND.rows(connection, {}, ["b", "a", "none"])
        same = [dict(one) for one in connection.execute(calls.select().order_by("call_id")).mappings()]
    assert found == same
    assert found[0]["inputs"] == ROW["inputs"]
    assert found[0]["started_at"] == ROW["started_at"]
    assert any("INSERT INTO calls" in text for text in heard) is watched


def test_errors_of_the_driver_come_as_sqlalchemys(database: Database) -> None:
    """A broken rule is an IntegrityError and bad text a DBAPIError; the transaction is undone."""
    with pytest.raises(sa.exc.IntegrityError), database.write() as connection:
        _twice(connection)
    with pytest.raises(sa.exc.DBAPIError), database.write() as connection:
        drive(connection, "SELECT nothing FROM nowhere")
    with database.read() as connection:
        assert FIND.rows(connection, {}, ["a"]) == []


def _twice(connection: sa.Connection) -> None:
    INSERT.run(connection, row("a"))
    INSERT.run(connection, row("a"))
