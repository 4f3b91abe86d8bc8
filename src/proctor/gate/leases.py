"""Leases: a call's share of the budget tree, held from permit to end, on every node of its path at once.

Invariants: no limit is ever passed by what is held and used together; what is settled or reaped is so once; a call that
failed or whose holder died is charged. All functions work inside the caller's transaction: rows are locked in one order,
then one conditional UPDATE takes all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.budget_rows import (
    Rows,
    charge,
    charge_step,
    close_lease,
    close_step,
    find_lease,
    insert_lease,
    lease_step,
    lock_buckets,
    lock_root,
    mark,
    mend_rows,
    read_rows,
    take,
    take_freely_step,
    take_step,
)
from proctor.gate.limits import AMOUNTS, TOTAL, WARN_AT, Node, domain_bucket, tool_bucket
from proctor.protocol.errors import RefusedError
from proctor.protocol.ids import new_id
from proctor.protocol.tools import Usage
from proctor.store.lane import Step
from proctor.store.tables import budget_nodes, leases

__all__ = [
    "BudgetExceededError",
    "Held",
    "Holding",
    "Passed",
    "Wish",
    "check",
    "open_leases",
    "reap",
    "reserve",
    "reserve_steps",
    "settle",
    "settle_steps",
    "settled_lines",
]

BATCH: Final = 500
LEAST_MILLIS: Final = 1000  # a call that could not even run this long is not begun
GRACE: Final = timedelta(seconds=30)
_OVER: Final = 4  # bits from here on: overrun was told
_WORDS: Final = {"tokens": "tokens", "micro_usd": "money", "millis": "seconds"}


class BudgetExceededError(RefusedError):
    """Refused: {reason} ({used} of {limit} at {node} are taken). Raise the limit in proctor.toml or the profile, or
    end what holds it; `proctor cost` shows what was used.
    """

    code = "budget_exceeded"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a call asks of the budget."""

    domain: str
    tool: str
    usage: Usage = field(default_factory=Usage)
    millis: int = 0

    @property
    def buckets(self) -> tuple[str, str, str]:
        """The rows it counts in, at every node."""
        return TOTAL, domain_bucket(self.domain), tool_bucket(self.tool)

    @property
    def asks(self) -> dict[str, int]:
        """The amounts, an unknown price as nothing: where money is limited it was refused before."""
        usage = self.usage
        return {"calls": 1, "tokens": usage.tokens, "micro_usd": usage.micro_usd or 0, "millis": self.millis}


@dataclass(frozen=True, slots=True)
class Passed:
    """A line that was reached: a warning, or a limit that was overrun by what a call really used."""

    node_id: str
    bucket: str
    amount: str
    used: int
    limit: int

    @property
    def over(self) -> bool:
        """Whether more was used than there was; only what a call really used can do that."""
        return self.used > self.limit

    @property
    def reason(self) -> str:
        """Which limit, in the seeds' words."""
        return f"budget_exceeded:{_scope(self.bucket, self.amount)}"

    def details(self) -> dict[str, Any]:
        """For the event."""
        percent = round(100 * self.used / self.limit, 1) if self.limit else 100.0
        scope = _scope(self.bucket, self.amount)
        return {
            "scope": scope,
            "node": self.node_id,
            "used": self.used,
            "limit": self.limit,
            "percentage": percent,
        }


@dataclass(frozen=True, slots=True)
class Holding:
    """Who is to hold a lease, for which call, from when and how long."""

    call_id: str
    holder: str
    now: datetime
    seconds: float
    task_id: str | None = None
    attempt: int | None = None

    def lease(self, ids: Sequence[str], wish: Wish) -> dict[str, Any]:
        """The row of a new lease on these buckets, which stand in order."""
        return {
            "lease_id": new_id("lease"),
            "call_id": self.call_id,
            "buckets": ids,
            "tokens": wish.usage.tokens,
            "micro_usd": wish.usage.micro_usd,
            "plan_micro_usd": wish.usage.plan_micro_usd,
            "millis": wish.millis,
            "holder": self.holder,
            "task_id": self.task_id,
            "attempt": self.attempt,
            "created_at": self.now,
            "expires_at": self.now + timedelta(seconds=self.seconds) + GRACE,
        }


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that was granted."""

    lease: Mapping[str, Any]
    warnings: tuple[Passed, ...]
    limited: bool = True
    """Whether tokens, money or time are limited anywhere on its path."""

    @property
    def lease_id(self) -> str:
        """Its name."""
        return str(self.lease["lease_id"])

    @property
    def millis(self) -> int:
        """How long the call may take."""
        return int(self.lease["millis"])


def _scope(bucket: str, amount: str) -> str:
    if amount != "calls":
        return _WORDS[amount]
    return bucket or "total"


def check(connection: sa.Connection, path: Sequence[Node], wish: Wish) -> BudgetExceededError | None:
    """Say what would be refused, without taking anything: asked before a person is."""
    wanted = _wanted(path, wish)
    rows = read_rows(connection, [bucket_id for bucket_id, _, _ in wanted], lock=False)
    return _refusal(wanted, wish, rows)


def reserve(
    connection: sa.Connection,
    path: Sequence[Node],
    wish: Wish,
    *,
    call_id: str,
    holder: str,
    now: datetime,
    seconds: float,
    task_id: str | None = None,
    attempt: int | None = None,
) -> Held:
    """Take a share at every node of the path (parents first), or raise and take nothing."""
    lock_root(connection, path[0])
    wanted = _wanted(path, wish)
    ids = [bucket_id for bucket_id, _, _ in wanted]
    rows = read_rows(connection, ids, lock=True)
    if mend_rows(connection, path, wanted, rows):
        rows = read_rows(connection, ids, lock=True)
    refusal = _refusal(wanted, wish, rows)
    if refusal is not None:
        raise refusal
    wish = replace(wish, millis=_granted_millis(path, wish, rows))
    if not take(connection, ids, wish.asks):
        facts = {"used": "all", "limit": "what there was", "node": "this path"}
        raise BudgetExceededError(reason="budget_exceeded:total", **facts)
    by = Holding(call_id, holder, now, seconds, task_id, attempt)
    lease = by.lease(sorted(ids), wish)
    insert_lease(connection, lease)
    limited = any(rows[one][f"limit_{amount}"] is not None for one in ids for amount in AMOUNTS[1:])
    return Held(lease, _call_warnings(connection, wanted, rows), limited)


def reserve_steps(
    dialect: str, path: Sequence[Node], wish: Wish, by: Holding, *, seen: bool = False
) -> tuple[list[Step], Held] | None:
    """The same for the quick lane, where no limit is near; None when one stands in the way of even the first call.

    `seen`: the path's rows are there as far as is known; if they are not, or not as the settings say, the steps do not fit.
    """
    limited = [node for node in path if not node.limits.unlimited]
    if seen and not limited:
        ids, taking = _free(dialect, tuple([node.node_id for node in path]), wish)
    else:
        wanted = _wanted(path, wish)
        ids = sorted([bucket_id for bucket_id, _, _ in wanted])
        warn_at = min((node.limits.warn_at for node in limited), default=WARN_AT)
        if limited and _tight(wanted, wish, warn_at):
            return None
        taking = take_step(dialect, path, wanted, wish.asks, warn_at)
    lease = by.lease(ids, wish)
    watched = any(node.limits.of(TOTAL, amount) is not None for node in limited for amount in AMOUNTS[1:])
    return [taking, lease_step(dialect, lease)], Held(lease, (), watched)


@lru_cache(maxsize=512)  # of a run's calls to one tool only the first is any different
def _free(dialect: str, nodes: tuple[str, ...], wish: Wish) -> tuple[list[str], Step]:
    """Rows without a limit that are there: which, and the step that takes from them."""
    ids = [Node(name, "").bucket_id(bucket) for name in nodes for bucket in wish.buckets]
    return sorted(ids), take_freely_step(dialect, ids, wish.asks)


def _tight(wanted: Sequence[tuple[str, Node, str]], wish: Wish, warn_at: int) -> bool:
    """Whether the first call would be refused, cut short or told of."""
    if _refusal(wanted, wish, {}, least=wish.millis) is not None:
        return True
    return any(_near(1, node.limits.of(bucket, "calls"), warn_at) for _, node, bucket in wanted)


def settle(
    connection: sa.Connection,
    held: Held | str,
    used: Usage,
    *,
    millis: int,
    now: datetime,
    outcome: str = "settled",
) -> tuple[bool, tuple[Passed, ...]]:
    """Turn what was held into what was used; False when that was done before. Tells what lines were reached."""
    lease_id = held if isinstance(held, str) else held.lease_id
    if not close_lease(connection, lease_id, now=now, outcome=outcome):
        return False, ()
    lease = find_lease(connection, lease_id) or {} if isinstance(held, str) else held.lease
    ids: list[str] = lease["buckets"]
    lock_buckets(connection, ids)
    charge(connection, ids, _charged(lease, used, millis))
    limited = isinstance(held, str) or held.limited
    return True, settled_lines(connection, ids) if limited else ()


def settle_steps(dialect: str, held: Held, used: Usage, *, millis: int, now: datetime) -> list[Step]:
    """The same for the quick lane, where no line is reached."""
    binds = _charged(held.lease, used, millis)
    return [
        charge_step(dialect, held.lease["buckets"], binds, limited=held.limited),
        close_step(dialect, held.lease_id, now=now, outcome="settled"),
    ]


def _charged(lease: Mapping[str, Any], used: Usage, millis: int) -> dict[str, int]:
    """What goes from held to used."""
    return {
        "ask_calls": 1,
        "ask_tokens": lease["tokens"],
        "ask_micro_usd": lease["micro_usd"] or 0,
        "ask_millis": lease["millis"],
        "spent_calls": 1,
        "spent_tokens": used.tokens,
        "spent_micro_usd": used.micro_usd or 0,
        "spent_millis": millis,
        "spent_plan": used.plan_micro_usd,
        "unpriced": int(used.micro_usd is None),
    }


def open_leases(connection: sa.Connection, now: datetime, *, limit: int = BATCH) -> list[Mapping[str, Any]]:
    """Leases nobody has settled yet, the oldest end first."""
    query = leases.select().where(leases.c.settled_at.is_(None)).order_by(leases.c.expires_at).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


def reap(connection: sa.Connection, lease_ids: Iterable[str], *, now: datetime) -> list[str]:
    """Charge what the dead held, whole, because nobody knows how far they came; idempotent."""
    done = []
    for lease_id in sorted(lease_ids):
        row = find_lease(connection, lease_id)
        if row is None:
            continue
        used = Usage(row["tokens"], row["micro_usd"], row["plan_micro_usd"])
        settled, _ = settle(connection, lease_id, used, millis=row["millis"], now=now, outcome="reaped")
        done += [lease_id] if settled else []
    return done


# ── checking ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _wanted(path: Sequence[Node], wish: Wish) -> list[tuple[str, Node, str]]:
    return [(node.bucket_id(bucket), node, bucket) for node in path for bucket in wish.buckets]


def _asked(wish: Wish, bucket: str, amount: str, least: int) -> int:
    if amount == "calls":
        return 1
    if bucket != TOTAL:
        return 0
    return {"tokens": wish.usage.tokens, "micro_usd": wish.usage.micro_usd or 0, "millis": least}[amount]


def _refusal(
    wanted: Sequence[tuple[str, Node, str]], wish: Wish, rows: Rows, least: int = LEAST_MILLIS
) -> BudgetExceededError | None:
    """The first limit that stands in the way, total before domain before tool, parents first."""
    least = min(wish.millis, least)
    for bucket_id, node, bucket in wanted:
        row = rows.get(bucket_id, {})
        for amount in AMOUNTS:
            limit = node.limits.of(bucket, amount)
            if limit is None:
                continue
            taken = row.get(f"used_{amount}", 0) + row.get(f"held_{amount}", 0)
            scope = _scope(bucket, amount)
            if amount == "micro_usd" and wish.usage.micro_usd is None:
                scope = "money:unknown_price"
            elif taken + _asked(wish, bucket, amount, least) <= limit:
                continue
            facts = {"used": taken, "limit": limit, "node": node.node_id}
            return BudgetExceededError(reason=f"budget_exceeded:{scope}", **facts)
    return None


def _granted_millis(path: Sequence[Node], wish: Wish, rows: Rows) -> int:
    """As much time as is wanted and left everywhere; the call's own deadline follows from it."""
    left = [wish.millis]
    for node in path:
        limit, row = node.limits.millis, rows[node.bucket_id(TOTAL)]
        if limit is not None:
            left.append(limit - row["used_millis"] - row["held_millis"])
    return max(0, min(left))


# ── warnings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _call_warnings(
    connection: sa.Connection, wanted: Sequence[tuple[str, Node, str]], rows: Rows
) -> tuple[Passed, ...]:
    """Limits of calls that this one brings to 80 percent, each told once."""
    found = []
    for bucket_id, node, bucket in wanted:
        row, limit = rows[bucket_id], node.limits.of(bucket, "calls")
        after = row["used_calls"] + row["held_calls"] + 1
        if _near(after, limit, node.limits.warn_at) and not row["warned"] & 1:
            found.append(Passed(node.node_id, bucket, "calls", after, limit or 0))
            mark(connection, bucket_id, 1)
    return tuple(found)


def settled_lines(connection: sa.Connection, bucket_ids: Sequence[str]) -> tuple[Passed, ...]:
    """Limits of tokens, money and time that came to 80 percent or were overrun by what was really used."""
    total = sa.and_(budget_nodes.c.bucket_id.in_(bucket_ids), budget_nodes.c.bucket == TOTAL)
    found = []
    for row in connection.execute(budget_nodes.select().where(total).order_by("bucket_id")).mappings():
        for place, amount in enumerate(AMOUNTS[1:], start=1):
            used, limit = row[f"used_{amount}"], row[f"limit_{amount}"]
            over = limit is not None and used > limit
            bit = 1 << (place + _OVER if over else place)
            if (over or _near(used, limit)) and not row["warned"] & bit:
                found.append(Passed(row["node_id"], TOTAL, amount, used, limit))
                mark(connection, row["bucket_id"], bit)
    return tuple(found)


def _near(used: int, limit: int | None, warn_at: int = WARN_AT) -> bool:
    return limit is not None and limit > 0 and used * 100 >= limit * warn_at
