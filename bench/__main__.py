"""The registry of benchmarks and the command that runs them."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

from proctor import __version__

__all__ = ["BENCHMARKS", "calibrate", "main"]

# name -> (module, function, how much work, what it measures)
BENCHMARKS: dict[str, tuple[str, str, float, str]] = {
    "trace_group_commit": (
        "bench.trace",
        "group_commit",
        1.0,
        "64 writers sharing commits, or one commit per event",
    ),
    "trace_batch": ("bench.trace", "batch", 1.0, "one batch writer: redacted events per second"),
    "trace_live": ("bench.trace", "live", 1.0, "commit to cursor in another process, on both databases"),
    "redact": ("bench.redact", "run", 1.0, "redaction of text and of events, with both gates"),
    "status": ("bench.status", "run", 1.0, "`proctor status` on 10,000 tasks and 1,000,000 events"),
    "backup": ("bench.backup", "run", 5_000, "backup and restore against cp, restic and borg"),
    "policy": ("bench.policy", "run", 3, "one command line read and judged; the worst texts within the cap"),
    "engine": (
        "bench.engine",
        "run",
        1000,
        "no-op tasks against bare DBOS, idle start, takeover, parked questions",
    ),
    "sandbox": ("bench.sandbox", "run", 50, "what confinement adds to a short command"),
    "gate": ("bench.gate", "run", 1.0, "gate and durable trace around nothing, beside a LangGraph node"),
    "sockets": (
        "bench.sockets",
        "run",
        1.0,
        "WebSocket ping beside a bare echo, 500 idle connections, 100 viewers of 200 events/s",
    ),
    "proof": ("bench.proof", "run", 3_000, "what a proof costs beyond its commands, cold and warm"),
    "fixes": ("bench.proof", "fixes", 200, "one file of fixes judged side by side, each by itself"),
    "hollow": (
        "bench.hollow",
        "run",
        1.0,
        "hollow and honest changes: what is accepted, beside the usual gate",
    ),
}


def calibrate() -> dict[str, float]:
    """How fast this machine is at this moment, so that numbers of two runs can be compared."""
    began = time.perf_counter()
    total = 0
    for n in range(1_000_000):
        total += n & 7
    python = 1_000_000 / (time.perf_counter() - began)
    block = b"x" * 4096
    began = time.perf_counter()
    for _ in range(20_000):
        hashlib.sha256(block)
    sha = 20_000 * len(block) / (time.perf_counter() - began) / 1e6
    return {
        "python_loops_per_s": round(python),
        "sha256_mb_per_s": round(sha),
        "load_1min": os.getloadavg()[0],
    }


def main(argv: list[str] | None = None) -> int:
    """Run the named benchmarks (all without names) and print what they say as JSON."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of: " + ", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the work; numbers are rough")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    results: dict[str, Any] = {"machine": _machine(), "calibration_before": calibrate(), "benchmarks": {}}
    for name in options.names or BENCHMARKS:
        print(f"bench: {name}: {BENCHMARKS[name][3]} …", file=sys.stderr, flush=True)
        results["benchmarks"][name] = _run(name, 0.1 if options.quick else 1.0)
    results["calibration_after"] = calibrate()
    missed = [name for name, one in results["benchmarks"].items() if not one.get("met", one.get("ok", True))]
    results["missed"] = missed
    print(json.dumps(results, indent=2))
    return 0


def _run(name: str, scale: float) -> dict[str, Any]:
    module, function, amount, what = BENCHMARKS[name]
    run: Callable[[float], dict[str, Any]] = getattr(importlib.import_module(module), function)
    return {"what": what, **run(type(amount)(amount * scale))}


def _machine() -> dict[str, Any]:
    return {
        "proctor": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cpus": os.cpu_count(),
        "system": platform.platform(),
    }


if __name__ == "__main__":
    sys.exit(main())
