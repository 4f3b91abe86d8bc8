"""The user's supervisor and what it does with a task, looked at without starting a program for each look."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time

from proctor.config import Paths
from proctor.engine import client
from proctor.protocol.errors import SupervisorUnavailableError

__all__ = ["stop_supervisor", "supervisor_runs", "until_task"]


def _paths() -> Paths:
    return Paths.from_environ(dict(os.environ))


def stop_supervisor() -> None:
    """Stop the one of this HOME, if there is one, and wait until it has gone: on a busy machine longer than a user would."""
    for _ in range(3):
        with contextlib.suppress(SupervisorUnavailableError):
            client.stop(_paths())
            return
    client.stop(_paths())


def supervisor_runs() -> bool:
    """Whether one answers in this HOME."""
    return client.greet(_paths()) is not None


def until_task(task_id: str, *statuses: str, seconds: float = 100.0) -> str:
    """Wait until a task of this HOME has one of these; the row is read, because a command takes a second of computing."""
    deadline = time.monotonic() + seconds
    query = "SELECT status FROM task_queue WHERE task_id = ?"
    with contextlib.closing(
        sqlite3.connect(f"file:{_paths().proctor_db}?mode=ro", uri=True, timeout=30)
    ) as database:
        while (found := database.execute(query, (task_id,)).fetchone()[0]) not in statuses:
            assert time.monotonic() < deadline, f"{task_id} is still {found}"
            time.sleep(0.05)
    return str(found)
