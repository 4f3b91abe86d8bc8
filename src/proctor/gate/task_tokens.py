"""The token of one attempt: whoever shows it is the agent of that attempt, and nobody more (law 8).

Made for every attempt, given to the agent's environment, kept only as a hash in the attempt's own row; it is void when the
attempt has ended or another process took it over. It opens tools. It answers no question and grants nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.humans import TASK_TOKEN
from proctor.protocol.errors import RefusedError
from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Actor, Call
from proctor.store.tables import attempts, task_queue

__all__ = [
    "VARIABLE",
    "Holder",
    "TaskTokenError",
    "find_holder",
    "hash_of",
    "held_call",
    "is_task_token",
    "new_token",
]

VARIABLE: Final = TASK_TOKEN
_SHAPE: Final = re.compile(r"ptask\.([!-~]{1,64})\.([0-9]{1,9})\.([A-Za-z0-9_-]{43})")
_BYTES: Final = 32


class TaskTokenError(RefusedError):
    """Refused: the token of the task in PROCTOR_TASK_TOKEN is {problem}. Only a running attempt has a valid one; without a
    task, start the agent from your own terminal.
    """

    code = "task_token"


@dataclass(frozen=True, slots=True)
class Holder:
    """The agent of one running attempt, and where it works."""

    task_id: str
    attempt: int
    agent: str
    trace_id: str
    session_id: str | None
    worktree: Path | None
    """Where its calls act."""
    workspace: Path | None
    """The user's own workspace, whose settings and policy hold; None: a task without a repository."""


def new_token(task_id: str, attempt: int) -> str:
    """Make the token of an attempt; it names its row, so that finding it needs no search."""
    return f"ptask.{task_id}.{attempt}.{secrets.token_urlsafe(_BYTES)}"


def is_task_token(text: str) -> bool:
    """Whether this is meant to be a task's token, valid or not."""
    return text.startswith("ptask.")


def hash_of(token: str) -> str:
    """What is kept of a token: 256 random bits need no slow hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


_ROW: Final = (
    sa.select(
        attempts.c.token_hash,
        attempts.c.agent_name,
        attempts.c.worktree,
        attempts.c.ended_at,
        task_queue.c.trace_id,
        task_queue.c.session_id,
        task_queue.c.workspace,
    )
    .join(task_queue, task_queue.c.task_id == attempts.c.task_id)
    .where(
        attempts.c.task_id == sa.bindparam("b_task"),
        attempts.c.attempt == sa.bindparam("b_attempt"),
        task_queue.c.attempt == attempts.c.attempt,
    )
)


def find_holder(connection: sa.Connection, token: str) -> Holder | None:
    """Who holds this token; None when nobody ever did or the attempt has ended."""
    shape = _SHAPE.fullmatch(token)
    if shape is None:
        return None
    wanted = {"b_task": shape[1], "b_attempt": int(shape[2])}
    row = connection.execute(_ROW, wanted).mappings().first()
    kept = str(row["token_hash"] or "") if row is not None else ""
    # Compared whatever was found, so that nobody learns from the time it takes whether there is such a task.
    same = hmac.compare_digest(kept or "-", hash_of(token))
    if row is None or not same or row["ended_at"] is not None:
        return None
    return _holder(wanted["b_task"], wanted["b_attempt"], row)


def _holder(task_id: str | int, attempt: str | int, row: Mapping[str, object] | sa.RowMapping) -> Holder:
    def place(name: str) -> Path | None:
        return None if row[name] is None else Path(str(row[name]))

    return Holder(
        task_id=str(task_id),
        attempt=int(attempt),
        agent=str(row["agent_name"]),
        trace_id=str(row["trace_id"] or task_id),
        session_id=None if row["session_id"] is None else str(row["session_id"]),
        worktree=place("worktree"),
        workspace=place("workspace"),
    )


def held_call(tool: str, inputs: Mapping[str, Any], holder: Holder, profile: str) -> Call:
    """A call of this agent: in its worktree and its task's trace and budget, by the rules of the user's own workspace."""
    if holder.worktree is None:
        raise TaskTokenError(problem="for an attempt that has no place to work yet")
    return Call(
        tool=tool,
        inputs=inputs,
        actor=Actor(ActorKind.AGENT, holder.agent),
        profile=profile,
        workspace=holder.worktree,
        worktree_of=holder.workspace,
        trace_id=holder.trace_id,
        session_id=holder.session_id,
        task_id=holder.task_id,
        attempt=holder.attempt,
    )
