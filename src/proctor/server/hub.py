"""Live events for many viewers: the log is read once, each event encoded once, each batch shared by all who watch.

Invariants: a viewer gets every event after its place once and in order. What came before it joined, and what it was too slow
to take, it reads from the log; nothing is held for it beyond a small queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from loguru import logger

from proctor.protocol.errors import ProctorError, UnavailableError
from proctor.protocol.events import Event
from proctor.server.encoding import encode
from proctor.store.database import Database
from proctor.trace.cursor import Cursor
from proctor.trace.reader import last_seq

__all__ = ["Hub", "Line", "Viewer", "event_json"]

BATCH_SECONDS: Final = 0.03
PAGE: Final = 500
MOST_PENDING: Final = 2000
MOST_VIEWERS: Final = 2000
_LOOK: Final = 2.0
_AGAIN: Final = 1.0


class TooManyViewersError(UnavailableError):
    """There are {most} viewers already; close some of them."""

    code = "too_many_viewers"


def event_json(event: Event) -> dict[str, Any]:
    """An event as every surface shows it: our own fields, and `timestamp` as seed 002 names the moment."""
    whole = event.model_dump(mode="json")
    return {"event": whole.pop("event"), "timestamp": whole["ts"], **whole}


@dataclass(frozen=True, slots=True)
class Line:
    """One event, encoded."""

    seq: int
    trace_id: str
    text: str
    """For a WebSocket."""
    sse: bytes
    """As a server-sent event."""

    @classmethod
    def of(cls, event: Event) -> Line:
        """Encode it."""
        raw = encode(event_json(event))
        return cls(event.seq, event.trace_id, raw.decode(), b"id: %d\ndata: %b\n\n" % (event.seq, raw))


@dataclass(eq=False)
class Viewer:
    """One reader's place; `next` until it gives nothing."""

    hub: Hub
    trace_id: str | None
    seq: int
    """The last event that was given out."""
    floor: int
    """Up to here events come from the log, beyond it from the hub."""
    pending: deque[Line] = field(default_factory=deque)
    closed: bool = False
    more: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self, wait: float | None = None) -> list[Line]:
        """The next lines; empty when it was closed, or when none came within `wait` seconds."""
        while not self.closed:
            found = await self._from_log() if self.seq < self.floor else self._from_hub()
            if found:
                return found
            if self.seq < self.floor:
                continue
            self.more.clear()
            try:
                async with asyncio.timeout(wait):
                    await self.more.wait()
            except TimeoutError:
                return []
        return []

    async def _from_log(self) -> list[Line]:
        floor = self.floor
        found = await asyncio.to_thread(self.hub.read, self.seq, self.trace_id)
        lines = [Line.of(event) for event in found if event.seq <= floor]
        self.seq = lines[-1].seq if len(lines) == PAGE else floor
        return lines

    def _from_hub(self) -> list[Line]:
        lines = list(self.pending)
        self.pending.clear()
        self.seq = lines[-1].seq if lines else self.seq
        return lines

    def give(self, lines: Iterable[Line], through: int) -> None:
        """Take a batch from the hub; who is too far behind reads it from the log later."""
        self.pending.extend(lines)
        if len(self.pending) > MOST_PENDING:
            self.pending.clear()
            self.floor = through
        if self.pending or self.seq < self.floor:
            self.more.set()

    def close(self) -> None:
        """Watch no longer; more than once does no harm."""
        self.closed = True
        self.more.set()
        self.hub.viewers.discard(self)


class Hub:
    """Reads the log while anybody watches."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self._database = database
        self._seq: int | None = None
        self._wanted = asyncio.Event()
        self._closed = False
        self.viewers: set[Viewer] = set()

    async def join(self, *, trace_id: str | None = None, after: int | None = None) -> Viewer:
        """Begin to watch after a place in the log; None: only what is new."""
        if len(self.viewers) >= MOST_VIEWERS:
            raise TooManyViewersError(most=MOST_VIEWERS)
        now = await asyncio.to_thread(self._last)
        # From here on without a pause: nothing may be given out between knowing the place and standing there.
        self._seq = now if self._seq is None else self._seq
        place = self._seq if after is None else min(after, self._seq)
        viewer = Viewer(self, trace_id, place, self._seq)
        self.viewers.add(viewer)
        viewer.closed = self._closed
        self._wanted.set()
        return viewer

    async def run(self) -> None:
        """Work until closed; belongs to the server's life."""
        while not self._closed:
            await self._wanted.wait()
            try:
                await self._live()
            except (ProctorError, sa.exc.SQLAlchemyError) as error:
                logger.warning("the log cannot be read, trying again: {}", error)
                await asyncio.sleep(_AGAIN)

    async def _live(self) -> None:
        with Cursor(self._database(), self._seq or 0, batch=PAGE) as cursor:
            while self.viewers and not self._closed:
                found = await cursor.read_async(_LOOK)
                if found:
                    self._give(found)
                    await asyncio.sleep(BATCH_SECONDS)
        self._seq = None
        self._wanted.clear()

    def _give(self, found: list[Event]) -> None:
        """Encode what somebody watches, once, and hand it to all of them."""
        watched = {viewer.trace_id for viewer in self.viewers}
        lines = [Line.of(event) for event in found if None in watched or event.trace_id in watched]
        by_trace: dict[str, list[Line]] = {}
        for line in lines:
            by_trace.setdefault(line.trace_id, []).append(line)
        self._seq = found[-1].seq
        for viewer in self.viewers:
            viewer.give(lines if viewer.trace_id is None else by_trace.get(viewer.trace_id, ()), self._seq)

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        self._wanted.set()
        for viewer in list(self.viewers):
            viewer.close()

    def read(self, after: int, trace_id: str | None) -> list[Event]:
        """One page of the log; for threads."""
        with Cursor(self._database(), after, trace_id=trace_id, batch=PAGE) as cursor:
            return cursor.read()

    def _last(self) -> int:
        with self._database().read() as connection:
            return last_seq(connection)
