"""Cursors: replay from any `seq`, then live, in any process: no loss, no doubling, no stealing.

A cursor only reads. It asks how far the log has come, reads up to there, and then waits to be woken; because
events become visible in the order of `seq`, what is behind it is complete. Who comes late or comes back gives
the last `seq` it has handled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator
from types import TracebackType
from typing import NamedTuple, Self

import sqlalchemy as sa

from proctor.protocol.errors import StoreUnavailableError, UsageError
from proctor.protocol.events import Event
from proctor.store.database import Database
from proctor.store.tables import events
from proctor.trace.reader import MAX_PAGE, last_seq, page, trace_events
from proctor.trace.wake import watcher_of

__all__ = ["Cursor"]

_PATIENCE, _AGAIN = 30.0, 0.25
_LOOK = 5.0  # a waiting cursor looks again at least this often, whoever forgot to wake it


class _Away:
    """How long the database has been away."""

    def __init__(self) -> None:
        self._since: float | None = None

    def pause(self, error: StoreUnavailableError) -> float:
        """Seconds to wait before the next look; raises the error when patience is over."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since > _PATIENCE:
            raise error
        return _AGAIN

    def back(self) -> None:
        """It answered."""
        self._since = None


class _Found(NamedTuple):
    events: list[Event]
    scanned: int
    trace_seq: int | None


class Cursor:
    """One reader's place in the log. Not for use by two threads at once; make two cursors.

    `seq` is the last event that was given out; a new cursor with `after=seq` goes on exactly there.
    """

    def __init__(
        self,
        database: Database,
        after: int = 0,
        *,
        trace_id: str | None = None,
        session_id: str | None = None,
        kinds: Collection[str] | None = None,
        batch: int = 500,
    ) -> None:
        if after < 0 or not 0 < batch <= MAX_PAGE:
            raise UsageError(
                message=f"A cursor starts at 0 or later and reads 1 to {MAX_PAGE} events at once."
            )
        self.seq = after
        self._database = database
        self._trace_id, self._session_id = trace_id, session_id
        self._kinds = None if kinds is None else [str(kind) for kind in kinds]
        self._batch = batch
        self._scanned = after  # everything up to here was looked at, also what the filter left out
        self._trace_seq: int | None = None
        self._watcher = watcher_of(database)
        self._subscribed = False
        self._closed = False

    def read(self, wait: float = 0.0) -> list[Event]:
        """The next events, at most one batch; waits up to `wait` seconds when there are none yet."""
        found = self._read(wait)
        self.seq = found[-1].seq if found else self.seq
        return found

    def events(self, idle: float | None = None) -> Iterator[Event]:
        """Replay, then live; ends when nothing came for `idle` seconds, or at `close`.

        A database that is away is waited for: half a minute, then its error comes through.
        """
        since, away = time.monotonic(), _Away()
        while not self._closed:
            try:
                found = self._read(_share(since, idle))
            except StoreUnavailableError as error:
                time.sleep(away.pause(error))
                continue
            away.back()
            if not found and idle is not None and time.monotonic() - since >= idle:
                return
            for event in found:
                self.seq = event.seq
                yield event
                since = time.monotonic()

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    async def read_async(self, wait: float = 0.0) -> list[Event]:
        """Like `read`, without holding up the event loop; a cancelled wait leaves the cursor where it was."""
        found = await self._read_async(wait)
        self.seq = found[-1].seq if found else self.seq
        return found

    async def events_async(self, idle: float | None = None) -> AsyncIterator[Event]:
        """Like `events`, for `async for`."""
        since, away = time.monotonic(), _Away()
        while not self._closed:
            try:
                found = await self._read_async(_share(since, idle))
            except StoreUnavailableError as error:
                await asyncio.sleep(away.pause(error))
                continue
            away.back()
            if not found and idle is not None and time.monotonic() - since >= idle:
                return
            for event in found:
                self.seq = event.seq
                yield event
                since = time.monotonic()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.events_async()

    def close(self) -> None:
        """End the iterators and let the watcher go; more than once does no harm."""
        self._closed = True
        if self._subscribed:
            self._subscribed = False
            self._watcher.unsubscribe()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, wait: float) -> list[Event]:
        until = time.monotonic() + wait
        while True:
            found = self._take(self._look())
            left = until - time.monotonic()
            if found or left <= 0 or self._closed:
                return found
            self._listen()
            self._watcher.wait(self._scanned, min(left, _LOOK))

    async def _read_async(self, wait: float) -> list[Event]:
        until = time.monotonic() + wait
        while True:
            # `_look` changes nothing, so that a thread that outlives its cancelled caller loses no event.
            found = self._take(await asyncio.to_thread(self._look))
            left = until - time.monotonic()
            if found or left <= 0 or self._closed:
                return found
            self._listen()
            await self._wait_async(min(left, _LOOK))

    async def _wait_async(self, left: float) -> None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def call() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        with self._watcher.calling(call):
            if self._watcher.latest > self._scanned or self._closed:
                return
            try:
                async with asyncio.timeout(left):
                    await woken.wait()
            except TimeoutError:
                return

    def _listen(self) -> None:
        if not self._subscribed and not self._closed:
            self._subscribed = True
            self._watcher.subscribe()

    def _take(self, found: _Found) -> list[Event]:
        self._scanned, self._trace_seq = found.scanned, found.trace_seq
        return found.events

    def _look(self) -> _Found:
        with self._database.read() as connection:
            # First how far the log has come, then the rows up to there: also without one snapshot for both,
            # nothing can appear behind the place we then hold.
            through = last_seq(connection)
            if through <= self._scanned:
                return _Found([], self._scanned, self._trace_seq)
            if self._trace_id is None:
                return self._look_at_log(connection, through)
            return self._look_at_trace(connection, self._trace_id, through)

    def _look_at_log(self, connection: sa.Connection, through: int) -> _Found:
        found = page(
            connection,
            after=self._scanned,
            through=through,
            limit=self._batch,
            session_id=self._session_id,
            kinds=self._kinds,
        )
        return _Found(found, found[-1].seq if len(found) == self._batch else through, None)

    def _look_at_trace(self, connection: sa.Connection, trace_id: str, through: int) -> _Found:
        place = self._trace_seq
        if place is None:
            place = _place(connection, trace_id, self._scanned)
        found = trace_events(
            connection,
            trace_id,
            after=place,
            through=through,
            limit=self._batch,
            session_id=self._session_id,
            kinds=self._kinds,
        )
        scanned = found[-1].seq if len(found) == self._batch else through
        return _Found(found, scanned, found[-1].trace_seq if found else place)


def _share(since: float, idle: float | None) -> float:
    """How long to wait at once, so that `close` is heeded also in an endless wait."""
    return _LOOK if idle is None else max(0.0, min(_LOOK, since + idle - time.monotonic()))


def _place(connection: sa.Connection, trace_id: str, seq: int) -> int:
    """The place in its trace that belongs to a place in the log."""
    query = sa.select(sa.func.max(events.c.trace_seq)).where(
        events.c.trace_id == trace_id, events.c.seq <= seq
    )
    return int(connection.execute(query).scalar() or 0)
