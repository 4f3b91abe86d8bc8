"""DBOS behind one small class: launch, enqueue, wake, take over, forget. Nothing else imports dbos.

One workflow, `attempt(task_id, attempt)`, without steps: our own rows are the checkpoints, so a repeated execution
finds out from them what is left to do, and code may change between two executions of one run. The patching rule
follows: keep the workflow's name and its two arguments; when a step is ever added, guard it with `DBOS.patch`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, EnqueueOptions, Queue
from dbos._core import execute_dequeued_workflow
from dbos._dbos import _get_dbos_instance
from dbos._enqueue_options import build_enqueue_status
from dbos._utils import GlobalParams, generate_uuid
from loguru import logger

from proctor.protocol.errors import UnavailableError
from proctor.store.database import IDLE_SECONDS
from proctor.workspace.locks import file_lock

__all__ = ["APPLICATION_VERSION", "QUEUE", "Job", "Known", "Runtime", "engine_database"]

APPLICATION_VERSION = "proctor-1"
QUEUE = "tasks"
WORKFLOW = "proctor_attempt"
# The belt: a wake-up starts work at once, this poll finds what another process enqueued. On SQLite there is none.
POLL_SECONDS = {"sqlite": 5.0, "postgresql": 0.5}
# Nothing of ours ever goes through DBOS's own queue.
INTERNAL_POLL_SECONDS = 60.0
MAX_THREADS = 48
ADVISORY_LOCK = 7_283_665_142
LAUNCH_SECONDS = 60.0
# Rows are few and small: a cache of half a megabyte per connection is plenty.
SQLITE = (
    "busy_timeout=30000",
    "foreign_keys=ON",
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "cache_size=-512",
)
IDLE_SETTING = f"idle_in_transaction_session_timeout={IDLE_SECONDS}s"
# A long-lived task may be taken over many times; giving up is our decision, not DBOS's.
MAX_RECOVERIES = 1_000_000
Handler = Callable[[str, int], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt waiting to run."""

    task_id: str
    attempt: int
    priority: int = 5
    """1 to 10, higher first, as in the task queue."""

    @property
    def workflow_id(self) -> str:
        """The same attempt always has the same id, so that enqueuing twice is harmless."""
        return f"{self.task_id}:{self.attempt}"


@dataclass(frozen=True, slots=True)
class Known:
    """What DBOS says about some attempts."""

    still_open: Mapping[str, bool]
    """Those it knows, and whether they still wait or run."""
    stranded: frozenset[str]
    """Those it holds as running here, although nothing of them runs here."""


_handler: list[Handler] = []


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=MAX_RECOVERIES)
async def _attempt(task_id: str, attempt: int) -> str:
    return await _handler[0](task_id, attempt)


def engine_database(url: str, *, pool_size: int = 20) -> sa.Engine:
    """The engine DBOS gets: WAL and NORMAL on SQLite, where the loss of a last commit is healed by our rows."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        address = parsed.set(drivername="postgresql+psycopg")
        # A process that is stopped in the middle of a transaction must not hold its rows against a takeover.
        idle = {} if "options" in parsed.query else {"options": f"-c {IDLE_SETTING}"}
        return sa.create_engine(
            address, pool_size=pool_size, max_overflow=0, pool_pre_ping=True, connect_args=idle
        )
    engine = sa.create_engine(
        parsed, pool_size=pool_size, max_overflow=0, connect_args={"check_same_thread": False}
    )

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = "IMMEDIATE"
        for pragma in SQLITE:
            connection.execute(f"PRAGMA {pragma}")
        if sqlite3.sqlite_version_info < (3, 42):
            # DBOS picks unixepoch('subsec') by the Python version; SQLite before 3.42 does not know 'subsec'.
            connection.create_function("unixepoch", 1, lambda *_: time.time())

    return engine


@contextlib.contextmanager
def _alone(engine: sa.Engine) -> Iterator[None]:
    """Keep two processes from creating DBOS's tables at once: it does not expect company at its first launch."""
    if engine.dialect.name == "sqlite":
        with file_lock(Path(f"{engine.url.database}.lock"), exclusive=True, wait_seconds=LAUNCH_SECONDS):
            yield
        return
    # DBOS builds indexes concurrently, which waits for every open transaction: neither an idle one of ours nor a
    # statement that waits for the lock may be one. So autocommit, and asking again and again instead of waiting.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        deadline = time.monotonic() + LAUNCH_SECONDS
        while not connection.execute(sa.select(sa.func.pg_try_advisory_lock(ADVISORY_LOCK))).scalar():
            if time.monotonic() > deadline:
                raise UnavailableError(
                    what="The engine",
                    reason="another process is still preparing its tables",
                    cure="Try again.",
                )
            time.sleep(0.1)
        try:
            yield
        finally:
            connection.execute(sa.select(sa.func.pg_advisory_unlock(ADVISORY_LOCK)))


_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = weakref.WeakKeyDictionary()


def _own_pool(loop: asyncio.AbstractEventLoop) -> None:
    """Give the loop one capped pool for its life; it is shut down with the loop."""
    if loop not in _pools:
        _pools[loop] = ThreadPoolExecutor(MAX_THREADS, "proctor")
        loop.set_default_executor(_pools[loop])


async def _nothing() -> None:
    """Leave the pool as it is."""


def _status(dbos: DBOS, job: Job) -> Any:
    """The row of a waiting job, as DBOS itself builds it."""
    options: EnqueueOptions = {
        "queue_name": QUEUE,
        "workflow_name": WORKFLOW,
        "workflow_id": job.workflow_id,
        "app_version": APPLICATION_VERSION,
        "priority": 11 - job.priority,
    }
    _, status = build_enqueue_status(options, dbos._serializer, (job.task_id, job.attempt), {})
    status["application_name"] = GlobalParams.app_name
    return status


def _is_broken(error: sa.exc.DatabaseError) -> bool:
    """Whether SQLite says that this file is not what it should be; a full disk or a lock is something else."""
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _file_of(engine: sa.Engine) -> tuple[int, int] | None:
    """Which file an SQLite engine's path means now; None when there is none."""
    with contextlib.suppress(FileNotFoundError):
        found = Path(str(engine.url.database)).stat()
        return found.st_dev, found.st_ino
    return None


class Runtime:
    """The one DBOS of this process. `start` inside the event loop that is to run the attempts."""

    def __init__(self, url: str, *, executor_id: str, workers: int, handler: Handler) -> None:
        self.executor_id = executor_id
        self.workers = workers
        self._url = url
        self._engine: sa.Engine | None = None
        self._queue: Queue | None = None
        self._file: tuple[int, int] | None = None
        self._handle = handler
        self._over: set[str] = set()
        self.crowded = False
        """Whether the last look into the queue had to leave something there."""
        _handler[:] = [self._run]

    async def _run(self, task_id: str, attempt: int) -> str:
        try:
            return await self._handle(task_id, attempt)
        finally:
            self._over.add(Job(task_id, attempt).workflow_id)

    def _busy(self, dbos: DBOS) -> int:
        """How many attempts run here; those whose end DBOS is still writing down make room already."""
        active = dbos._active_workflows_set.activeList()
        self._over.intersection_update(active)
        return len(active) - len(self._over)

    async def start(self) -> None:
        """Launch DBOS. The executor id is unique: two processes with one id steal each other's work."""
        _own_pool(asyncio.get_running_loop())
        try:
            self._engine = self._launch()
        except sa.exc.DatabaseError as error:
            if not _is_broken(error):
                raise
            self._engine = self._launch_anew(error)
        self._queue = await asyncio.to_thread(self._register)

    def _launch(self) -> sa.Engine:
        engine = engine_database(self._url)
        dbos = DBOS(config=self._config(engine))
        # DBOS would make its own pool the loop's default one, and end it under everybody else when it stops.
        dbos._configure_asyncio_thread_pool = _nothing  # type: ignore[method-assign]
        dbos._registry.get_internal_queue()._polling_interval_sec = INTERNAL_POLL_SECONDS
        with _alone(engine):
            try:
                DBOS.launch()
            except BaseException:
                DBOS.destroy()
                engine.dispose()
                raise
            finally:
                self._file = _file_of(engine) if engine.dialect.name == "sqlite" else None
        return engine

    def _launch_anew(self, reason: Exception) -> sa.Engine:
        """Put a damaged or half-made file aside: DBOS does not make its tables at once, and our rows are enough."""
        path = Path(str(sa.make_url(self._url).database))
        logger.error("{} is unusable, beginning with a new one: {}", path, reason)
        engine = engine_database(self._url)
        with _alone(engine):
            # Another process may have done it meanwhile; its new file stays.
            if _file_of(engine) == self._file:
                for end in ("-wal", "-shm"):
                    path.with_name(path.name + end).unlink(missing_ok=True)
                path.replace(path.with_name(path.name + ".broken"))
        engine.dispose()
        return self._launch()

    def _register(self) -> Queue:
        return DBOS.register_queue(
            QUEUE,
            worker_concurrency=self.workers,
            polling_interval_sec=POLL_SECONDS[sa.make_url(self._url).get_backend_name()],
            on_conflict="always_update",
        )

    def intact(self) -> bool:
        """Whether the file that DBOS holds open is still the one at its path."""
        return self._file is None or (self._engine is not None and _file_of(self._engine) == self._file)

    def _config(self, engine: sa.Engine) -> DBOSConfig:
        return {
            "name": "proctor",
            "system_database_url": self._url,
            "system_database_engine": engine,
            "executor_id": self.executor_id,
            "application_version": APPLICATION_VERSION,
            "max_executor_threads": MAX_THREADS,
            "notification_listener_polling_interval_sec": 1.0,
            "scheduler_polling_interval_sec": 3600.0,
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "ERROR",
        }

    async def stop(self) -> None:
        """Leave DBOS; what runs stays PENDING in its tables and is taken over."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "proctor-dbos-stop") as leaving:
            await loop.run_in_executor(leaving, DBOS.destroy)
        if self._engine is not None:
            self._engine.dispose()

    async def enqueue(self, jobs: Sequence[Job]) -> None:
        """Hand attempts to the queue and start what there is room for, now."""
        await asyncio.to_thread(self._enqueue, jobs)

    def _enqueue(self, jobs: Sequence[Job]) -> None:
        """All in one transaction; those that are there already stay as they are."""
        dbos = _get_dbos_instance()
        dbos._sys_db.init_workflows([_status(dbos, job) for job in jobs])
        self._dequeue()

    async def wake(self) -> None:
        """Look into the queue now instead of at the next poll."""
        await asyncio.to_thread(self._dequeue)

    def _dequeue(self) -> None:
        """One poll of DBOS's own queue worker. Claiming is atomic in its database, so both may poll."""
        dbos = _get_dbos_instance()
        if self._queue is None:
            return
        owner, busy = generate_uuid(), self._busy(dbos)
        claimed, _ = dbos._sys_db.start_queued_workflows(
            self._queue, GlobalParams.executor_id, GlobalParams.app_version, None, busy, owner_xid=owner
        )
        self.crowded = busy + len(claimed) >= self.workers
        for status in dbos._sys_db.get_workflow_statuses(claimed):
            try:
                execute_dequeued_workflow(dbos, status, owner)
            except Exception as error:  # noqa: BLE001 - worker loop: the others of this claim still begin
                logger.error("{} was claimed and could not begin: {!r}", status["workflow_uuid"], error)

    def pending_executors(self) -> set[str]:
        """Executors that hold work which has not ended, according to DBOS."""
        held = DBOS.list_workflows(status="PENDING", load_input=False, load_output=False)
        return {row.executor_id for row in held if row.executor_id}

    def take_over(self, dead: Iterable[str]) -> int:
        """Put the work of dead executors back into the queue; never runs it here and now."""
        return len(DBOS._recover_pending_workflows(sorted(dead)))

    def known(self, jobs: Iterable[Job]) -> Known:
        """Which of these attempts DBOS knows, and what of them is still to be done there."""
        ids = [job.workflow_id for job in jobs]
        rows = DBOS.list_workflows(workflow_ids=ids, load_input=False, load_output=False) if ids else []
        active = set(_get_dbos_instance()._active_workflows_set.activeList())
        mine = {
            row.workflow_id for row in rows if (row.status, row.executor_id) == ("PENDING", self.executor_id)
        }
        still_open = {row.workflow_id: row.status in {"ENQUEUED", "PENDING", "DELAYED"} for row in rows}
        return Known(still_open, frozenset(mine - active))

    def begin_again(self, workflow_ids: Iterable[str]) -> None:
        """Put back what this executor claimed and never began, for example because the database went away."""
        DBOS.resume_workflows(sorted(workflow_ids), queue_name=QUEUE)
        self._dequeue()

    def forget(self, *, before_ms: int, keep: int, batch: int = 500) -> int:
        """Delete ended workflows older than a moment, keeping the newest; our own rows stay."""
        ended = DBOS.list_workflows(
            status=["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"],
            sort_desc=True,
            load_input=False,
            load_output=False,
        )
        old = [w.workflow_id for i, w in enumerate(ended) if i >= keep or (w.created_at or 0) < before_ms]
        for start in range(0, len(old), batch):
            DBOS.delete_workflows(old[start : start + batch])
        return len(old)
