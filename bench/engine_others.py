"""Celery with Redis and procrastinate with PostgreSQL on the same machine, from a throw-away environment.

Not equal guarantees: Celery's Redis is not fsynced per task, neither has durable steps, events or history.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

__all__ = ["celery", "procrastinate"]

HERE = Path(__file__).parents[1] / ".dev" / "bench-others"

CELERY = """
import json, os, subprocess, sys, time
from celery import Celery
address, count = os.environ["BENCH_REDIS"], int(os.environ["BENCH_COUNT"])
app = Celery("noop", broker=address, backend=address)
app.conf.task_acks_late = True
@app.task(name="noop")
def noop(n):
    return "done"
if __name__ == "__main__":
    began = time.perf_counter()
    results = [noop.delay(n) for n in range(count)]
    added = time.perf_counter() - began
    worker = subprocess.Popen([sys.executable, "-m", "celery", "-A", "bench_celery:app", "worker", "-c", "2", "-l", "ERROR",
                               "--without-gossip", "--without-mingle"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        results[0].get(timeout=60)
        began = time.perf_counter()
        for one in results:
            one.get(timeout=120)
        rate = (count - 1) / (time.perf_counter() - began)
        print(json.dumps({"per_s": round(rate, 1), "added_per_s": round(count / added)}))
    finally:
        worker.terminate(); worker.wait(30)
"""

PROCRASTINATE = """
import asyncio, json, sys, time
import procrastinate
url, count = sys.argv[1], int(sys.argv[2])
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
done = 0
@app.task(name="noop")
async def noop(n):
    global done
    done += 1
async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        for n in range(count):
            await noop.defer_async(n=n)
        added = time.perf_counter() - began
        began = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=64, install_signal_handlers=False)
        rate = count / (time.perf_counter() - began)
        assert done == count
        print(json.dumps({"per_s": round(rate, 1), "added_per_s": round(count / added)}))
asyncio.run(main())
"""


def _python() -> Path:
    """The environment's interpreter; made once."""
    python = HERE / "bin" / "python"
    if not (HERE / "complete").exists():
        venv.create(HERE, with_pip=True, clear=True)
        wanted = ["celery[redis]==5.*", "procrastinate==3.*", "psycopg[binary,pool]"]
        _run([str(python), "-m", "pip", "install", "--quiet", *wanted], HERE, 300)
        (HERE / "complete").touch()
    return python


def _run(command: list[str], cwd: Path, seconds: float) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return done.stdout


def celery(place: Path, _url: str, count: int) -> dict[str, Any]:
    """Tasks per second with two worker processes; Redis with an append-only file synced every second."""
    server = shutil.which("redis-server")
    if server is None:
        raise RuntimeError("there is no redis-server on this machine; install it, for example with apt")
    python = _python()
    (place / "bench_celery.py").write_text(CELERY)
    address = place / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(address), "--dir", str(place), "--appendonly", "yes"]
    redis = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)
    try:
        words = [f"BENCH_REDIS=redis+socket://{address}", f"BENCH_COUNT={count}"]
        command = ["env", *words, str(python), "bench_celery.py"]
        found: dict[str, Any] = json.loads(_run(command, place, 300))
    finally:
        redis.terminate()
        redis.wait(30)
    return {**found, "durability": "append-only file, fsync every second; no steps, events or history"}


def procrastinate(place: Path, url: str, count: int) -> dict[str, Any]:
    """Tasks per second of one worker with 64 tasks at once."""
    python = _python()
    (place / "bench_procrastinate.py").write_text(PROCRASTINATE)
    command = [str(python), "bench_procrastinate.py", url, str(count)]
    found: dict[str, Any] = json.loads(_run(command, place, 300))
    return {
        **found,
        "durability": "the same PostgreSQL; a task is one unit, without steps, events or history",
    }


if __name__ == "__main__":
    sys.exit("run `python -m bench engine`")
