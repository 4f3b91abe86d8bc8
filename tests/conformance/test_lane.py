"""The quick lane: all steps or none, each on exactly its rows, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.protocol.errors import StoreUnavailableError
from proctor.store.database import Database
from proctor.store.lane import Lane, Step
from proctor.store.quick import Quick
from proctor.store.tables import controls

INSERT = Quick(lambda _, __: controls.insert(), inserts=True)
RENAME = Quick(
    lambda _, __: (
        controls.update().where(controls.c.changed_by == sa.bindparam("who")).values(changed_by="renamed")
    )
)


CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
)


@pytest.fixture
def lane(database: Database) -> Iterator[Lane]:
    """A lane on a fresh database."""
    made = Lane(database)
    yield made
    made.close()


def put(database: Database, scope: str, by: str = "ada % ' :x") -> Step:
    """A step that inserts one row."""
    return INSERT.step(database.dialect, {"scope": scope, "paused": True, "changed_by": by})


def rename(database: Database, who: str, rows: int) -> Step:
    """A step that changes all rows of somebody."""
    return RENAME.step(database.dialect, {"who": who}, rows=rows)


def commit(lane: Lane, steps: list[Step]) -> bool | None:
    """Both halves of a change."""
    return lane.send(steps) and lane.settle()


def rows(database: Database) -> dict[str, Any]:
    """Who stands where."""
    with database.read() as connection:
        return {row.scope: row.changed_by for row in connection.execute(controls.select())}


def test_steps_that_fit_are_written(database: Database, lane: Lane) -> None:
    """Values of every kind arrive as they are; the same lane goes on."""
    assert commit(lane, [put(database, "a"), put(database, "b")]) is True
    assert rows(database) == {"a": "ada % ' :x", "b": "ada % ' :x"}
    assert commit(lane, [rename(database, "ada % ' :x", 2), put(database, "c", "bob")]) is True
    assert rows(database) == {"a": "renamed", "b": "renamed", "c": "bob"}


@pytest.mark.parametrize("rows_wanted", [0, 2])
def test_step_on_other_than_its_rows_undoes_all(database: Database, lane: Lane, rows_wanted: int) -> None:
    """Neither more nor fewer; what came before it is gone too, and the lane stays usable."""
    assert commit(lane, [put(database, "a", "ada")]) is True
    assert commit(lane, [put(database, "b"), rename(database, "ada", rows_wanted)]) is False
    assert rows(database) == {"a": "ada"}
    assert commit(lane, [put(database, "b", "bob")]) is True
    assert rows(database) == {"a": "ada", "b": "bob"}


def test_broken_rule_undoes_all(database: Database, lane: Lane) -> None:
    """A second row of the same key does not fit; it is no error."""
    assert commit(lane, [put(database, "a", "ada")]) is True
    assert commit(lane, [put(database, "b"), put(database, "a")]) is False
    assert rows(database) == {"a": "ada"}
    assert commit(lane, [put(database, "c", "cy")]) is True


def test_statement_nobody_understands_does_not_fit(database: Database, lane: Lane) -> None:
    """The ordinary way finds out what is wrong and says so."""
    assert commit(lane, [put(database, "a"), Step("UPDATE nowhere SET x = 1", ())]) is False
    assert rows(database) == {}


def test_watch_sees_every_moment(database: Database, lane: Lane) -> None:
    """One moment before each trip to the database and one after the commit."""
    seen: list[str] = []
    database.watch = seen.append
    assert commit(lane, [put(database, "a"), put(database, "b")]) is True
    assert seen[-1] == "committed"
    assert len([text for text in seen if "INSERT INTO controls" in text]) == (
        2 if database.dialect == "sqlite" else 1
    )


def test_what_was_sent_is_seen_by_nobody_before_it_is_settled(database: Database, lane: Lane) -> None:
    """On SQLite it is still open then; on PostgreSQL the server may be done, and says so only in `settle`."""
    assert commit(lane, [put(database, "a")]) is True
    assert lane.send([put(database, "b")]) is True
    if database.dialect == "sqlite":
        assert set(rows(database)) == {"a"}
    assert lane.settle() is True
    assert set(rows(database)) == {"a", "b"}


def test_sending_waits_for_no_other_writer(sqlite_database: Database) -> None:
    """Where somebody else writes it does not fit, at once; closing a lane gives the lock back."""
    lane, other = Lane(sqlite_database), Lane(sqlite_database)
    assert commit(lane, [put(sqlite_database, "a")]) is True
    assert commit(other, [put(sqlite_database, "b")]) is True
    assert other.send([put(sqlite_database, "c")]) is True
    assert lane.send([put(sqlite_database, "d")]) is False
    other.close()
    assert commit(lane, [put(sqlite_database, "d")]) is True
    assert set(rows(sqlite_database)) == {"a", "b", "d"}
    lane.close()


def test_write_ahead_log_is_written_back_and_not_where_others_wait(sqlite_database: Database) -> None:
    """However many changes: the log stays small, and the commit that writes it back is none for a loop."""
    lane, log = Lane(sqlite_database), Path(f"{sqlite_database.url.database}-wal")
    assert commit(lane, [put(sqlite_database, "first")]) is True
    prompt = []
    for number in range(300):
        assert lane.send([put(sqlite_database, f"s{number}", "x" * 90)]) is True
        lane._hand._slow_until = 0.0  # type: ignore[union-attr]  # as on a disk that is never slow
        prompt.append(lane.prompt)
        assert lane.settle() is True
    assert prompt.count(False) in range(3, 6)
    assert log.stat().st_size < 4_000_000
    lane.close()


@pytest.mark.postgres
def test_server_that_does_not_answer_is_neither_yes_nor_no(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiting ends; what the server does with it later is all or nothing."""
    lane = Lane(postgres_database)
    assert commit(lane, [put(postgres_database, "a")]) is True
    assert commit(lane, [rename(postgres_database, "ada % ' :x", 1)]) is True
    monkeypatch.setattr("proctor.store.lane._ANSWER_SECONDS", 0.2)
    with postgres_database.write() as other:
        other.execute(sa.select(controls).with_for_update())
        assert commit(lane, [rename(postgres_database, "renamed", 1)]) is None
    monkeypatch.undo()
    assert commit(lane, [put(postgres_database, "b")]) is True
    lane.close()


@pytest.mark.postgres
def test_large_and_odd_values_arrive_whole(postgres_database: Database) -> None:
    """More than a socket takes at once, text of any script, and what no text there can hold."""
    lane, insert = Lane(postgres_database), "INSERT INTO odd (x, y) VALUES (%s, %s)"
    with postgres_database.bare() as connection:
        connection.exec_driver_sql("CREATE TABLE odd (x text, y bytea)")
    for text in ("x" * 3_000_000, "ø ÿ 漢 \u202e 'quoted' \\ $1 %s", ""):
        assert commit(lane, [Step(insert, (text, text.encode() + b"\0\xff"))]) is True
        with postgres_database.read() as connection:
            found = connection.exec_driver_sql("SELECT x, y FROM odd WHERE x = %s", (text,)).one()
        assert (found.x, bytes(found.y)) == (text, text.encode() + b"\0\xff")
    assert commit(lane, [Step(insert, ("a\0b", b""))]) is False
    lane.close()


def test_place_that_cannot_be_written_is_one_sentence(sqlite_database: Database) -> None:
    """A full disk, here a file that may not grow, is the caller's to hear, not a reason to try otherwise."""
    lane = Lane(sqlite_database)
    assert commit(lane, [put(sqlite_database, "a")]) is True
    lane._bare.execute("PRAGMA max_page_count=1")
    with pytest.raises(StoreUnavailableError, match="Free some space"):
        commit(lane, [put(sqlite_database, "x" * 90, "y" * 100_000)])
    assert set(rows(sqlite_database)) == {"a"}
    assert commit(lane, [put(sqlite_database, "b")]) is True
    lane.close()


@pytest.mark.postgres
def test_lost_server_is_neither_yes_nor_no(postgres_database: Database) -> None:
    """Who was cut off on the way cannot know; the next change takes a new connection."""
    lane = Lane(postgres_database)
    assert commit(lane, [put(postgres_database, "a")]) is True

    def pull(_moment: str) -> None:
        postgres_database.watch = None
        with postgres_database.bare() as connection:
            connection.exec_driver_sql(CUT)

    postgres_database.watch = pull
    assert commit(lane, [put(postgres_database, "b")]) is None
    assert set(rows(postgres_database)) == {"a"}
    assert commit(lane, [put(postgres_database, "c")]) is True
    lane.close()
