"""Running one attempt in a test."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.agents.driver import AgentEvent, AttemptEnd, AttemptRequest, Driver, Limits, Run, run_attempt

__all__ = ["attempt", "request", "script"]


def script(*steps: Mapping[str, Any]) -> str:
    """Make a prompt that carries a script."""
    return f"Please do it.\nSCRIPT:{json.dumps({'steps': steps})}"


def request(place: Path, prompt: str, **changes: Any) -> AttemptRequest:
    """Make a request with its own directories below a place."""
    dirs = {name: place / name for name in ("worktree", "tmp", "state")}
    for path in dirs.values():
        path.mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {
        "task_id": "task_1",
        "attempt": 1,
        "prompt": prompt,
        "env": {"PATH": os.environ["PATH"], "HOME": str(place)},
        "limits": Limits(timeout_s=30, silence_s=20, grace_s=0.5),
        **dirs,
        **changes,
    }
    return AttemptRequest(**given)


async def attempt(driver: Driver, wanted: AttemptRequest) -> tuple[list[AgentEvent], AttemptEnd, Run]:
    """Run to the end; the events, the end and the run."""
    events: list[AgentEvent] = []
    runs: list[Run] = []

    async def sink(event: AgentEvent) -> None:
        events.append(event)

    async def started(run: Run) -> None:
        runs.append(run)

    end = await run_attempt(driver, wanted, sink, started)
    return events, end, runs[0]
