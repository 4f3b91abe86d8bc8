"""Watching: replay then live, many viewers, nothing lost, nothing twice, whoever is slow or comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from proctor.protocol.events import Draft, Event
from proctor.protocol.ids import new_id
from proctor.server import hub as hub_module
from proctor.server.hub import Hub, Line, Viewer
from proctor.store.database import Database
from proctor.trace.writer import TraceWriter
from tests.server.conftest import Door
from tests.trace.support import KEY, REDACTOR


def _write(door: Door, trace: str, count: int, start: int = 0) -> None:
    drafts = [Draft(trace, "note", details={"n": number}) for number in range(start, start + count)]
    door.app.writer.append(drafts)


def test_bug_28_late_viewers_replay_and_then_see_what_is_new(door: Door) -> None:
    """Bug 28: the first frame is `connected`, then everything from the beginning, then live; two viewers both get all."""
    trace = new_id("trace")
    _write(door, trace, 3)
    with door.socket(f"/ws/traces/{trace}") as one, door.socket(f"/ws/traces/{trace}") as other:
        for viewer in (one, other):
            first = viewer.receive()
            assert set(first) == {"event", "trace_id", "status", "message"}
            assert (first["event"], first["trace_id"], first["status"]) == ("connected", trace, "success")
            assert [viewer.receive()["details"]["n"] for _ in range(3)] == [0, 1, 2]
        _write(door, trace, 2, 3)
        for viewer in (one, other):
            frames = [viewer.receive() for _ in range(2)]
            assert [frame["details"]["n"] for frame in frames] == [3, 4]
            assert {"event", "timestamp", "status", "details", "tool_name", "duration_ms"} <= set(frames[0])


def test_ping_close_and_noise(door: Door) -> None:
    """`ping` is answered `pong`, unknown text and bytes are ignored, `close` closes."""
    with door.socket("/ws/traces/quiet") as viewer:
        assert viewer.receive()["event"] == "connected"
        for noise in ("hello", "", "{", b"\x00", '{"type": "ping"}'):
            viewer.send(noise)
        viewer.send("ping")
        assert viewer.line.recv(timeout=30) == "pong"
        viewer.send("close")
        with pytest.raises(Exception, match="1000"):
            viewer.line.recv(timeout=30)


def test_viewer_that_comes_back_goes_on_after_its_place(door: Door) -> None:
    """`?after=SEQ` leaves out what was seen."""
    trace = new_id("trace")
    _write(door, trace, 4)
    with door.socket(f"/ws/traces/{trace}") as viewer:
        frames = [viewer.receive() for _ in range(5)]
    with door.socket(f"/ws/traces/{trace}?after={frames[2]['seq']}") as viewer:
        viewer.receive()
        assert [viewer.receive()["details"]["n"] for _ in range(2)] == [2, 3]


def test_other_traces_stay_out(door: Door) -> None:
    """A viewer of one trace sees that trace and no other."""
    mine, other = new_id("trace"), new_id("trace")
    with door.socket(f"/ws/traces/{mine}") as viewer:
        viewer.receive()
        _write(door, other, 3)
        _write(door, mine, 1, 7)
        assert viewer.receive()["details"]["n"] == 7


def test_who_watches_is_told(door: Door) -> None:
    """Connections and at most ten traces; gone when they go."""
    with contextlib.ExitStack() as stack:
        for number in range(12):
            stack.enter_context(door.socket(f"/ws/traces/t{number:02}")).receive()
        body = door.get("/ws/health").json()
        assert (body["status"], body["service"]) == ("healthy", "trace-streaming")
        assert body["active_connections"] >= 12
        assert len(body["active_traces"]) == 10
    deadline = time.monotonic() + 30
    while door.front.hub.viewers:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_trace_that_cannot_be_is_404(door: Door) -> None:
    """An id longer than any is refused at the handshake."""
    with pytest.raises(Exception, match="404"), door.socket("/ws/traces/" + "x" * 65):
        pass


@contextlib.contextmanager
def _stream(door: Door, path: str, **headers: str) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
    with httpx.stream("GET", door.http + path, headers={**door.headers, **headers}, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == ": connected"
        yield _events(lines)


def _events(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    place = 0
    for line in lines:
        if line.startswith("id: "):
            place = int(line[4:])
        elif line.startswith("data: "):
            yield place, json.loads(line[6:])


def test_sse_replays_after_the_last_event_id_and_goes_on_live(door: Door) -> None:
    """A browser that reconnects says what it had last; ids are places in the log."""
    trace = new_id("trace")
    _write(door, trace, 3)
    with _stream(door, f"/api/events?after=0&trace_id={trace}") as events:
        first = [next(events) for _ in range(3)]
        _write(door, trace, 1, 3)
        assert next(events)[1]["details"]["n"] == 3
    with _stream(door, f"/api/events?trace_id={trace}", **{"Last-Event-ID": str(first[1][0])}) as events:
        assert [next(events)[1]["details"]["n"] for _ in range(2)] == [2, 3]


def test_sse_without_a_place_shows_only_what_is_new(door: Door) -> None:
    """The whole log need not be asked for."""
    trace = new_id("trace")
    _write(door, trace, 2)
    with _stream(door, "/api/events") as events:
        _write(door, trace, 1, 9)
        assert next(events)[1]["details"]["n"] == 9


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 21])
def test_wrong_last_event_id_is_refused(door: Door, value: str) -> None:
    """Not silently the beginning, and not the end."""
    answer = door.get("/api/events", headers={**door.headers, "Last-Event-ID": value})
    assert answer.status_code in {400, 422}


# ── the hub alone ─────────────────────────────────────────────────────────────────────────────────────────────────


async def _collect(viewer: Viewer, count: int) -> list[int]:
    seen: list[int] = []
    while len(seen) < count:
        lines = await viewer.next(20)
        assert lines, f"only {len(seen)} of {count} came"
        seen += [json.loads(line.text)["details"]["n"] for line in lines]
    return seen


async def test_slow_viewer_loses_nothing(sqlite_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose queue overflows reads the rest from the log: every event once, in order, for both viewers."""
    from proctor.store.database import sqlite_url

    monkeypatch.setattr(hub_module, "MOST_PENDING", 20)
    database = Database(sqlite_url(sqlite_path))
    hub = Hub(lambda: database)
    with TraceWriter(database, key=KEY, redactor=REDACTOR) as writer:
        async with asyncio.TaskGroup() as group:
            group.create_task(hub.run())
            slow, quick = await hub.join(after=0), await hub.join(trace_id="t", after=0)
            for start in range(0, 300, 10):
                drafts = [Draft("t", "note", details={"n": start + n}) for n in range(10)]
                await writer.append_async(drafts)
            assert await _collect(quick, 300) == list(range(300))
            assert len(slow.pending) <= 20  # it was given what the quick one was, before that one read it
            assert await _collect(slow, 300) == list(range(300))
            hub.close()
    database.close()


async def test_each_event_is_encoded_once_however_many_watch(
    sqlite_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty viewers of sixty events, of one trace and of all: sixty encodings, in few batches."""
    from proctor.store.database import sqlite_url

    encoded: list[int] = []
    given: list[int] = []
    real, give = hub_module.Line.of, Hub._give

    def counted(event: Event) -> Line:
        encoded.append(event.seq)
        return real(event)

    def told(hub: Hub, found: list[Event]) -> None:
        given.append(len(found))
        give(hub, found)

    monkeypatch.setattr(hub_module.Line, "of", counted)
    monkeypatch.setattr(Hub, "_give", told)
    database = Database(sqlite_url(sqlite_path))
    hub = Hub(lambda: database)
    with TraceWriter(database, key=KEY, redactor=REDACTOR) as writer:
        async with asyncio.TaskGroup() as group:
            group.create_task(hub.run())
            viewers = [await hub.join(trace_id="t" if number % 2 else None) for number in range(20)]
            for number in range(60):
                await writer.append_async([Draft("t", "note", details={"n": number})])
            for viewer in viewers:
                assert await _collect(viewer, 60) == list(range(60))
            hub.close()
    database.close()
    assert len(encoded) == len(set(encoded)) == 60
    assert sum(given) == 60


async def test_log_that_is_away_is_waited_for(sqlite_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that cannot be read for a while loses no viewer and no event."""
    from proctor.protocol.errors import StoreUnavailableError
    from proctor.store.database import sqlite_url

    monkeypatch.setattr(hub_module, "_AGAIN", 0.05)
    database = Database(sqlite_url(sqlite_path))
    away = threading.Event()

    def found() -> Database:
        if away.is_set():
            away.clear()
            raise StoreUnavailableError(place="here", reason="it is away", cure="Wait.")
        return database

    hub = Hub(found)
    with TraceWriter(database, key=KEY, redactor=REDACTOR) as writer:
        async with asyncio.TaskGroup() as group:
            viewer = await hub.join()
            away.set()
            group.create_task(hub.run())
            await writer.append_async([Draft("t", "note", details={"n": 5})])
            assert await _collect(viewer, 1) == [5]
            assert not away.is_set()
            hub.close()
    database.close()


async def test_hub_rests_when_nobody_watches_and_begins_anew(sqlite_path: Any) -> None:
    """Between two viewers the log moves on; the second still gets exactly what comes after its place."""
    from proctor.store.database import sqlite_url

    database = Database(sqlite_url(sqlite_path))
    hub = Hub(lambda: database)
    with TraceWriter(database, key=KEY, redactor=REDACTOR) as writer:
        async with asyncio.TaskGroup() as group:
            group.create_task(hub.run())
            for round_ in range(3):
                viewer = await hub.join()
                await writer.append_async([Draft("t", "note", details={"n": round_})])
                assert await _collect(viewer, 1) == [round_]
                viewer.close()
                await writer.append_async([Draft("t", "note", details={"n": -1})])
                await asyncio.sleep(0.05)
            hub.close()
    database.close()
