"""How fast the engine is: no-op tasks against bare DBOS, start of an idle queue, takeover, parked questions.

Every run is a process of its own on fresh databases; ours and DBOS alone take turns, so that both meet the same machine.
Celery with Redis and procrastinate are measured beside it where they can be installed; they are never a dependency.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["run"]

ROUNDS = 3
POLL = 0.25  # as ours; and the quickest that is sensible for DBOS alone
QUICK_POLL = 0.02
WANTED = {
    "ratio": "at least 0.7 of bare DBOS with the same engine factory and queue settings",
    "start": "idle queue: p50 <= 50 ms, p95 <= 150 ms",
    "takeover": "lease + 1 s",
    "parked": "1,000 questions: +20 MB at most, no thread and no poll of their own",
}


def run(count: int) -> dict[str, Any]:
    """Measure everything with so many no-op tasks per round."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as place, _postgres() as server:
        found["sqlite"] = _both(Path(place), None, count)
        found["postgresql"] = _both(Path(place), server, count // 2)
        found["others"] = _others(Path(place), server, count // 2)
    engines = [found["sqlite"], found["postgresql"]]
    met = {
        "ratio": all(one["ratio"] >= 0.7 for one in engines),
        "start": all(one["start"]["p50_ms"] <= 50 and one["start"]["p95_ms"] <= 150 for one in engines),
        "takeover": all(one["takeover"]["seconds"] <= one["takeover"]["lease"] + 1 for one in engines),
        "parked": all(one["parked"]["rss_mb_more"] <= 20 for one in engines),
    }
    return {**found, "wanted": WANTED, "met_each": met, "met": all(met.values()), "durability": DURABILITY}


DURABILITY = (
    "ours: SQLite FULL for our rows and the trace, NORMAL for DBOS's; PostgreSQL with synchronous_commit and "
    "without fsync (as the tests use it), for ours and for bare DBOS alike"
)


def _both(place: Path, server: Any, count: int) -> dict[str, Any]:
    """All measurements on one kind of database."""
    rounds = [_round(place, server, count) for _ in range(ROUNDS)]

    def middle(name: str, what: str) -> float:
        return float(round(statistics.median(one[name][what] for one in rounds), 2))

    return {
        "tasks": count,
        "ratio": round(statistics.median(one["ours"]["per_s"] / one["bare"]["per_s"] for one in rounds), 2),
        "ratio_to_quick_poll": round(
            statistics.median(one["ours"]["per_s"] / one["quick"]["per_s"] for one in rounds), 2
        ),
        "ours_per_s": middle("ours", "per_s"),
        "bare_per_s": middle("bare", "per_s"),
        "bare_quick_poll_per_s": middle("quick", "per_s"),
        "ours_cpu_ms_each": middle("ours", "cpu_ms_each"),
        "bare_cpu_ms_each": middle("bare", "cpu_ms_each"),
        "start": _measure(place, server, "latency", "60"),
        "takeover": _measure(place, server, "takeover"),
        "parked": _parked(place, server),
    }


def _round(place: Path, server: Any, count: int) -> dict[str, Any]:
    """Ours, DBOS with our settings, DBOS with a quick poll; one after the other."""
    found = {"ours": _measure(place, server, "ours", str(count))}
    for name, poll in (("bare", POLL), ("quick", QUICK_POLL)):
        with _urls(place, server) as (_, engine_url, _root):
            found[name] = _process("bench.engine_runs", "bare", engine_url, str(count), str(poll))
    return found


def _measure(place: Path, server: Any, name: str, *more: str) -> Any:
    with _urls(place, server) as (url, engine_url, root):
        return _process("bench.engine_runs", name, url, engine_url, str(root), *more)


def _parked(place: Path, server: Any) -> dict[str, float]:
    from proctor.store.schema import open_database

    with _urls(place, server) as (url, engine_url, root):
        open_database(url, migrate=True).close()
        found = _process("tests.faults.parked", url, engine_url, str(root), "1000")
    few, many = found["few"], found["many"]
    return {
        "rss_mb_more": round(many["rss_mb"] - few["rss_mb"], 1),
        "threads_more": many["threads"] - few["threads"],
        "statements_per_s_before": few["statements_per_s"],
        "statements_per_s": many["statements_per_s"],
    }


@contextmanager
def _urls(place: Path, server: Any) -> Iterator[tuple[str, str, Path]]:
    """Fresh databases for one run: ours, DBOS's, and a directory."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        root = Path(name)
        if server is None:
            yield f"sqlite:///{root}/proctor.db", f"sqlite:///{root}/engine.db", root
            return
        with server.fresh() as url:
            yield url, url, root


def _process(module: str, *arguments: str) -> Any:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def _postgres() -> Iterator[Any]:
    from tests.support.postgres import PostgresServer

    server = PostgresServer(PostgresServer.new_home())
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _others(place: Path, server: Any, count: int) -> dict[str, Any]:
    """Celery with Redis and procrastinate, in a throw-away environment."""
    from bench.engine_others import celery, procrastinate

    found: dict[str, Any] = {}
    for name, measure in (("celery_redis", celery), ("procrastinate_postgresql", procrastinate)):
        try:
            with server.fresh() as url:
                found[name] = measure(place, url, count)
        except (OSError, subprocess.SubprocessError, RuntimeError) as error:
            found[name] = {"not available": str(error)[-300:]}
    return found
