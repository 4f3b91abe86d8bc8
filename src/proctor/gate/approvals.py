"""Approvals: questions to a person as rows, and the one way to answer them.

Invariants: an answer is bound to exactly what was shown and opens one call once; when that changes it is void; nobody
but a recognised person answers; after 24 hours a question is expired, which is neither a yes nor a no. All functions
work inside the caller's transaction and give the events that belong to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.grants import Scope, add_grants
from proctor.gate.humans import Human
from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.events import ActorKind, Draft, EventKind, EventStatus
from proctor.protocol.ids import new_id
from proctor.protocol.ports import Clock
from proctor.store.database import Database
from proctor.store.tables import approvals
from proctor.trace.wake import watcher_of

__all__ = [
    "LIFE",
    "Answered",
    "Question",
    "Standing",
    "Waiter",
    "answer",
    "answer_approval",
    "ask",
    "expire_approvals",
    "find_standing",
    "pending",
    "use_approval",
]

LIFE: Final = timedelta(hours=24)
BATCH: Final = 500
MAX_TEXT: Final = 4000
_BREATH: Final = 0.05  # between two looks of one waiter, however much is written meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a person is asked."""

    trace_id: str
    session_id: str | None
    task_id: str | None
    attempt: int | None
    call_id: str
    asked_by: str
    tool: str
    action: str
    inputs: Mapping[str, Any]
    reasoning: str
    risk: str
    consequences: Sequence[str]
    content_hash: str
    bound_to: str
    classes: Sequence[str]
    irreversible: bool
    profile: str
    workspace: str | None
    snapshot_id: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How a question stands for a call that needs it."""

    approval_id: str
    status: str
    answered_by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What an answer did."""

    approval_id: str
    approved: bool
    equal: tuple[str, ...] = ()
    """Further questions that were the same and got the same answer."""
    grants: tuple[str, ...] = field(default=())


# ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────


def find_standing(
    connection: sa.Connection, question: Question, now: datetime
) -> tuple[Standing | None, list[Draft]]:
    """Find the question of this very call, if it was asked before; questions about another state become void.

    Within a task (or a request without one) a yes opens one call, and a no stays a no.
    """
    rows = connection.execute(
        approvals.select()
        .where(approvals.c.content_hash == question.content_hash, _same_run(question))
        .where(approvals.c.status.in_(["pending", "approved", "rejected"]), approvals.c.used_at.is_(None))
        .order_by(approvals.c.requested_at)
    ).mappings()
    standing, drafts = None, []
    for row in rows.all():
        if row["bound_to"] != question.bound_to:
            drafts.append(_void(connection, row))
        elif row["status"] != "pending" or row["expires_at"] > now:
            standing = Standing(row["approval_id"], row["status"], row["answered_by"], row["answer_reason"])
    return standing, drafts


def _same_run(question: Question) -> sa.ColumnElement[bool]:
    if question.task_id is not None:
        return approvals.c.task_id == question.task_id
    return sa.and_(approvals.c.task_id.is_(None), approvals.c.trace_id == question.trace_id)


def _void(connection: sa.Connection, row: Mapping[Any, Any]) -> Draft:
    same = approvals.c.approval_id == row["approval_id"]
    connection.execute(approvals.update().where(same).values(status="void"))
    details = {
        "what": "approval void",
        "approval_id": row["approval_id"],
        "why": "what was shown has changed",
    }
    return Draft(
        trace_id=row["trace_id"],
        event="note",
        status=EventStatus.WARNING,
        task_id=row["task_id"],
        session_id=row["session_id"],
        tool_name=row["tool_name"],
        details=details,
    )


def ask(connection: sa.Connection, question: Question, now: datetime) -> tuple[str, list[Draft]]:
    """Write the question down."""
    approval_id = new_id("appr")
    values = asdict(question)
    del values["tool"], values["risk"], values["attempt"]
    connection.execute(
        approvals.insert().values(
            **{**values, "inputs": dict(question.inputs), "consequences": list(question.consequences)},
            approval_id=approval_id,
            tool_name=question.tool,
            risk_level=question.risk,
            requested_at=now,
            expires_at=now + LIFE,
        )
    )
    details = {
        "approval_id": approval_id,
        "call_id": question.call_id,
        "action": question.action,
        "risk_level": question.risk,
        "consequences": list(question.consequences)[:20],
        "asked_by": question.asked_by,
        "expires_at": (now + LIFE).isoformat(),
    }
    draft = Draft(
        trace_id=question.trace_id,
        event="approval_requested",
        kind=EventKind.CANONICAL,
        status=EventStatus.PENDING,
        session_id=question.session_id,
        task_id=question.task_id,
        attempt=question.attempt,
        tool_name=question.tool,
        details=details,
    )
    return approval_id, [draft]


def use_approval(
    connection: sa.Connection, approval_id: str, *, bound_to: str, now: datetime
) -> Mapping[str, Any] | None:
    """Spend a yes on one call, in the transaction that begins it; None when there is nothing to spend."""
    mine = sa.and_(
        approvals.c.approval_id == approval_id,
        approvals.c.status == "approved",
        approvals.c.bound_to == bound_to,
        approvals.c.used_at.is_(None),
    )
    if connection.execute(approvals.update().where(mine).values(used_at=now)).rowcount != 1:
        return None
    found = connection.execute(approvals.select().where(approvals.c.approval_id == approval_id)).mappings()
    return dict(found.one())


# ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────────


def answer(
    connection: sa.Connection,
    approval_id: str,
    *,
    approved: bool,
    by: Human,
    reason: str = "",
    grant: Scope | None = None,
    now: datetime,
) -> tuple[Answered, list[Draft]]:
    """Write a person's answer, to this question and to every open one that is equal to it."""
    row = (
        connection.execute(approvals.select().where(approvals.c.approval_id == approval_id))
        .mappings()
        .first()
    )
    if row is None:
        raise NotFoundError(kind="approval", name=approval_id[:80], cure="`proctor inbox` lists them.")
    if grant is not None and (not approved or row["irreversible"] or not row["classes"]):
        message = "This question can only be answered for this one call, not for a whole class of acts."
        raise UsageError(message=message)
    done, drafts = answer_approval(
        connection, approval_id, approved=approved, by=by.name, reason=reason, now=now
    )
    if not done:
        message = f"{approval_id} cannot be answered any more: it is {_state(row, now)}."
        raise UsageError(message=message)
    equal = _equal(connection, row, now)
    for other in equal:
        _, more = answer_approval(connection, other, approved=approved, by=by.name, reason=reason, now=now)
        drafts += more
    given = add_grants(connection, dict(row), grant, by=by.name, reason=reason, now=now) if grant else []
    return Answered(approval_id, approved, tuple(equal), tuple(given)), drafts


def _state(row: Mapping[Any, Any], now: datetime) -> str:
    return "expired" if row["status"] == "pending" and row["expires_at"] <= now else str(row["status"])


def _equal(connection: sa.Connection, row: Mapping[Any, Any], now: datetime) -> list[str]:
    """Open questions about exactly the same act on the same ground."""
    if not row["content_hash"]:
        return []  # an agent's own question: nobody compared the grounds
    same = sa.and_(
        approvals.c.bound_to == row["bound_to"],
        approvals.c.content_hash == row["content_hash"],
        approvals.c.tool_name == row["tool_name"],
        approvals.c.status == "pending",
        approvals.c.expires_at > now,
    )
    query = sa.select(approvals.c.approval_id).where(same).order_by(approvals.c.requested_at).limit(BATCH)
    return list(connection.execute(query).scalars())


def answer_approval(
    connection: sa.Connection, approval_id: str, *, approved: bool, by: str, reason: str, now: datetime
) -> tuple[bool, list[Draft]]:
    """Write the answer to one question; False when it was answered, void or expired before.

    Whoever calls this has established that `by` is a person; `answer` does.
    """
    open_ = sa.and_(
        approvals.c.approval_id == approval_id, approvals.c.status == "pending", approvals.c.expires_at > now
    )
    values = {
        "status": "approved" if approved else "rejected",
        "answered_by": by[:100],
        "answered_at": now,
        "answer_reason": reason[:MAX_TEXT],
    }
    if connection.execute(approvals.update().where(open_).values(values)).rowcount != 1:
        return False, []
    row = (
        connection.execute(approvals.select().where(approvals.c.approval_id == approval_id)).mappings().one()
    )
    draft = Draft(
        trace_id=row["trace_id"],
        event="approval_received",
        kind=EventKind.CANONICAL,
        status=EventStatus.SUCCESS if approved else EventStatus.WARNING,
        actor=ActorKind.HUMAN,
        actor_name=by,
        task_id=row["task_id"],
        session_id=row["session_id"],
        tool_name=row["tool_name"],
        details={"approval_id": approval_id, "approved": approved, "reason": reason},
    )
    return True, [draft]


def expire_approvals(connection: sa.Connection, now: datetime) -> tuple[int, list[Draft]]:
    """Mark what nobody answered in time; it is neither denied nor run, it waits for a person."""
    late = sa.and_(approvals.c.status == "pending", approvals.c.expires_at <= now)
    rows = connection.execute(approvals.select().where(late).limit(BATCH)).mappings().all()
    if not rows:
        return 0, []
    ids = [row["approval_id"] for row in rows]
    connection.execute(approvals.update().where(approvals.c.approval_id.in_(ids)).values(status="timeout"))
    drafts = [
        Draft(
            trace_id=row["trace_id"],
            event="approval_timeout",
            kind=EventKind.CANONICAL,
            status=EventStatus.WARNING,
            task_id=row["task_id"],
            session_id=row["session_id"],
            tool_name=row["tool_name"],
            details={"approval_id": row["approval_id"]},
        )
        for row in rows
    ]
    return len(rows), drafts


def pending(connection: sa.Connection, now: datetime, *, limit: int = BATCH) -> list[Mapping[str, Any]]:
    """Open questions, the most urgent first: what ends soonest."""
    open_ = sa.and_(approvals.c.status == "pending", approvals.c.expires_at > now)
    query = (
        approvals.select().where(open_).order_by(approvals.c.expires_at, approvals.c.approval_id).limit(limit)
    )
    return [dict(row) for row in connection.execute(query).mappings()]


class Waiter:
    """Waits for answers without polling: the trace's own wake-up says when to look."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def wait(self, approval_id: str, seconds: float) -> str:
        """How the question stands: at once when it is answered, `pending` when the time is over."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        watcher = watcher_of(self._database)

        def ring() -> None:
            loop.call_soon_threadsafe(woken.set)

        status = await asyncio.to_thread(self.status, approval_id)
        until = loop.time() + seconds
        with watcher.subscribed(), watcher.calling(ring):
            while status == "pending" and loop.time() < until:
                status = await asyncio.to_thread(self.status, approval_id)
                if status == "pending":
                    await _next(woken, until - loop.time())
        return status

    def status(self, approval_id: str) -> str:
        """How the question stands now."""
        query = sa.select(approvals.c.status, approvals.c.expires_at)
        with self._database.read() as connection:
            row = connection.execute(query.where(approvals.c.approval_id == approval_id)).first()
        if row is None:
            return "void"
        late = row.status == "pending" and row.expires_at <= self._clock.now()
        return "timeout" if late else str(row.status)


async def _next(woken: asyncio.Event, seconds: float) -> None:
    """Until something was written, or the time is over."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await asyncio.sleep(_BREATH)
            await woken.wait()
    except TimeoutError:
        return
    woken.clear()
