"""Victims come from one fork server that has imported everything, so that hundreds of deaths take seconds, not minutes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

__all__ = ["spawn"]

# The server is started once per test process, by whichever kind of victim comes first: so it knows them all.
PRELOAD = [
    "tests.faults.gate_victim",
    "tests.faults.plan_victim",
    "tests.faults.victim",
    "proctor.engine.runtime",
]


def spawn(target: Callable[..., None], *args: Any) -> BaseProcess:
    """Start a process that does this."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=target, args=args)
    process.start()
    return process
