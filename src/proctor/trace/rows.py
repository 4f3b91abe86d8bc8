"""Between drafts, stored rows and events: the only place that knows the columns' order.

A draft becomes plain JSON, is redacted, capped and written as text; that very text is hashed and stored, and
the event handed back is made of it, so that a writer sees exactly what every reader will see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from pydantic_core import PydanticSerializationError, from_json, to_json

from proctor.protocol.errors import UsageError
from proctor.protocol.events import ActorKind, Draft, Event, EventKind, EventStatus

__all__ = ["COLUMNS", "MAX_DETAILS", "Prepared", "Redacts", "build", "decode", "prepare", "to_micros"]

MAX_DETAILS = 64 * 1024
# Cut before redaction only what is far too long, and then drop the cut edge: half a secret fits no rule.
_PRE_CUT, _EDGE = 2 * MAX_DETAILS, 8 * 1024
_DEPTH = 32
_GROUP = 3900  # characters the redactor looks at together; it takes up to 4096 at once
_ID_WIDTH, _NAME_WIDTH = 64, 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _DAY = 1_000_000, 86_400_000_000

COLUMNS = (
    *("seq", "trace_id", "trace_seq", "ts", "kind", "event", "status", "actor", "actor_name", "session_id"),
    *("task_id", "attempt", "tool_name", "duration_ms", "details", "hash"),
)


class Redacts(Protocol):
    """What the log asks of a redactor (the real one is `proctor.trace.redact.Redactor`)."""

    def text(self, s: str, /) -> str:
        """Return the text without secrets."""
        ...

    def value(self, v: Any, /) -> Any:
        """Return a deep copy whose strings are without secrets."""
        ...


class Prepared(NamedTuple):
    """A draft ready to be written: everything but its place and its hash."""

    trace_id: str
    columns: tuple[Any, ...]  # from ts to duration_ms
    raw: bytes  # the details as they are hashed and stored
    values: dict[str, Any]  # of the event to be

    @property
    def text(self) -> str:
        """The details as text."""
        return self.raw.decode()

    @property
    def details(self) -> dict[str, Any]:
        """The details as values."""
        found: dict[str, Any] = self.values["details"]
        return found


def prepare(drafts: Sequence[Draft], redactor: Redacts) -> list[Prepared]:
    """Redact and serialize drafts; the redactor looks at several at once, because most are clean."""
    done: list[Prepared] = []
    group: list[dict[str, Any]] = []
    raws: list[bytes] = []
    size = 0
    for draft in drafts:
        details, raw = _plain(draft.details)
        size += len(raw) or _GROUP
        if size > _GROUP and group:
            done += _finish_group(drafts[len(done) : len(done) + len(group)], group, raws, redactor)
            group, raws, size = [], [], len(raw) or _GROUP
        group.append(details)
        raws.append(raw)
    return done + _finish_group(drafts[len(done) :], group, raws, redactor)


def _finish_group(
    drafts: Sequence[Draft], group: list[dict[str, Any]], raws: list[bytes], redactor: Redacts
) -> list[Prepared]:
    if not drafts:
        return []
    names = list({name for draft in drafts for name in (draft.actor_name, draft.tool_name) if name})
    whole = [group, names]
    clean = redactor.value(whole)
    if clean is not whole:
        group, raws = clean[0], [b""] * len(raws)  # what was redacted is serialized anew
    shown = {name: _name(new) for name, new in zip(names, clean[1], strict=True)}
    return [_finish(*one, shown) for one in zip(drafts, group, raws, strict=True)]


def _finish(draft: Draft, details: dict[str, Any], raw: bytes, shown: dict[str, str]) -> Prepared:
    raw = raw or to_json(details)
    if len(raw) > MAX_DETAILS:
        details = _shrink(details)
        raw = to_json(details)
    moment, duration = draft.ts, draft.duration_ms
    if moment.tzinfo is not UTC:
        moment = _EPOCH + timedelta(microseconds=to_micros(moment))
    values = {
        "seq": 0,
        "trace_id": _identity(draft.trace_id),
        "trace_seq": 0,
        "ts": moment,
        "kind": draft.kind,
        "event": draft.event,
        "status": draft.status,
        "actor": draft.actor,
        "actor_name": draft.actor_name and shown[draft.actor_name],
        "session_id": draft.session_id and _identity(draft.session_id),
        "task_id": draft.task_id and _identity(draft.task_id),
        "attempt": draft.attempt if draft.attempt is None else _small(draft.attempt),
        "tool_name": draft.tool_name and shown[draft.tool_name],
        "duration_ms": None if duration is None or not math.isfinite(duration) else float(duration),
        "details": details,
        "hash": "",
    }
    columns = (
        to_micros(moment),
        draft.kind._value_,
        draft.event,
        draft.status._value_,
        draft.actor._value_,
        values["actor_name"],
        values["session_id"],
        values["task_id"],
        values["attempt"],
        values["tool_name"],
        values["duration_ms"],
    )
    return Prepared(draft.trace_id, columns, raw, values)


def _plain(details: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Make plain JSON values first: what the redactor does not see as a string it cannot clean.

    Also returns their text, empty when it must be made anew.
    """
    try:
        text = to_json(details if type(details) is dict else dict(details), inf_nan_mode="strings")
        if len(text) <= _PRE_CUT:
            return from_json(text), text
    except (PydanticSerializationError, ValueError, RecursionError):
        pass  # bytes, lone surrogates, unknown objects, cycles: the careful way below takes them all
    return _careful(dict(details), 0), b""


def _careful(value: Any, depth: int) -> Any:
    if depth > _DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {_clean(str(key)): _careful(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_careful(item, depth + 1) for item in value]
    if isinstance(value, bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _clean(bytes(value[:_PRE_CUT]).decode("utf-8", "replace"))
    if isinstance(value, datetime):
        return value.isoformat()
    return _clean(str(value))


def _clean(text: str) -> str:
    """Text that every database and JSON reader takes; what is far too long loses its end and the edge."""
    whole = text.encode("utf-8", "backslashreplace").decode()
    return whole if len(whole) <= _PRE_CUT else whole[: _PRE_CUT - _EDGE] + "…"


def _shrink(details: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the small entries whole and cut the large ones to their share; say so."""
    sizes = sorted((len(to_json(value)) + len(to_json(key)) + 2, key) for key, value in details.items())
    room, kept = MAX_DETAILS - 64, {}
    for left, (size, key) in zip(range(len(sizes), 0, -1), sizes, strict=True):
        share = room // left
        if size > share and len(key) + 16 > share:
            break  # only a flood of keys comes here; the rest of them is dropped
        kept[key] = details[key] if size <= share else _cut(details[key], share - len(to_json(key)) - 8)
        room -= len(to_json(key)) + len(to_json(kept[key])) + 2
    return {**{key: kept[key] for key in details if key in kept}, "truncated": True}


def _cut(value: Any, room: int) -> str:
    text = value if isinstance(value, str) else to_json(value).decode()
    while text and len(to_json(text)) > room:
        over = len(to_json(text)) - room
        text = text[: max(0, len(text) - max(1, over // 4))]
    return text


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970; refuses a moment without a zone."""
    if moment.tzinfo is None:
        raise UsageError(message="An event's time needs a zone; use datetime.now(UTC).")
    delta = moment - _EPOCH
    return delta.days * _DAY + delta.seconds * _SECOND + delta.microseconds


@lru_cache(maxsize=4096)
def _identity(value: str) -> str:
    """An identifier is taken whole or not at all: cut, it would name another thing."""
    if 0 < len(value) <= _ID_WIDTH and value.isascii() and value.isprintable():
        return value
    rule = f"use 1 to {_ID_WIDTH} printable ASCII characters"
    raise UsageError(message=f"The identifier {value[:80]!r} cannot stand in the trace; {rule}.")


def _name(value: str) -> str:
    if len(value) <= _NAME_WIDTH and value.isprintable():
        return value
    shown = "".join(c if c.isprintable() else "�" for c in value)
    return shown if len(shown) <= _NAME_WIDTH else shown[: _NAME_WIDTH - 1] + "…"


def _small(attempt: int) -> int:
    if 0 <= attempt < 1 << 31:
        return attempt
    raise UsageError(message=f"attempt {attempt} cannot stand in the trace; attempts count from 1.")


_KINDS = {kind.value: kind for kind in EventKind}
_STATUSES = {status.value: status for status in EventStatus}
_ACTORS = {actor.value: actor for actor in ActorKind}
_FIELDS = set(Event.model_fields)
_put = object.__setattr__


def decode(row: Sequence[Any]) -> Event:
    """Make the event of a stored row (COLUMNS' order)."""
    return build(
        {
            "seq": row[0],
            "trace_id": row[1],
            "trace_seq": row[2],
            "ts": _EPOCH + timedelta(microseconds=row[3]),
            "kind": _KINDS[row[4]],
            "event": row[5],
            "status": _STATUSES[row[6]],
            "actor": _ACTORS[row[7]],
            "actor_name": row[8],
            "session_id": row[9],
            "task_id": row[10],
            "attempt": row[11],
            "tool_name": row[12],
            "duration_ms": row[13],
            "details": from_json(row[14]),
            "hash": row[15].hex(),
        }
    )


def build(values: dict[str, Any]) -> Event:
    """Make an event without validating again what this module wrote: five times faster, same object."""
    event = Event.__new__(Event)
    _put(event, "__dict__", values)
    _put(event, "__pydantic_fields_set__", _FIELDS)  # shared: an event is frozen, and copies copy it
    _put(event, "__pydantic_extra__", None)
    _put(event, "__pydantic_private__", None)
    return event
