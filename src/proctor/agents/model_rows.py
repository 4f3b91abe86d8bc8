"""The rows of chats: who has one in hand, how it stands, and what was said. All inside the caller's transaction.

Invariants: one owner at a time, and every write names it, so a process that lost a chat changes nothing; a chat that
waits for a person is nobody's; one whose owner is gone is interrupted, whatever its state says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.holder import is_gone, this_process
from proctor.protocol.errors import NotFoundError, ProctorError, RefusedError, UsageError
from proctor.protocol.events import ActorKind, Draft, EventKind, EventStatus
from proctor.protocol.ids import new_id
from proctor.store.tables import approvals, chat_messages, chats

__all__ = [
    "MOST_MESSAGES",
    "Chat",
    "ChatBusyError",
    "ChatWaitsError",
    "LostChatError",
    "add_messages",
    "answered",
    "claim",
    "draft",
    "find",
    "forget",
    "insert",
    "let_go",
    "new_owner",
    "spent",
    "transcript",
    "update",
]

TEXT_CAP: Final = 20_000
TITLE_CAP: Final = 80
MOST_MESSAGES: Final = 5000
FORGET: Final = 500
GRACE: Final = timedelta(seconds=60)
_ours: Final[set[str]] = set()  # turns that run in this process now


class ChatBusyError(RefusedError):
    """Refused: chat {chat_id} is answering another message right now. Wait for its end, or open a new chat."""

    code = "chat_busy"


class ChatWaitsError(RefusedError):
    """Refused: chat {chat_id} waits for an answer of yours ({approvals}), and a new message would pass it over. Answer it
    (`proctor approve` or `proctor deny`, see `proctor inbox`); then the chat goes on, by itself or with
    `proctor chat --resume {chat_id}`.
    """

    code = "chat_waits"


class LostChatError(ProctorError):
    """Chat {chat_id} is in another process's hands now; what this one was doing with it has ended."""

    code = "lost_chat"


@dataclass(frozen=True, slots=True)
class Chat:
    """One conversation, as its row says."""

    chat_id: str
    agent_name: str
    title: str
    workspace: str | None
    profile: str
    trace_id: str
    task_id: str | None
    created_by: str
    state: str
    outcome: str | None
    turn: int
    owner: str | None
    owned_until: datetime | None
    waiting_for: tuple[str, ...]
    messages: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> Chat:
        """From a row."""
        values = {one.name: row[one.name] for one in fields(cls)}
        return cls(**{**values, "waiting_for": tuple(row["waiting_for"])})

    def stands(self, now: datetime) -> str:
        """How it really stands: a row that says `running` with nobody behind it is interrupted."""
        if self.state != "running":
            return self.state
        owner, until = self.owner or "", self.owned_until
        process = owner.partition("@")[2]
        left = process == this_process() and owner not in _ours
        late = until is None or until + GRACE <= now
        return "interrupted" if left or late or is_gone(process) else "running"


def new_owner() -> str:
    """A name for one turn in this process."""
    owner = f"{new_id('turn')}@{this_process()}"
    _ours.add(owner)
    return owner


def let_go(owner: str) -> None:
    """The turn of this name has ended; a row that still names it is nobody's."""
    _ours.discard(owner)


def insert(connection: sa.Connection, **values: Any) -> Chat:
    """Open a chat."""
    connection.execute(chats.insert().values(**values))
    return find(connection, values["chat_id"])


def find(connection: sa.Connection, chat_id: str) -> Chat:
    """The chat of that id, or the one whose id ends so."""
    own = connection.execute(chats.select().where(chats.c.chat_id == chat_id)).mappings().first()
    if own is not None:
        return Chat.of(own)
    ends = chats.c.chat_id.endswith(chat_id, autoescape=True)
    rows = (
        connection.execute(chats.select().where(ends).limit(2)).mappings().all() if len(chat_id) > 3 else []
    )
    if len(rows) != 1:
        raise NotFoundError(kind="chat", name=chat_id[:80], cure="See `proctor chat --list`.")
    return Chat.of(rows[0])


def answered(connection: sa.Connection, approval_ids: Sequence[str], now: datetime) -> bool:
    """Whether none of these questions is open any more."""
    open_ = sa.and_(
        approvals.c.approval_id.in_(approval_ids),
        approvals.c.status == "pending",
        approvals.c.expires_at > now,
    )
    return connection.execute(sa.select(approvals.c.approval_id).where(open_).limit(1)).first() is None


def claim(
    connection: sa.Connection,
    chat: Chat,
    owner: str,
    *,
    until: datetime,
    now: datetime,
    new_turn: bool,
    force: bool = False,
) -> str:
    """Take a chat in hand; gives how it stood. One conditional update admits one owner."""
    stood = chat.stands(now)
    if stood == "running" and not force:
        raise ChatBusyError(chat_id=chat.chat_id)
    if stood == "parked" and new_turn:
        told = ", ".join(chat.waiting_for) or "given, and not yet used"
        raise ChatWaitsError(chat_id=chat.chat_id, approvals=told)
    if new_turn and chat.messages >= MOST_MESSAGES:
        raise UsageError(message=f"Chat {chat.chat_id} has {chat.messages} messages; open a new one.")
    same = sa.and_(
        chats.c.chat_id == chat.chat_id,
        chats.c.state == chat.state,
        chats.c.owner.is_(None) if chat.owner is None else chats.c.owner == chat.owner,
    )
    values = {
        "state": "running",
        "owner": owner,
        "owned_until": until,
        "waiting_for": [],
        "outcome": None,
        "updated_at": now,
        "turn": chat.turn + (1 if new_turn else 0),
    }
    if connection.execute(chats.update().where(same).values(values)).rowcount != 1:
        raise ChatBusyError(chat_id=chat.chat_id)
    return stood


def update(connection: sa.Connection, chat_id: str, owner: str, values: Mapping[str, Any]) -> None:
    """Change a chat that is in our hands; raises when it is not any more."""
    mine = sa.and_(chats.c.chat_id == chat_id, chats.c.owner == owner)
    if connection.execute(chats.update().where(mine).values(dict(values))).rowcount != 1:
        raise LostChatError(chat_id=chat_id)


def add_messages(
    connection: sa.Connection, chat_id: str, turn: int, rows: Sequence[Mapping[str, Any]], now: datetime
) -> None:
    """Add to the transcript; texts are capped and say so."""
    if not rows:
        return
    query = sa.select(chats.c.messages).where(chats.c.chat_id == chat_id)
    before = int(connection.execute(query).scalar_one())
    for place, row in enumerate(rows, start=before + 1):
        text = str(row.get("text", "")).replace("\0", "�")  # PostgreSQL keeps no NUL
        cut = f"{text[:TEXT_CAP]}… (truncated: {len(text)} characters)" if len(text) > TEXT_CAP else text
        own = {"chat_id": chat_id, "seq": place, "turn": turn, "created_at": now}
        connection.execute(chat_messages.insert().values({"details": {}, **row, "text": cut, **own}))
    done = chats.update().where(chats.c.chat_id == chat_id)
    connection.execute(done.values(messages=before + len(rows)))


def transcript(connection: sa.Connection, chat_id: str, *, after: int, limit: int) -> list[dict[str, Any]]:
    """What was said, in order."""
    query = chat_messages.select().where(chat_messages.c.chat_id == chat_id, chat_messages.c.seq > after)
    return [
        dict(row) for row in connection.execute(query.order_by(chat_messages.c.seq).limit(limit)).mappings()
    ]


def forget(connection: sa.Connection, older_than: datetime) -> int:
    """Remove chats that nobody has touched since then, with what was said; none that is open."""
    old = sa.and_(chats.c.state == "idle", chats.c.updated_at < older_than)
    ids = list(connection.execute(sa.select(chats.c.chat_id).where(old).limit(FORGET)).scalars())
    if ids:
        connection.execute(chat_messages.delete().where(chat_messages.c.chat_id.in_(ids)))
        connection.execute(chats.delete().where(chats.c.chat_id.in_(ids), old))
    return len(ids)


def spent(
    connection: sa.Connection, chat_id: str, *, attempt: int | None = None
) -> tuple[int, int, int, bool]:
    """Tokens read and written, money in millionths, and whether all of it had a price."""
    c = chat_messages.c
    query = sa.select(
        sa.func.coalesce(sa.func.sum(c.input_tokens), 0),
        sa.func.coalesce(sa.func.sum(c.output_tokens), 0),
        sa.func.coalesce(sa.func.sum(c.micro_usd), 0),
        sa.func.count(),
        sa.func.count(c.micro_usd),
    ).where(c.chat_id == chat_id, c.role == "assistant")
    row = connection.execute(query if attempt is None else query.where(c.attempt == attempt)).one()
    return int(row[0]), int(row[1]), int(row[2]), bool(row[3] == row[4])


def draft(
    chat: Chat, event: str, status: EventStatus, details: Mapping[str, Any], *, actor: ActorKind, name: str
) -> Draft:
    """An event of a chat."""
    return Draft(
        trace_id=chat.trace_id,
        event=event,
        kind=EventKind.SYSTEM,
        status=status,
        actor=actor,
        actor_name=name,
        task_id=chat.task_id,
        details={"chat_id": chat.chat_id, **details},
    )
