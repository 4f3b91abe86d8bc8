"""An ordinary call in the quick lane: the same facts as on the ordinary way, in one trip each, and nothing by halves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from proctor.protocol.events import Event
from proctor.protocol.tools import CallResult
from proctor.store.database import Database
from proctor.store.lane import Lane
from proctor.store.tables import approvals, budget_nodes, calls, events, leases, trace_heads
from proctor.trace.chain import SealError
from proctor.trace.verify import verify
from tests.gate.world import HUMAN, KEY, World

LIMITS = """
[limits]
calls = 10
tokens = 1000
usd = 0.01
seconds = 3000
"""


class Moments:
    """What happened on the database: commits of the quick lane, and statements on the ordinary way."""

    def __init__(self, database: Database) -> None:
        self.quick: list[str] = []
        self.ordinary: list[str] = []
        database.watch = self.quick.append
        sa.event.listen(
            database.engine, "before_cursor_execute", lambda *facts: self.ordinary.append(facts[2])
        )

    @property
    def commits(self) -> int:
        """How many changes the quick lane has written."""
        return self.quick.count("committed")


async def _warm(world: World) -> None:
    """After one call the writer knows where the log stands."""
    assert (await world.run("look")).ok


async def test_ordinary_call_takes_the_quick_lane_twice_and_nothing_else(world: World) -> None:
    """Its start and its end are one change each; on PostgreSQL that is one trip each."""
    await _warm(world)
    seen = Moments(world.database)
    assert (await world.run("look")).ok
    assert seen.commits == 2
    assert seen.ordinary == []
    trips = [text for text in seen.quick if text != "committed"]
    assert len(trips) == (2 if world.database.dialect == "postgresql" else 16)
    assert verify(world.database, KEY).ok


async def test_first_call_of_a_run_takes_the_quick_lane_too(world: World) -> None:
    """A new trace, and rows of the budget that are not there yet."""
    await _warm(world)
    seen = Moments(world.database)
    assert (await world.run("ask_model", HUMAN, trace_id="trace_new", task_id="task_new")).ok
    assert (seen.commits, seen.ordinary) == (2, [])
    assert world.used("session:trace_new")["used_tokens"] == 100
    assert verify(world.database, KEY).ok


# ── the same as the ordinary way ──────────────────────────────────────────────────────────────────────────────────

ACTS: list[tuple[str, dict[str, Any]]] = [
    ("look", {}),
    ("ask_model", {"task_id": "task_1", "attempt": 1}),
    ("act", {"inputs": {"content": "hunter2-hunter2"}, "idempotency_key": "k1"}),
    ("act", {"inputs": {"content": "hunter2-hunter2"}, "idempotency_key": "k1"}),
    ("free_model", {"trace_id": "trace_free"}),
    ("slow", {"actor": HUMAN}),
    ("send", {}),
    ("look", {"task_id": "task_1"}),
    *[("look", {})] * 6,
]


async def _tell(world: World) -> list[CallResult]:
    world.ran.act = lambda _context, inputs: 1 / 0 if inputs.content == "fail" else None
    results = [await world.run(tool, **more) for tool, more in ACTS]
    return [*results, await world.run("look", inputs={"content": "fail"}, trace_id="trace_other")]


def _wipe(database: Database) -> None:
    with database.write() as connection:
        for table in (calls, leases, budget_nodes, events, trace_heads, approvals):
            connection.execute(table.delete())


def _facts(world: World) -> tuple[Any, ...]:
    """Everything but names and times."""
    rows = [
        {
            name: value
            for name, value in row.items()
            if not name.endswith(("_id", "_at", "_key", "duration_ms"))
        }
        for row in world.calls
    ]
    nodes = {
        row["bucket_id"]: {name: value for name, value in row.items() if "millis" not in name}
        for row in world.rows(budget_nodes)
    }
    held = [(row["tokens"], row["micro_usd"], row["millis"], row["outcome"]) for row in world.rows(leases)]
    return sorted(map(str, rows)), nodes, sorted(map(str, held)), [_said(event) for event in world.events()]


def _said(event: Event) -> tuple[Any, ...]:
    details = {name: value for name, value in event.details.items() if not name.endswith(("_id", "_at"))}
    return event.event, event.status, event.tool_name, event.trace_seq, details


def _short(one: CallResult) -> tuple[Any, ...]:
    return one.ok, one.error and one.error.code, one.replayed, one.notes


@pytest.mark.parametrize("toml", ["", LIMITS])
async def test_quick_lane_leaves_the_same_facts_as_the_ordinary_way(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, toml: str
) -> None:
    """The same calls, with and without it: equal results, rows, budgets and events, up to names and times."""
    quick = make_world(toml=toml)
    seen = Moments(quick.database)
    results = [_short(one) for one in await _tell(quick)]
    facts = _facts(quick)
    assert seen.commits >= 12
    _wipe(quick.database)
    monkeypatch.setattr(Lane, "send", lambda _self, _steps: False)
    ordinary = make_world(toml=toml)
    assert [_short(one) for one in await _tell(ordinary)] == results
    assert _facts(ordinary) == facts


# ── others write too, or somebody has been at it ──────────────────────────────────────────────────────────────────


async def test_two_writers_take_turns_and_the_chain_holds(make_world: Callable[..., World]) -> None:
    """What one remembers is wrong as soon as the other has written; both find out and go on."""
    one, two = make_world(), make_world()
    for _ in range(3):
        assert (await one.run("look")).ok
        assert (await two.run("look")).ok
        assert (await two.run("look")).ok
    assert one.used()["used_calls"] == 9
    assert len(one.events("tool_call_complete")) == 9
    assert verify(one.database, KEY).ok


@pytest.mark.parametrize("trace", ["", "trace_t"])
@pytest.mark.parametrize("column", ["count", "started"])
async def test_altered_head_is_refused_and_not_sealed_anew(world: World, trace: str, column: str) -> None:
    """A head that is not as we left it in any column is looked at, and the missing seal stops everything."""
    await _warm(world)
    assert (await world.run("look")).ok
    with world.database.write() as connection:
        here = trace_heads.c.trace_id == trace
        connection.execute(trace_heads.update().where(here).values({column: trace_heads.c[column] + 1}))
    with pytest.raises(SealError):
        await world.run("look")
    assert len(world.calls) == 2


async def test_limit_lowered_by_another_is_seen(world: World) -> None:
    """Rows whose limits are not what the settings say are mended by the ordinary way first."""
    await _warm(world)
    with world.database.write() as connection:
        connection.execute(budget_nodes.update().values(limit_calls=0))
    assert (await world.run("look")).ok
    assert world.used()["limit_calls"] is None


# ── the server is lost ────────────────────────────────────────────────────────────────────────────────────────────

CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
)


def _cut(database: Database) -> None:
    with database.bare() as connection:
        connection.exec_driver_sql(CUT)


def _settled(world: World, calls: int) -> None:
    node = world.used()
    assert (node["used_calls"], node["held_calls"], node["held_millis"]) == (calls, 0, 0)
    assert [row["outcome"] for row in world.rows(leases)] == ["settled"] * calls
    assert [row["state"] for row in world.calls] == ["ended"] * calls
    assert len(world.events("tool_call_start")) == len(world.events("tool_call_complete")) == calls
    assert verify(world.database, KEY).ok


@pytest.fixture
def remote(postgres_database: Database, tmp_path: Path) -> Iterator[World]:
    """A world on a server."""
    made = World(postgres_database, tmp_path)
    yield made
    made.close()


@pytest.mark.postgres
@pytest.mark.parametrize("trip", [1, 2])
async def test_call_goes_on_when_its_connection_was_cut(remote: World, trip: int) -> None:
    """Before its start or before its end: the ordinary way takes a new connection, and all is counted once."""
    await _warm(remote)
    trips = 0

    def watch(moment: str) -> None:
        nonlocal trips
        trips += moment != "committed"
        if trips == trip and moment != "committed":
            _cut(remote.database)

    remote.database.watch = watch
    assert (await remote.run("look")).ok
    remote.database.watch = None
    _settled(remote, 2)


@pytest.mark.postgres
@pytest.mark.parametrize("trip", [1, 2])
async def test_call_goes_on_when_the_answer_to_its_commit_was_lost(remote: World, trip: int) -> None:
    """It was written, and nobody said so: the log itself tells, and nothing is written twice."""
    await _warm(remote)
    trips = 0

    def watch(moment: str) -> None:
        nonlocal trips
        trips += moment == "committed"
        if trips == trip and moment == "committed":
            remote.writer._express.lane._bare.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    remote.database.watch = watch
    assert (await remote.run("look")).ok
    remote.database.watch = None
    _settled(remote, 2)
    assert (await remote.run("look")).ok


@pytest.mark.postgres
async def test_call_cut_off_in_the_middle_of_its_statement_is_whole(remote: World) -> None:
    """The server ends the connection while the one statement waits for a row: it is undone and done again."""
    await _warm(remote)
    assert (await remote.run("look")).ok
    with remote.database.write() as connection:
        connection.execute(sa.select(budget_nodes).with_for_update())
        async with asyncio.TaskGroup() as group:
            call = group.create_task(remote.run("look"))
            await asyncio.to_thread(_cut_the_waiting, remote.database)
            connection.commit()
    assert call.result().ok
    _settled(remote, 3)


def _cut_the_waiting(database: Database) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with database.bare() as connection:
            if connection.exec_driver_sql(CUT + " AND wait_event_type = 'Lock'").fetchall():
                return
        time.sleep(0.02)
    raise AssertionError("nobody waited for the row")
