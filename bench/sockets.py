"""How fast the sockets are: ping beside a bare uvicorn echo, 500 idle connections, 100 viewers of 200 events a second.

Server and echo are processes of their own with the same settings of uvicorn and take turns, so that both meet the same
machine. Memory and CPU are the server's own, from the kernel's account of that process.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proctor.app import App
from proctor.config import load_settings
from proctor.protocol.events import Draft

__all__ = ["run"]

ROUNDS = 9
CLIENTS = 16
IDLE = 500
VIEWERS = 100
PER_SECOND = 200
WANTED = {
    "ping": "at least 0.7 of a bare uvicorn echo with the same settings, in the same run",
    "idle": "500 idle connections: at most 200 MB, in all and more than before",
    "viewers": "100 viewers (50 trace sockets, 50 SSE) at 200 events/s: at most one core, every event delivered",
}
ECHO = """
import asyncio, json, socket, sys
import uvicorn, uvloop
from proctor.server.serving import _config

async def echo(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": message["text"]})

listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
print(json.dumps({"ws": f"ws://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(uvicorn.Server(_config(echo, lifespan="off")).serve(sockets=[listener]))
"""
PING = b'{"type": "ping"}'


def run(scale: float) -> dict[str, Any]:
    """Measure all three; `scale` 1 sends 10,000 pings a round and lets the viewers watch for 20 seconds."""
    _many_files()
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as place, _ours(Path(place)) as ours:
        with _process([sys.executable, "-c", ECHO], Path(place)) as (echo, said):
            pings = asyncio.run(_pings(ours, (echo.pid, said["ws"]), max(1_000, int(10_000 * scale))))
        viewers = asyncio.run(_viewers(ours, max(3.0, 20.0 * scale)))
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as place, _ours(Path(place)) as ours:
        idle = asyncio.run(_idle(ours))
    met = {
        "ping": pings["ratio"] >= 0.7,
        "idle": idle["rss_mb"] <= 200 and idle["rss_mb_more"] <= 200,
        "viewers": viewers["cores"] <= 1.0 and viewers["lost"] == 0,
    }
    return {"ping": pings, "idle": idle, "viewers": viewers, "wanted": WANTED, "met_each": met,
            "met": all(met.values())}  # fmt: skip


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Ours:
    """A real `proctor serve` with a state of its own."""

    def __init__(self, pid: int, said: dict[str, Any], app: App) -> None:
        self.pid = pid
        self.http: str = said["http"]
        self.ws: str = said["ws"]
        self.app = app
        self.token = Path(said["token_file"]).read_text().strip()


@contextmanager
def _ours(place: Path) -> Iterator[Ours]:
    work = place / "work"
    work.mkdir()
    environ = {"HOME": str(place), "PATH": os.environ.get("PATH", os.defpath), "XDG_RUNTIME_DIR": ""}
    words = [sys.executable, "-m", "proctor", "serve", "--port", "0", "--ws-port", "0", "--json"]
    with _process(words, work, environ) as (process, said):
        app = App(load_settings(work, environ))
        try:
            yield Ours(process.pid, said, app)
        finally:
            app.close()


@contextmanager
def _process(
    words: list[str], place: Path, environ: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen(words, cwd=place, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def _cpu(pid: int) -> float:
    """CPU seconds of a process, user and system, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))


# ── a client that costs little ────────────────────────────────────────────────────────────────────────────────────


async def _connect(address: str, token: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**22)
    writer.write(
        f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {token}\r\n\r\n".encode()
    )
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in answer, answer
    return reader, writer


def _frame(payload: bytes) -> bytes:
    assert len(payload) < 126
    return bytes([0x81, 0x80 | len(payload)]) + b"\0\0\0\0" + payload


async def _take(reader: asyncio.StreamReader) -> None:
    """Read the next text of the server; its keep-alive pings are no answers."""
    while await _frame_kind(reader) != 1:
        continue


async def _frame_kind(reader: asyncio.StreamReader) -> int:
    head = await reader.readexactly(2)
    size = head[1]
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    elif size == 127:
        size = int.from_bytes(await reader.readexactly(8), "big")
    await reader.readexactly(size)
    return head[0] & 0x0F


# ── ping ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _pings(ours: Ours, echo: tuple[int, str], count: int) -> dict[str, Any]:
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        mine = await _round(ours.pid, ours.ws, ours.token, count)
        bare = await _round(echo[0], echo[1], "", count)
        rounds.append({"ours": mine[0], "bare": bare[0], "ours_us": mine[1], "bare_us": bare[1]})
    best = {name: max(one[name] for one in rounds) for name in ("ours", "bare")}
    cpu = {name: min(one[name] for one in rounds) for name in ("ours_us", "bare_us")}
    return {
        # Whoever shares the machine only ever slows a round down, so the best of many tells the program's own speed.
        "pings_per_s": round(best["ours"]),
        "echoes_per_s": round(best["bare"]),
        "ratio": round(best["ours"] / best["bare"], 3),
        "ratio_median": round(statistics.median(one["ours"] / one["bare"] for one in rounds), 3),
        "cpu_us_per_ping": round(cpu["ours_us"], 1),
        "cpu_us_per_echo": round(cpu["bare_us"], 1),
        "cpu_ratio": round(cpu["bare_us"] / cpu["ours_us"], 3),
        "clients": CLIENTS,
        "pings_per_round": count,
        "rounds": ROUNDS,
    }


async def _round(pid: int, address: str, token: str, count: int) -> tuple[float, float]:
    """Pings a second and the server's CPU for one, in microseconds."""
    lines = [await _connect(address, token) for _ in range(CLIENTS)]
    frame, each = _frame(PING), count // CLIENTS

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(each):
            writer.write(frame)
            await _take(reader)

    cpu, began = _cpu(pid), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for reader, writer in lines:
            group.create_task(talk(reader, writer))
    seconds = time.perf_counter() - began
    used = _cpu(pid) - cpu
    for _, writer in lines:
        writer.close()
    return each * CLIENTS / seconds, max(used, 0.001) / (each * CLIENTS) * 1e6


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _idle(ours: Ours) -> dict[str, Any]:
    await asyncio.sleep(2)
    before = _rss_mb(ours.pid)
    async with AsyncExitStack() as stack:
        for _ in range(IDLE):
            reader, writer = await _connect(ours.ws, ours.token)
            stack.callback(writer.close)
            writer.write(_frame(PING))
            await _take(reader)
        await asyncio.sleep(1)
        rss = _rss_mb(ours.pid)
    return {
        "connections": IDLE,
        "rss_mb": round(rss, 1),
        "rss_mb_more": round(rss - before, 1),
        "rss_mb_before": round(before, 1),
    }


# ── viewers ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _viewers(ours: Ours, seconds: float) -> dict[str, Any]:
    total = int(PER_SECOND * seconds)
    trace = "trace_bench"
    async with AsyncExitStack() as stack:
        counts = [0] * VIEWERS
        for number in range(VIEWERS):
            await _watch(ours, trace, counts, number, stack)
        cpu, began = _cpu(ours.pid), time.perf_counter()
        await asyncio.to_thread(_write, ours.app, trace, total)
        await _all_seen(counts, total)
        wall, used = time.perf_counter() - began, _cpu(ours.pid) - cpu
    return {
        "viewers": VIEWERS,
        "events": total,
        "seconds": round(wall, 2),
        "events_per_s": round(total / wall, 1),
        "cpu_seconds": round(used, 2),
        "cores": round(used / wall, 3),
        "lost": sum(total - count for count in counts),
        "delivered_per_s": round(sum(counts) / wall),
    }


async def _all_seen(counts: list[int], total: int) -> None:
    for _ in range(1500):
        if min(counts) >= total:
            return
        await asyncio.sleep(0.02)


async def _watch(ours: Ours, trace: str, counts: list[int], number: int, stack: AsyncExitStack) -> None:
    """Half of them on trace sockets, half on server-sent events; each only counts."""
    if number % 2:
        reader, writer = await _connect(f"{ours.http.replace('http', 'ws')}/ws/traces/{trace}", ours.token)
        await _take(reader)
        work = _count_frames(reader, counts, number)
    else:
        reader, writer = await _stream(ours, trace)
        work = _count_lines(reader, counts, number)
    await stack.enter_async_context(_Background(work))
    stack.callback(writer.close)


async def _stream(ours: Ours, trace: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(ours.http)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**22)
    writer.write(
        f"GET /api/events?trace_id={trace} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Authorization: Bearer {ours.token}\r\n\r\n".encode()
    )
    await reader.readuntil(b": connected\n\n")
    return reader, writer


class _Background:
    """A task that ends with the block."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> None:
        await self._group.__aenter__()
        self._task = self._group.create_task(self._work)

    async def __aexit__(self, *_words: object) -> None:
        self._task.cancel()
        await self._group.__aexit__(None, None, None)


async def _count_frames(reader: asyncio.StreamReader, counts: list[int], number: int) -> None:
    while True:
        await _take(reader)
        counts[number] += 1


async def _count_lines(reader: asyncio.StreamReader, counts: list[int], number: int) -> None:
    """Lines may be cut by chunks of the answer, so what is counted is their beginning within the whole stream."""
    rest = b""
    while part := await reader.read(2**18):
        rest += part
        counts[number] += rest.count(b"\ndata: ")
        rest = rest[-6:]


def _write(app: App, trace: str, total: int) -> None:
    """So many events in a steady stream, from another process than the server's."""
    began = time.perf_counter()
    for number in range(0, total, 5):
        drafts = [Draft(trace, "note", details={"n": number + n, "text": "x" * 80}) for n in range(5)]
        app.writer.append(drafts)
        ahead = (number + 5) / PER_SECOND - (time.perf_counter() - began)
        if ahead > 0:
            time.sleep(ahead)


if __name__ == "__main__":
    print(json.dumps(run(1.0), indent=2))
