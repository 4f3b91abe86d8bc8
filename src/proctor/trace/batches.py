"""Many jobs in one transaction: all callers of a moment wait for one commit, and one's failure is its own.

Reads the log's head and builds on it; refuses one that does not carry our seal. Used by the writer's thread alone.
"""

from __future__ import annotations

from contextlib import nullcontext

import sqlalchemy as sa

from proctor.protocol.errors import UnavailableError
from proctor.store.database import Database
from proctor.store.faults import explain
from proctor.trace.chain import Head
from proctor.trace.jobs import Job, answer
from proctor.trace.log import append_prepared, is_written, lock_log
from proctor.trace.rows import Redacts, prepare
from proctor.trace.tip import Tip

__all__ = ["Batches", "fail"]

_HOLD_SECONDS = 10.0  # how long one batch may hold the lock that all writers of all machines need
_RETRIES = 3
_RETRY_STATES = {"40001", "40P01"}  # serialization failure, deadlock: the database asks to do it again


class Batches:
    """Writes batches the ordinary way, and leaves word of it at the tip."""

    def __init__(self, database: Database, key: bytes, redactor: Redacts, tip: Tip) -> None:
        self._database, self._key, self._redactor, self._tip = database, key, redactor, tip

    def prepare(self, jobs: list[Job]) -> list[Job]:
        """Redact before the transaction begins; a draft that cannot be written fails its own job only."""
        drafts = [draft for job in jobs for draft in job.drafts]
        try:
            prepared = prepare(drafts, self._redactor)
        except Exception as error:  # noqa: BLE001 - worker loop: find out whose it is
            if len(jobs) > 1:
                return [one for job in jobs for one in self.prepare([job])]
            fail(jobs, error)
            return []
        place = 0
        for job in jobs:
            job.prepared = prepared[place : place + len(job.drafts)]
            place += len(job.drafts)
        return jobs

    def commit(self, jobs: list[Job]) -> list[Job]:
        """One durable transaction for all; those whose own change failed hear of it and are left out."""
        failed: list[tuple[Job, Exception]] = []
        for attempt in range(1, _RETRIES + 1):
            try:
                heads: dict[str, Head] = {}
                with self._database.write(within=_HOLD_SECONDS) as connection:
                    log = lock_log(connection, self._key)
                    self._tip.meet(log)
                    failed = self._apply(connection, jobs, log, heads)
            except (sa.exc.DBAPIError, UnavailableError) as error:
                self._tip.forget()
                if attempt == _RETRIES or not _once_more(error):
                    raise
            else:
                self._tip.keep(log, heads)
                break
        for job, reason in failed:
            fail([job], reason)
        out = {id(job) for job, _ in failed}
        return [job for job in jobs if id(job) not in out]

    def _apply(
        self, connection: sa.Connection, jobs: list[Job], log: Head, heads: dict[str, Head]
    ) -> list[tuple[Job, Exception]]:
        failed: list[tuple[Job, Exception]] = []
        jobs = [job for job in jobs if not _was_written(connection, job)]
        for job in jobs:
            refusal = job.guard() if job.guard is not None else None
            if refusal is not None:
                job.prepared = []
                failed.append((job, refusal))
            elif job.change is not None:
                try:
                    # Alone it needs no savepoint of its own: its error undoes the whole transaction.
                    with connection.begin_nested() if len(jobs) > 1 else nullcontext():
                        job.value, drafts = job.change(connection)
                        job.prepared = prepare(drafts, self._redactor)
                except Exception as error:  # worker loop: it goes to its caller
                    if len(jobs) == 1:
                        raise
                    if not connection.in_transaction() or connection.invalidated or _is_fault(error):
                        raise
                    job.prepared = []
                    failed.append((job, error))
        rows = [row for job in jobs for row in job.prepared]
        written, place = append_prepared(connection, rows, key=self._key, log=log, heads=heads), 0
        for job in jobs:
            job.events = written[place : place + len(job.prepared)]
            place += len(job.prepared)
        return failed


def fail(jobs: list[Job], error: Exception) -> None:
    """Let the callers of these jobs hear the reason."""
    if isinstance(error, sa.exc.DBAPIError):
        error = explain(error, "of the trace") or error
    for job in jobs:
        job.error = error
    answer(jobs)


def _was_written(connection: sa.Connection, job: Job) -> bool:
    """Whether the server was lost after this job's commit, and not before."""
    written = bool(job.tried) and is_written(connection, job.tried[0])
    if written:
        job.quickly(job.tried)
    return written


def _once_more(error: Exception) -> bool:
    """Whether the database itself asks to do the transaction again."""
    cause = error if isinstance(error, sa.exc.DBAPIError) else error.__cause__
    return getattr(getattr(cause, "orig", None), "sqlstate", None) in _RETRY_STATES


def _is_fault(error: Exception) -> bool:
    """Whether disk, server or lock failed: then it failed for all, not only for the caller who met it."""
    return isinstance(error, sa.exc.DBAPIError) and explain(error, "") is not None
