"""One suite, two databases: whatever a room above relies on holds on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.store.database import Database
from proctor.store.tables import (
    agents,
    approvals,
    architecture_rules,
    attempts,
    controls,
    metadata,
    plans,
    solace_user_requests,
    task_queue,
)
from proctor.store.types import UsdAmount, UtcDateTime
from tests.support.rows import NOON, add_task, insert, rows_of

TABLES = [table.name for table in metadata.sorted_tables]
# Columns whose values a check or a foreign key limits.
FIXED = {"priority": 10, "risk_level": "high", "task_id": "task-1"}
STATUS = {
    "task_queue": "verifying",
    "approvals": "void",
    "solace_user_requests": "planned",
    "github_instruction_queue": "verified",
}
CHECKED = {
    "budget_nodes.kind": "session",
    "calls.state": "waiting",
    "chats.state": "parked",
    "chat_messages.role": "tool",
    "grants.scope": "always",
    "solace_user_requests.request_type": "bug_fix",
    "solace_user_requests.complexity_score": 10,
    "command_jobs.outcome": "stopped",
    "github_instruction_queue.parent_task_id": 1,
    "plans.stage": "executing",
    "plans.on_error": "fallback",
    "plans.runner": "process",
    "plan_steps.plan_id": "plan-1",
    "plan_steps.outcome": "skipped",
}
EARLY, LATE = datetime(2, 1, 1), datetime(9998, 1, 1)  # noqa: DTZ001 - hypothesis adds the zone
ZONES = [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-11, minutes=-30))]
MOMENTS = st.datetimes(min_value=EARLY, max_value=LATE, timezones=st.sampled_from(ZONES))
on_one_database = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _value(column: sa.Column[Any]) -> Any:
    if str(column) in CHECKED:
        return CHECKED[str(column)]
    if column.name in FIXED:
        return FIXED[column.name]
    if column.name == "status":
        return STATUS.get(column.table.name, "ok")
    kinds: list[tuple[type, Any]] = [
        (UtcDateTime, NOON),
        (UsdAmount, Decimal("123456.654321")),
        (sa.JSON, {"ü": [1, 2.5, None, True, {"deep": "«✓»"}], "empty": {}}),
        (sa.Boolean, True),
        (sa.BigInteger, 2**62),
        (sa.Integer, 2**31 - 1),
        (sa.Float, 0.1),
        (sa.LargeBinary, bytes(range(32))),
        (sa.Text, "line\nüñí ✓ 'quoted' \\ \t" * 100),
        (sa.String, "ü✓"),
    ]
    return next(value for kind, value in kinds if isinstance(column.type, kind))


# ── Values ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", TABLES)
def test_every_column_comes_back_as_it_went_in(database: Database, name: str) -> None:
    """A full row of each table survives the round trip, in type and value."""
    table = metadata.tables[name]
    if table.foreign_keys:
        add_task(database)
        insert(database, solace_user_requests, id=1, request_text="do it")
        plan = {column.name: _value(column) for column in plans.columns}
        insert(database, plans, **{**plan, "plan_id": "plan-1"})
    row = {column.name: _value(column) for column in table.columns}
    insert(database, table, **row)
    keys = [column == row[column.name] for column in table.primary_key]
    assert rows_of(database, sa.select(table).where(*keys)) == [row]


@on_one_database
@given(moment=MOMENTS)
def test_moments_keep_their_microsecond_and_come_back_in_utc(database: Database, moment: datetime) -> None:
    """Any moment of any zone is the same moment afterwards, and in UTC."""
    with database.write() as connection:
        connection.execute(sa.delete(controls))
        connection.execute(
            sa.insert(controls).values(scope="s", paused=False, changed_by="x", changed_at=moment)
        )
        back = connection.execute(sa.select(controls.c.changed_at)).scalar_one()
        found = connection.execute(sa.select(controls.c.scope).where(controls.c.changed_at == moment)).all()
    assert back == moment
    assert back.tzinfo is UTC
    assert len(found) == 1


@on_one_database
@given(pair=st.tuples(MOMENTS, MOMENTS))
def test_the_database_orders_moments_as_time_does(
    database: Database, pair: tuple[datetime, datetime]
) -> None:
    """Comparing and sorting happen in SQL, so they must mean the same there."""
    with database.write() as connection:
        connection.execute(sa.delete(controls))
        rows = [
            {"scope": str(n), "paused": False, "changed_by": "x", "changed_at": at}
            for n, at in enumerate(pair)
        ]
        connection.execute(sa.insert(controls), rows)
        found = (
            connection.execute(sa.select(controls.c.changed_at).order_by(controls.c.changed_at))
            .scalars()
            .all()
        )
    assert list(found) == sorted(pair)


def test_moment_without_a_zone_is_refused(database: Database) -> None:
    """A naive datetime would mean something else on each machine."""
    with pytest.raises(sa.exc.StatementError, match="without a time zone"):
        add_task(database, deadline=datetime(2026, 1, 1))  # noqa: DTZ001
    assert rows_of(database, sa.select(task_queue)) == []


def test_json_null_is_not_a_missing_value(database: Database) -> None:
    """No result is SQL NULL; a null inside JSON stays; a missing key stays missing."""
    for key, value in {
        "none": None,
        "null inside": {"a": None},
        "empty": {},
        "json null": sa.JSON.NULL,
    }.items():
        add_task(database, task_id=key, result=value)
    rows = rows_of(database, sa.select(task_queue.c.task_id, task_queue.c.result))
    assert {row["task_id"]: row["result"] for row in rows} == {
        "none": None,
        "null inside": {"a": None},
        "empty": {},
        "json null": None,
    }
    missing = sa.select(task_queue.c.task_id).where(task_queue.c.result.is_(None))
    assert [row["task_id"] for row in rows_of(database, missing)] == ["none"]


# ── Rows that other programs put in ────────────────────────────────────────────────────────────────────


def test_plain_sql_insert_gets_all_defaults(database: Database) -> None:
    """A row with only a description and a status, as the seeds insert it, is a whole task."""
    before = datetime.now(UTC) - timedelta(seconds=5)
    with database.write() as connection:
        for _ in range(2):
            connection.exec_driver_sql(
                "INSERT INTO task_queue (description, status) VALUES ('do it', 'assigned')"
            )
    first, second = rows_of(database, sa.select(task_queue))
    assert first["task_id"] != second["task_id"]
    assert len(first["task_id"]) >= 32
    assert before < first["created_at"] < before + timedelta(minutes=2)
    wanted = {
        "task_type": "task",
        "priority": 5,
        "status": "assigned",
        "created_by": "DAVID",
        "assigned_to_agent": None,
        "file_paths": [],
        "depends_on_task_ids": [],
        "description": "do it",
        "context": {},
        "retry_count": 0,
        "max_retries": 2,
        "attempt": 0,
        "cancel_requested": False,
        "result": None,
        "started_at": None,
    }
    assert {name: first[name] for name in wanted} == wanted


def test_moments_of_other_programs_are_read(database: Database) -> None:
    """ISO 8601 with another offset, as another program may write it, is understood."""
    with database.write() as connection:
        connection.exec_driver_sql(
            "INSERT INTO task_queue (description, deadline) VALUES ('d', '2026-11-15T14:00:00+02:00')"
        )
    assert rows_of(database, sa.select(task_queue.c.deadline)) == [{"deadline": NOON.replace(microsecond=0)}]


def test_seeded_rules_are_there_and_touched_when_changed(database: Database) -> None:
    """The three rules of the seeds exist, and a plain UPDATE moves updated_at by itself."""
    rules = rows_of(database, sa.select(architecture_rules).order_by(architecture_rules.c.feature_type))
    names = [rule["feature_type"] for rule in rules]
    assert names == ["agent_api_endpoint", "health_monitoring", "trading_api_endpoint"]
    assert all(rule["backend_pattern"] and rule["integration_points"] and rule["examples"] for rule in rules)
    with database.write() as connection:
        old = "UPDATE architecture_rules SET updated_at = '2020-01-01T00:00:00.000000Z'"
        connection.exec_driver_sql(old)
    with database.write() as connection:
        connection.exec_driver_sql(
            "UPDATE architecture_rules SET frontend_pattern = 'new' WHERE feature_type = 'health_monitoring'"
        )
    years = {
        r["feature_type"]: r["updated_at"].year for r in rows_of(database, sa.select(architecture_rules))
    }
    assert years["agent_api_endpoint"] == years["trading_api_endpoint"] == 2020
    assert years["health_monitoring"] > 2020


def test_new_rule_gets_the_next_number(database: Database) -> None:
    """The seeds' serial id goes on after the seeded rows."""
    insert(database, architecture_rules, feature_type="mine")
    statement = sa.select(architecture_rules.c.id).where(architecture_rules.c.feature_type == "mine")
    assert rows_of(database, statement) == [{"id": 4}]


# ── Constraints ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "values",
    [{"priority": 0}, {"priority": 11}, {"status": "done"}, {"status": "PENDING"}, {"description": None}],
)
def test_wrong_task_is_refused_as_an_integrity_error(database: Database, values: dict[str, Any]) -> None:
    """Priority, status and description are checked by the database, and the caller sees which kind of error."""
    with pytest.raises(sa.exc.IntegrityError):
        add_task(database, **values)
    assert rows_of(database, sa.select(task_queue)) == []


def test_wrong_risk_or_answer_is_refused(database: Database) -> None:
    """An approval has a known risk and a known status."""
    row = {"trace_id": "t", "action": "a", "tool_name": "x", "risk_level": "low", "expires_at": NOON}
    for wrong in ({"risk_level": "harmless"}, {"status": "maybe"}):
        with pytest.raises(sa.exc.IntegrityError):
            insert(database, approvals, **(row | wrong))
    insert(database, approvals, **row)
    assert [one["status"] for one in rows_of(database, sa.select(approvals))] == ["pending"]


def test_unique_violation_stays_an_integrity_error(database: Database) -> None:
    """A second row with the same key is the caller's business, not an unavailable store."""
    add_task(database)
    with pytest.raises(sa.exc.IntegrityError):
        add_task(database)
    insert(database, agents, agent_name="corrupt, locked, readonly", agent_type="x")
    with pytest.raises(sa.exc.IntegrityError):
        insert(database, agents, agent_name="corrupt, locked, readonly", agent_type="x")


def test_wrong_sql_stays_a_programming_error(database: Database) -> None:
    """A table that does not exist is a defect of ours and must not look like a lost database."""
    with pytest.raises(sa.exc.DBAPIError, match="corrupt_locked"), database.write() as connection:
        connection.exec_driver_sql("SELECT * FROM corrupt_locked")


def test_foreign_keys_are_enforced(database: Database) -> None:
    """An attempt or a history entry needs its task; both go with it."""
    attempt = {"task_id": "task-1", "attempt": 1, "agent_name": "a", "owner": "o"}
    with pytest.raises(sa.exc.IntegrityError):
        insert(database, attempts, **attempt)
    add_task(database)
    insert(database, attempts, **attempt)
    with database.write() as connection:
        connection.execute(sa.delete(task_queue))
    assert rows_of(database, sa.select(attempts)) == []
