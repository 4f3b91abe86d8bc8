"""Retention on both databases with real git: only what ended long ago goes, work is never lost, open tasks stay whole."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.engine.retention import Collected, Retention, engine_records
from proctor.protocol.errors import SupervisorUnavailableError
from proctor.protocol.events import Draft
from proctor.store.database import Database
from proctor.store.tables import attempts, command_jobs, events
from proctor.trace.redact import Redactor
from proctor.trace.verify import verify
from proctor.trace.writer import TraceWriter
from proctor.workspace import worktree
from tests.support.rows import add_task, insert, rows_of

KEY = b"k" * 32
NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=100)
CUT = NOW - timedelta(days=90)


class House:
    """A repository, places below a root, and a collection when asked."""

    def __init__(self, database: Database, writer: TraceWriter, root: Path) -> None:
        self.database, self.writer, self.root = database, writer, root
        self.repository = root / "repository"
        self.repository.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.repository / "a.txt").write_text("a\n")
        self.git("add", ".")
        self.git("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "first")

    def git(self, *words: str) -> str:
        """Run git in the repository."""
        done = subprocess.run(
            ["git", *words], cwd=self.repository, check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    def task(self, name: str, status: str = "completed", ended: datetime = OLD, attempt: int = 1) -> Path:
        """A task with a worktree and a state of its own."""
        place = self.root / "wt" / "repository" / "tasks" / f"{name}-{attempt}"
        tree = worktree.create(self.repository, place)
        done = ended if status in {"completed", "failed", "cancelled"} else None
        row = {"status": status, "completed_at": done, "created_at": ended, "workspace": str(self.repository)}
        add_task(self.database, task_id=name, attempt=attempt, trace_id=f"trace-{name}", **row)
        tried = {"agent_name": "a", "owner": "o", "worktree": str(tree.path), "base_commit": tree.base}
        insert(self.database, attempts, task_id=name, attempt=attempt, **tried)
        (self.root / "attempts" / name / "tmp").mkdir(parents=True)
        self.writer.append([Draft(f"trace-{name}", "note", task_id=name, ts=ended) for _ in range(3)])
        return tree.path

    def collect(self, **more: Any) -> Collected:
        """Collect what ended ninety days ago, unless told otherwise."""
        given: dict[str, Any] = {"older_than": CUT, "keep": 0, **more}
        given |= {"worktrees_dir": self.root / "wt", "attempts_dir": self.root / "attempts"}
        return Retention(self.database, self.writer, KEY, **given).collect()

    def worktree_of(self, name: str) -> Any:
        """What the attempts of a task say about their place."""
        query = sa.select(attempts.c.worktree).where(attempts.c.task_id == name)
        return [row["worktree"] for row in rows_of(self.database, query)]


@pytest.fixture
def house(database: Database, tmp_path: Path, home: Path) -> Iterator[House]:
    """One on each database."""
    with TraceWriter(database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        yield House(database, writer, tmp_path)


def _events(database: Database, name: str) -> int:
    query = sa.select(sa.func.count().label("n")).where(events.c.trace_id == f"trace-{name}")
    return int(rows_of(database, query)[0]["n"])


def test_old_ended_tasks_leave_and_everything_else_stays(house: House) -> None:
    """Worktree, git's record of it, state and events go; the task, a young one and open ones keep all."""
    old = house.task("old")
    stays = {
        name: house.task(name, status) for name, status in (("open", "blocked"), ("runs", "in_progress"))
    }
    stays["young"] = house.task("young", ended=NOW)
    found = house.collect()
    assert found.worktrees == (str(old),)
    assert (found.states, found.traces, found.events, found.kept) == (1, 1, 3, ())
    assert not old.exists()
    assert "old-1" not in house.git("worktree", "list")
    assert house.worktree_of("old") == [None]
    for name, place in stays.items():
        assert (place / "a.txt").read_text() == "a\n"
        assert (house.root / "attempts" / name / "tmp").is_dir()
        assert house.worktree_of(name) == [str(place)]
        assert _events(house.database, name) == 3
    assert not (house.root / "attempts" / "old").exists()
    assert verify(house.database, KEY).ok
    again = house.collect()
    assert (again.worktrees, again.states, again.events) == ((), 0, 0)


def test_the_second_place_of_an_attempt_leaves_too(house: House) -> None:
    """A takeover that found work in the way went to `<task>-<attempt>.2`: both are of that attempt."""
    first = house.task("old")
    second = worktree.create(house.repository, first.with_name("old-1.2")).path
    assert house.collect().worktrees == (str(first), str(second))
    assert not second.exists()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_an_end_that_cannot_be_read_is_of_no_age(house: House) -> None:
    """Another program wrote words where a time belongs: nothing of that task is removed, and the rest goes on."""
    place, old = house.task("odd"), house.task("old")
    with house.database.write() as connection:
        connection.exec_driver_sql("UPDATE task_queue SET completed_at = 'long ago' WHERE task_id = 'odd'")
    assert house.collect().worktrees == (str(old),)
    assert place.exists()


def test_dry_run_says_the_same_and_changes_nothing(house: House) -> None:
    """What it promises is what the real run then does."""
    old = house.task("old")
    house.task("open", "blocked")
    planned = house.collect(dry_run=True)
    assert (old / "a.txt").exists()
    assert (house.root / "attempts" / "old").is_dir()
    assert (_events(house.database, "old"), house.worktree_of("old")) == (3, [str(old)])
    done = house.collect()
    for name in ("worktrees", "kept", "states", "traces", "events"):
        assert getattr(planned, name) == getattr(done, name)


def _edit(place: Path) -> None:
    (place / "a.txt").write_text("work\n")


def _add(place: Path) -> None:
    (place / "new.txt").write_text("work\n")


def _commit(place: Path) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    words = ["git", *identity, "commit", "-q", "--allow-empty", "-m", "on no branch"]
    subprocess.run(words, cwd=place, check=True, timeout=60)


@pytest.mark.parametrize("change", [_edit, _add, _commit])
def test_work_that_is_on_no_branch_stays_and_is_named(house: House, change: Callable[[Path], None]) -> None:
    """Edited, new or committed without a branch: kept with the reason, and still known to its attempt."""
    place = house.task("old")
    change(place)
    found = house.collect()
    assert found.worktrees == ()
    ((path, reason),) = [(one.path, one.reason) for one in found.kept]
    assert path == str(place)
    assert "on no branch" in reason
    assert house.worktree_of("old") == [str(place)]


def test_newest_ended_tasks_stay_whatever_their_age(house: House) -> None:
    """By count: with three ended, keeping two removes the oldest only."""
    places = [house.task(f"t{n}", ended=OLD + timedelta(days=n)) for n in range(3)]
    assert house.collect(keep=2).worktrees == (str(places[0]),)


def test_unknown_checkouts_and_files_without_a_repository_stay(house: House) -> None:
    """What nobody can vouch for is listed; an empty directory of an ended task goes."""
    stranger = house.root / "wt" / "repository" / "tasks" / "nobody-1"
    stranger.mkdir(parents=True)
    plain = house.root / "wt" / "no-repository" / "tasks"
    for name in ("full", "empty"):
        add_task(house.database, task_id=name, status="completed", completed_at=OLD, created_at=OLD)
        (plain / name).mkdir(parents=True)
    (plain / "full" / "result.txt").write_text("only here\n")
    found = house.collect()
    assert found.worktrees == (str(plain / "empty"),)
    assert {one.path for one in found.kept} == {str(stranger), str(plain / "full")}


def test_gone_repository_keeps_the_checkout(house: House) -> None:
    """Without the repository nobody can say what is work."""
    place = house.task("old")
    house.repository.rename(house.root / "moved")
    (kept,) = house.collect().kept
    assert kept.path == str(place)


def test_task_opened_again_meanwhile_is_left_alone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the removal a retry wins: its worktree stays."""
    place = house.task("old", "failed")
    check = worktree.Worktree.refuse_if_dirty

    def retried(tree: worktree.Worktree) -> None:
        check(tree)
        with house.database.write() as connection:
            connection.exec_driver_sql("UPDATE task_queue SET status = 'pending' WHERE task_id = 'old'")

    monkeypatch.setattr(worktree.Worktree, "refuse_if_dirty", retried)
    found = house.collect()
    assert (found.worktrees, found.states) == ((), 0)
    assert (place / "a.txt").exists()
    assert house.worktree_of("old") == [str(place)]


def test_checkout_that_cannot_be_removed_stays_with_its_attempt(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing removal is listed, and a retry still finds the worktree."""
    place = house.task("old")

    def refuse(tree: worktree.Worktree, *, force: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(worktree.Worktree, "remove", refuse)
    (kept,) = house.collect().kept
    assert "Permission denied" in kept.reason
    assert house.worktree_of("old") == [str(place)]


def test_freed_space_is_given_back(sqlite_database: Database, tmp_path: Path, home: Path) -> None:
    """After much was pruned the SQLite file is smaller and the trace still verifies."""
    with TraceWriter(sqlite_database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        house = House(sqlite_database, writer, tmp_path)
        text = "word " * 200
        drafts = [Draft("trace-x", "note", details={"text": text}, ts=OLD) for _ in range(500)]
        writer.append(drafts)
        with sqlite_database.bare() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        before = Path(sqlite_database.place).stat().st_size
        assert house.collect(vacuum_bytes=1 << 40).vacuumed_bytes == 0
        writer.append([Draft("trace-y", "note", ts=OLD)])
        assert house.collect(vacuum_bytes=1).vacuumed_bytes > 0
    assert Path(sqlite_database.place).stat().st_size < before
    assert verify(sqlite_database, KEY).ok


def test_engine_that_cannot_be_asked_is_told(house: House) -> None:
    """The rest was done; the answer says what was not."""
    found = house.collect()

    def away(_: dict[str, Any]) -> dict[str, Any]:
        raise SupervisorUnavailableError(reason="gone", log="log")

    assert "gone" in engine_records(found, away).engine_note
    assert engine_records(found, lambda _: None).engine_note
    assert engine_records(found, lambda _: {"error": "later"}).engine_note == "later"
    assert engine_records(found, lambda request: {"forgotten": request["keep"] * 0 + 7}).engine_records == 7


def test_background_commands_leave_by_age_and_dead_ones_are_ended_first(house: House) -> None:
    """One that ended long ago goes; one whose process died long ago is ended now and goes the next time."""
    holder = '{"pid": 1, "start_time": 1, "boot": "another", "mark": ""}'
    row: dict[str, Any] = {
        "call_id": "c",
        "trace_id": "t",
        "workspace": "/w",
        "holder": holder,
        "seconds": 1.0,
    }
    insert(
        house.database, command_jobs, job_id="ended", started_at=OLD, ended_at=OLD, outcome="completed", **row
    )
    insert(house.database, command_jobs, job_id="left", started_at=OLD, **row)
    assert house.collect(dry_run=True).command_jobs == 1
    assert house.collect().command_jobs == 1
    (left,) = rows_of(house.database, sa.select(command_jobs))
    assert (left["job_id"], left["ended_at"] is not None, left["outcome"]) == ("left", True, None)
    assert house.collect(older_than=datetime.now(UTC) + timedelta(days=1)).command_jobs == 1
