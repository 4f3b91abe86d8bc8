"""What the gate and its durable trace cost: a no-op tool through `Gate.run`, beside a LangGraph node, in one run.

Both write to the same kind of database with the same durability (SQLite: WAL, synchronous FULL; PostgreSQL: one server
with fsync on), one caller, one after the other, taking turns. LangGraph is no dependency of ours: it is installed into
a throw-away environment under `.dev/` and runs in a process of its own.
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
    """Medians in milliseconds and their ratios; 300 calls each on either database."""
    turns = max(3, int(12 * scale))
    try:
        python = peer_python()
    except PeerMissingError as error:
        python, reason = None, str(error)
    result: dict[str, Any] = {"calls": turns * TURN, "limits": LIMITS}
    for name, place in (("sqlite", _on_sqlite), ("postgresql", _on_postgres)):
        with place() as (database, theirs), tempfile.TemporaryDirectory(prefix="proctor-bench-") as home:
            result[name] = asyncio.run(_take_turns(database, Path(home), python, (name, theirs), turns))
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


async def _take_turns(
    database: Database, home: Path, python: Path | None, theirs: tuple[str, str], turns: int
) -> dict[str, float]:
    ours = Ours(database, home)
    times: dict[str, list[float]] = {"gate": [], "langgraph_node": [], "langgraph_invoke": []}
    with ours.writer, _peer(python, *theirs) as peer:
        await ours.calls(10)
        for _ in range(turns):
            times["gate"] += await ours.calls(TURN)
            if peer is not None:
                times["langgraph_node"] += _ask(peer, f"node {TURN}")
                times["langgraph_invoke"] += _ask(peer, f"invoke {TURN}")
    medians = {name: statistics.median(taken) * 1000 for name, taken in times.items() if taken}
    found = {f"{name}_p50_ms": value for name, value in medians.items()}
    found |= {f"vs_{name}": medians["gate"] / medians[name] for name in medians if name != "gate"}
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


def _ask(peer: subprocess.Popen[str], question: str) -> list[float]:
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(question + "\n")
    peer.stdin.flush()
    times: list[float] = json.loads(peer.stdout.readline())
    return times
