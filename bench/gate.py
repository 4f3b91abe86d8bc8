"""What the gate and its durable trace cost: a no-op tool through `Gate.run`, beside a LangGraph node, in one run.

Both write to the same kind of database with the same durability (SQLite: WAL, synchronous FULL; PostgreSQL: one server
with fsync on), one caller, one after the other, taking turns. `node` is the price of one more node in a graph that runs
already; `invoke` is that of a graph of one node from its start to its end, as one calls a tool. LangGraph is no dependency
of ours: it is installed into a throw-away environment under `.dev/` and runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import uvloop
from pydantic import BaseModel
from tests.support.postgres import PostgresServer

from proctor.config import load_settings
from proctor.gate.context import Context
from proctor.gate.gate import Gate
from proctor.gate.rulebook import SettingsShelf
from proctor.protocol.events import ActorKind
from proctor.protocol.ids import new_id
from proctor.protocol.tools import Actor, Call, SideEffect
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database, upgrade
from proctor.tools.registry import Registry, declare
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter

__all__ = ["LIMITS", "run"]

LIMITS = {"sqlite_vs_langgraph_node": 1.0, "postgresql_vs_langgraph_node": 1.0}
ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".dev" / "bench-langgraph"
WANTED = (
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "psycopg[binary]",
)
TURN = 25
KEY = b"k" * 32


class PeerMissingError(Exception):
    """LangGraph cannot be had here."""


class Nothing(BaseModel):
    """No input and no output."""


async def _do_nothing(_context: Context, _inputs: Nothing) -> Nothing:
    return Nothing()


def run(scale: float = 1.0) -> dict[str, Any]:
    """Medians in milliseconds and their ratios; 300 calls each on either database.

    `trips` are statements sent to the database (on PostgreSQL each is a round trip), `commits` durable transactions.
    """
    turns = max(3, int(12 * scale))
    try:
        python = peer_python()
    except PeerMissingError as error:
        python, reason = None, str(error)
    result: dict[str, Any] = {"calls": turns * TURN, "limits": LIMITS}
    for name, place in (("sqlite", _on_sqlite), ("postgresql", _on_postgres)):
        with (
            place() as (database, theirs),
            tempfile.TemporaryDirectory(prefix="proctor-bench-") as home,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,  # as in `proctor serve`
        ):
            result[name] = runner.run(_take_turns(database, Path(home), python, (name, theirs), turns))
    if python is None:
        return {**result, "langgraph": f"not available: {reason}", "unmeasured": sorted(LIMITS)}
    ratios = {key: result[key.partition("_vs_")[0]]["vs_langgraph_node"] for key in LIMITS}
    result["met"] = all(ratios[key] <= limit for key, limit in LIMITS.items())
    return {**result, **ratios, "langgraph": _version(python)}


# ── ours ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Ours:
    """A gate as the application wires it, with one tool that does nothing."""

    def __init__(self, database: Database, home: Path) -> None:
        environ = {"HOME": str(home)}
        self._workspace = home / "project"
        self._workspace.mkdir()
        redactor = Redactor(key=KEY)
        self.writer = TraceWriter(database, key=KEY, redactor=redactor)
        tool = declare(
            name="nothing",
            summary="Do nothing.",
            input=Nothing,
            output=Nothing,
            domain="bench",
            side_effect=SideEffect.READ_ONLY,
            handler=_do_nothing,
        )
        self._gate = Gate(
            tools=Registry([tool]),
            database=database,
            writer=self.writer,
            redactor=redactor,
            settings_for=SettingsShelf(load_settings(self._workspace, environ), environ).of,
        )

    async def calls(self, count: int) -> list[float]:
        """Seconds of each of some calls of one session."""
        times, session = [], new_id("session")
        for _ in range(count):
            began = time.perf_counter()
            result = await self._gate.run(
                Call(
                    tool="nothing",
                    inputs={},
                    actor=Actor(ActorKind.HUMAN, "bench"),
                    workspace=self._workspace,
                    session_id=session,
                    trace_id=session,
                )
            )
            times.append(time.perf_counter() - began)
            assert result.error is None, result.error
        return times


class Counted:
    """Trips to the database and durable changes, of the quick lane and of the ordinary way."""

    def __init__(self, database: Database) -> None:
        self.trips = self.commits = 0
        self._database = database

    def __enter__(self) -> Counted:
        self._database.watch = self._quick
        for moment, listener in (("before_cursor_execute", self._statement), ("commit", self._commit)):
            sa.event.listen(self._database.engine, moment, listener)
        return self

    def __exit__(self, *_error: object) -> None:
        self._database.watch = None
        for moment, listener in (("before_cursor_execute", self._statement), ("commit", self._commit)):
            sa.event.remove(self._database.engine, moment, listener)

    def _quick(self, moment: str) -> None:
        self.commits += moment == "committed"
        self.trips += moment != "committed"

    def _statement(self, *_facts: object) -> None:
        self.trips += 1

    def _commit(self, _connection: object) -> None:
        self.commits += 1


class Taken:
    """What one of the three took: seconds of each, and the processor's for all."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.cpu = 0.0

    def add(self, found: tuple[list[float], float]) -> None:
        """Take another turn."""
        self.times += found[0]
        self.cpu += found[1]

    def facts(self, name: str) -> dict[str, float]:
        """Milliseconds each."""
        ordered = sorted(self.times)
        return {
            f"{name}_p10_ms": ordered[len(ordered) // 10] * 1000,
            f"{name}_p50_ms": statistics.median(ordered) * 1000,
            f"{name}_cpu_ms": self.cpu / len(ordered) * 1000,
        }


async def _take_turns(
    database: Database, home: Path, python: Path | None, theirs: tuple[str, str], turns: int
) -> dict[str, float]:
    ours = Ours(database, home)
    taken = {"gate": Taken(), "langgraph_node": Taken(), "langgraph_invoke": Taken()}
    found: dict[str, float] = {}
    with ours.writer, _peer(python, *theirs) as peer:
        await ours.calls(10)
        with Counted(database) as counted:
            await ours.calls(TURN)
        found |= {"gate_trips": counted.trips / TURN, "gate_commits": counted.commits / TURN}
        if peer is not None:
            found["langgraph_node_commits"] = _ask(peer, f"commits {TURN}")[0] / TURN
        for _ in range(turns):
            began = time.process_time()
            taken["gate"].add((await ours.calls(TURN), time.process_time() - began))
            if peer is not None:
                taken["langgraph_node"].add(_ask(peer, f"node {TURN}"))
                taken["langgraph_invoke"].add(_ask(peer, f"invoke {TURN}"))
    for name, one in taken.items():
        found |= one.facts(name) if one.times else {}
    for other in ("langgraph_node", "langgraph_invoke"):
        if taken[other].times:
            found[f"vs_{other}"] = found["gate_p50_ms"] / found[f"{other}_p50_ms"]
            found[f"vs_{other}_p10"] = found["gate_p10_ms"] / found[f"{other}_p10_ms"]
    return {name: round(value, 3) for name, value in found.items()}


@contextmanager
def _on_sqlite() -> Iterator[tuple[Database, str]]:
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as place:
        database = open_database(sqlite_url(Path(place) / "proctor.db"))
        try:
            yield database, str(Path(place) / "langgraph.db")
        finally:
            database.close()


class DurableServer(PostgresServer):
    """The tests' PostgreSQL with fsync and a commit that waits for it, as a real one has."""

    def start(self) -> None:
        """Make the cluster and start it."""
        self._initialise()
        options = f"-c listen_addresses='' -c unix_socket_directories={self.home / 'run'} -c fsync=on"
        options += " -c synchronous_commit=on"
        log = str(self.data / "log")
        self._run("pg_ctl", "-w", "-t", "60", "-D", str(self.data), "-l", log, "-o", options, "start")


@contextmanager
def _on_postgres() -> Iterator[tuple[Database, str]]:
    server = DurableServer(DurableServer.new_home())
    try:
        server.start()
        with server.fresh() as url, server.fresh() as other:
            database = Database(url)
            upgrade(database)
            try:
                yield database, other
            finally:
                database.close()
    finally:
        server.remove()


# ── theirs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def peer_python() -> Path:
    """The Python that has LangGraph, made at the first use."""
    python, whole = HOME / "venv" / "bin" / "python", HOME / "whole"
    if not whole.exists():
        _install(python)
        whole.touch()
    return python


def _install(python: Path) -> None:
    """Make the environment with the uv that `dev.py` fetched; one that was left half made is made again."""
    uvs = sorted((ROOT / ".dev").glob("uv-*/bin/uv"))
    if not uvs:
        raise PeerMissingError("there is no uv; run `python3 dev.py setup`")
    environ = {**os.environ, "UV_SYSTEM_CERTS": "1", "UV_CACHE_DIR": str(ROOT / ".dev" / "uv-cache")}
    environ.pop("VIRTUAL_ENV", None)
    for words in (
        ["venv", "--clear", "--python", sys.executable, str(HOME / "venv")],
        ["pip", "install", "--python", str(python), *WANTED],
    ):
        command = [str(uvs[-1]), "--no-config", "--quiet", *words]
        done = subprocess.run(command, check=False, env=environ, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise PeerMissingError((done.stderr.strip().splitlines() or ["uv failed"])[-1][:300])


def _version(python: Path) -> str:
    code = "from importlib.metadata import version; print(version('langgraph'))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def _peer(python: Path | None, kind: str, place: str) -> Iterator[subprocess.Popen[str] | None]:
    if python is None:
        yield None
        return
    program = str(Path(__file__).with_name("peer_langgraph.py"))
    with subprocess.Popen(
        [str(python), program, kind, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as peer:
        try:
            assert peer.stdout is not None
            assert json.loads(peer.stdout.readline()) == "ready"
            yield peer
        finally:
            peer.kill()


def _ask(peer: subprocess.Popen[str], question: str) -> Any:
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(question + "\n")
    peer.stdin.flush()
    return json.loads(peer.stdout.readline())
