"""Retention: what ended long ago leaves, by age and count. Nothing of an open task is ever touched.

Clean worktrees and the drivers' state of ended tasks go; a worktree that holds work which is on no branch stays and is
named. Old events leave sealed tombstones. Rows of tasks, attempts and history stay: they are small, and totals come from
them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proctor.agents.model_rows import forget as forget_chats
from proctor.engine.tasks import OPEN
from proctor.gate.retention import prune_calls
from proctor.protocol.errors import ProctorError, UnavailableError, UsageError
from proctor.protocol.events import Draft
from proctor.protocol.states import TASK
from proctor.store.database import Database
from proctor.store.tables import attempts, chats, plans, task_queue
from proctor.tools.job_rows import close_dead_jobs, prune_jobs
from proctor.trace.retention import RETENTION_TRACE, prunable, prune
from proctor.trace.writer import TraceWriter
from proctor.workspace import worktree

__all__ = ["Collected", "Kept", "Retention", "UnknownCheckoutError", "engine_records"]

NO_REPOSITORY = "no-repository"
_ENDED = [state.value for state in TASK.terminal]
_ASIDE = ".gc-"
# Less than this is not worth writing the whole database anew.
VACUUM_BYTES, VACUUM_SHARE = 16 << 20, 0.2
# DBOS's own records serve nobody once an attempt has ended; beyond this number the oldest go whatever their age.
ENGINE_RECORDS = 10_000
TOLD = 100


class UnknownCheckoutError(UsageError):
    """git does not know {path} as a worktree of its task's repository. Look into it and remove it yourself."""

    code = "unknown_checkout"


@dataclass(frozen=True, slots=True)
class Kept:
    """Something old that stays, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed, or with `dry_run` what would be."""

    dry_run: bool
    older_than: datetime
    worktrees: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    states: int = 0
    traces: int = 0
    events: int = 0
    calls: int = 0
    command_jobs: int = 0
    """Ended background commands."""
    engine_records: int | None = None
    """None: the supervisor could not be asked, or a dry run."""
    engine_note: str = ""
    vacuumed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Retention:
    """One collection; everything it needs to know."""

    database: Database
    writer: TraceWriter
    key: bytes
    worktrees_dir: Path
    attempts_dir: Path
    older_than: datetime
    keep: int
    dry_run: bool = False
    vacuum_bytes: int = VACUUM_BYTES
    _newest: set[str] = field(default_factory=set)

    def collect(self) -> Collected:
        """Go over worktrees, states and traces; safe to interrupt and to run beside everything else."""
        self._newest.update(self._newest_ended())
        removed, kept = self._worktrees()
        states = sum(1 for _ in self._states())
        traces, gone = self._traces()
        found = Collected(
            dry_run=self.dry_run,
            older_than=self.older_than,
            worktrees=tuple(removed),
            kept=tuple(kept),
            states=states,
            traces=traces,
            events=gone,
            calls=prune_calls(self.database, older_than=self.older_than, dry_run=self.dry_run),
            command_jobs=self._jobs(),
        )
        if self.dry_run:
            return found
        self._tell(found)
        return replace(found, vacuumed_bytes=self._vacuum())

    def _jobs(self) -> int:
        """Background commands: those whose process died are ended first, so that they can grow old."""
        if not self.dry_run:
            now = datetime.now(UTC)
            self.writer.transact(lambda connection: close_dead_jobs(connection, now))
        return prune_jobs(self.database, older_than=self.older_than, dry_run=self.dry_run)

    # Which tasks

    def _newest_ended(self) -> set[str]:
        if self.keep <= 0:
            return set()
        ended = sa.func.coalesce(task_queue.c.completed_at, task_queue.c.created_at)
        query = sa.select(task_queue.c.task_id).where(task_queue.c.status.in_(_ENDED))
        with self.database.read() as connection:
            return set(connection.execute(query.order_by(ended.desc()).limit(self.keep)).scalars())

    def _old(self, connection: sa.Connection, task_id: str, *, lock: bool = False) -> bool | None:
        """Whether a task ended long ago; None when there is no such task."""
        query = sa.select(
            task_queue.c.status, task_queue.c.completed_at, task_queue.c.created_at, task_queue.c.owner
        ).where(task_queue.c.task_id == task_id)
        row = connection.execute(query.with_for_update() if lock else query).first()
        if row is None:
            return None
        ended = row.completed_at or row.created_at
        if row.status not in _ENDED or row.owner is not None or not isinstance(ended, datetime):
            return False  # what another program put in without a time that can be read is of no age
        return ended < self.older_than and task_id not in self._newest

    # Worktrees

    def _worktrees(self) -> tuple[list[str], list[Kept]]:
        removed: list[str] = []
        kept: list[Kept] = []
        root = self.worktrees_dir.resolve()  # as the attempts wrote it down
        for place, task_id, attempt in _places(root):
            with self.database.read() as connection:
                old = self._old(connection, task_id)
            try:
                if old is None:
                    kept.append(Kept(str(place), "no task of this database belongs to it"))
                elif old and self._remove(place, task_id, attempt):
                    removed.append(str(place))
                    _remove_empty(place.parent, root)
            except ProctorError as error:
                kept.append(Kept(str(place), str(error)))
            except OSError as error:
                kept.append(Kept(str(place), f"{error.strerror} ({error.filename})"))
        return removed, kept

    def _remove(self, place: Path, task_id: str, attempt: int | None) -> bool:
        """Remove one clean checkout; an attempt that begins meanwhile has been told to use another."""
        if attempt is None:
            return self._remove_plain(place, task_id)
        tree = self._tree(place, task_id, attempt)
        tree.refuse_if_dirty()
        if self.dry_run:
            return True
        users = self._detach(place, task_id)
        if users is None:
            return False
        gone = False
        try:
            tree.remove()
            gone = True
        finally:
            if not gone:
                self._attach(place, task_id, users)
        return True

    def _tree(self, place: Path, task_id: str, attempt: int) -> worktree.Worktree:
        """The checkout as its attempt wrote it down; one that a killed attempt had only begun counts by its number."""
        by_place = sa.case(
            (attempts.c.worktree == str(place), 0), (attempts.c.attempt == attempt, 1), else_=2
        )
        query = (
            sa.select(task_queue.c.workspace, attempts.c.base_commit)
            .join(attempts, attempts.c.task_id == task_queue.c.task_id)
            .where(task_queue.c.task_id == task_id, attempts.c.base_commit.is_not(None))
            .order_by(by_place, attempts.c.attempt.desc())
            .limit(1)
        )
        with self.database.read() as connection:
            row = connection.execute(query).first()
        tree = worktree.find(Path(row.workspace), place, row.base_commit) if row and row.workspace else None
        if tree is None:
            raise UnknownCheckoutError(path=str(place))
        return tree

    def _detach(self, place: Path, task_id: str) -> list[int] | None:
        """Take a checkout out of its attempts' rows, so that a retry makes another; None when the task is open again."""
        mine = sa.and_(attempts.c.task_id == task_id, attempts.c.worktree == str(place))
        with self.database.write() as connection:
            if not self._old(connection, task_id, lock=True):
                return None
            users = list(connection.execute(sa.select(attempts.c.attempt).where(mine)).scalars())
            connection.execute(attempts.update().where(mine).values(worktree=None))
        return users

    def _attach(self, place: Path, task_id: str, users: list[int]) -> None:
        """Put it back: it could not be removed."""
        mine = sa.and_(attempts.c.task_id == task_id, attempts.c.attempt.in_(users))
        with self.database.write() as connection:
            connection.execute(attempts.update().where(mine).values(worktree=str(place)))

    def _remove_plain(self, place: Path, task_id: str) -> bool:
        """A directory without a repository may hold the only copy of what was made: only an empty one goes."""
        if any(place.iterdir()):
            raise worktree.DirtyWorktreeError(path=str(place), what="files outside any repository")
        if not self.dry_run:
            with self.database.write() as connection:
                if not self._old(connection, task_id, lock=True):
                    return False
                place.rmdir()
        return True

    # What drivers left

    def _states(self) -> Iterator[Path]:
        """Directories of attempts that ended long ago, removed while nobody can begin one."""
        for left in _directories(self.attempts_dir, hidden=True):
            if left.name.startswith(_ASIDE) and not self.dry_run:
                shutil.rmtree(left, ignore_errors=True)
        for place in _directories(self.attempts_dir):
            if self._put_aside(place):
                yield place
                shutil.rmtree(place.with_name(_ASIDE + place.name), ignore_errors=True)

    def _put_aside(self, place: Path) -> bool:
        if self.dry_run:
            with self.database.read() as connection:
                return bool(self._old(connection, place.name))
        with self.database.write() as connection:
            if not self._old(connection, place.name, lock=True):
                return False
            place.rename(place.with_name(_ASIDE + place.name))
        return True

    # The trace and the file

    def _traces(self) -> tuple[int, int]:
        query = sa.select(task_queue.c.trace_id).where(task_queue.c.status.in_(OPEN)).distinct()
        with self.database.read() as connection:
            spare = set(connection.execute(query).scalars())
            spare |= set(connection.execute(query.with_only_columns(task_queue.c.task_id)).scalars())
            open_plans = sa.select(plans.c.trace_id).where(plans.c.completed_at.is_(None)).distinct()
            spare |= set(connection.execute(open_plans).scalars())
            open_chats = sa.select(chats.c.trace_id).where(chats.c.state != "idle").distinct()
            spare |= set(connection.execute(open_chats).scalars())
        when: dict[str, Any] = {"older_than": self.older_than, "keep": self.keep, "spare": spare}
        done = prunable(self.database, **when) if self.dry_run else prune(self.database, self.key, **when)
        if not self.dry_run:
            with self.database.write() as connection:
                forget_chats(connection, self.older_than)
        counts = [one.removed for one in done]
        return len(counts), sum(counts)

    def _tell(self, found: Collected) -> None:
        if not (found.worktrees or found.states):
            return
        details = {
            "removed_worktrees": len(found.worktrees),
            "worktrees": list(found.worktrees[:TOLD]),
            "removed_states": found.states,
            "older_than": self.older_than.isoformat(),
        }
        self.writer.append([Draft(RETENTION_TRACE, "note", details=details)])

    def _vacuum(self) -> int:
        """Give the space back when much is free; SQLite only, PostgreSQL does it by itself."""
        if self.database.dialect != "sqlite":
            return 0
        with contextlib.suppress(UnavailableError):  # busy: the next collection finds the space still free
            return self._vacuum_file()
        return 0

    def _vacuum_file(self) -> int:
        with self.database.bare() as connection:
            free, pages, size = (
                int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
                for name in ("freelist_count", "page_count", "page_size")
            )
            if free * size < self.vacuum_bytes or free < pages * VACUUM_SHARE:
                return 0
            connection.exec_driver_sql("VACUUM")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            return free * size


def engine_records(found: Collected, ask: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Collected:
    """Have the supervisor, the only one who runs DBOS, forget its records of attempts that ended long ago."""
    before = int(found.older_than.timestamp() * 1000)
    try:
        answer = ask({"op": "gc", "before_ms": before, "keep": ENGINE_RECORDS})
    except ProctorError as error:
        return replace(found, engine_note=str(error))
    if answer is None or "forgotten" not in answer:
        return replace(found, engine_note=str((answer or {}).get("error", "the supervisor did not answer")))
    return replace(found, engine_records=int(answer["forgotten"]))


def _places(root: Path) -> Iterator[tuple[Path, str, int | None]]:
    """Every checkout below the root with its task and attempt: `<repo>/<session>/<task>-<attempt>[.<n>]`."""
    for repository in _directories(root):
        for session in _directories(repository):
            for place in _directories(session):
                task_id, _, numbers = place.name.rpartition("-")
                number, _, again = numbers.partition(".")
                if repository.name == NO_REPOSITORY:
                    yield place, place.name, None
                elif task_id and number.isdecimal() and (not again or again.isdecimal()):
                    yield place, task_id, int(number)


def _directories(place: Path, *, hidden: bool = False) -> list[Path]:
    try:
        with os.scandir(place) as found:
            names = [one.name for one in found if one.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return [place / name for name in sorted(names) if name.startswith(".") == hidden]


def _remove_empty(place: Path, root: Path) -> None:
    while place != root:
        with contextlib.suppress(OSError):
            place.rmdir()
        place = place.parent
