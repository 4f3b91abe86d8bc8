"""Leases: a call's share of the budget tree, held from permit to end, on every node of its path at once.

Invariants: no limit is ever passed by what is held and used together; what is settled or reaped is so once; a call that
failed or whose holder died is charged. All functions work inside the caller's transaction: rows are locked in one order,
then one conditional UPDATE takes all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.limits import AMOUNTS, TOTAL, WARN_AT, Node, domain_bucket, tool_bucket
from proctor.protocol.errors import RefusedError
from proctor.protocol.ids import new_id
from proctor.protocol.tools import Usage
from proctor.store.tables import budget_nodes, leases

__all__ = [
    "BudgetExceededError",
    "Held",
    "Passed",
    "Wish",
    "check",
    "open_leases",
    "reap",
    "reserve",
    "settle",
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
class Held:
    """A lease that was granted."""

    lease_id: str
    millis: int
    warnings: tuple[Passed, ...]


def _scope(bucket: str, amount: str) -> str:
    if amount != "calls":
        return _WORDS[amount]
    return bucket or "total"


def check(connection: sa.Connection, path: Sequence[Node], wish: Wish) -> BudgetExceededError | None:
    """Say what would be refused, without taking anything: asked before a person is."""
    rows = _rows(connection, path, wish, lock=False)
    return _refusal(path, wish, rows)


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
    _lock_root(connection, path[0])
    rows = _rows(connection, path, wish, lock=True)
    if _mend_rows(connection, path, wish, rows):
        rows = _rows(connection, path, wish, lock=True)
    refusal = _refusal(path, wish, rows)
    if refusal is not None:
        raise refusal
    wish = replace(wish, millis=_granted_millis(path, wish, rows))
    _take(connection, wish, rows)
    lease_id = new_id("lease")
    connection.execute(
        leases.insert().values(
            lease_id=lease_id,
            call_id=call_id,
            buckets=sorted(rows),
            tokens=wish.usage.tokens,
            micro_usd=wish.usage.micro_usd,
            plan_micro_usd=wish.usage.plan_micro_usd,
            millis=wish.millis,
            holder=holder,
            task_id=task_id,
            attempt=attempt,
            created_at=now,
            expires_at=now + timedelta(seconds=seconds) + GRACE,
        )
    )
    return Held(lease_id, wish.millis, _call_warnings(connection, path, wish, rows))


def settle(
    connection: sa.Connection,
    lease_id: str,
    used: Usage,
    *,
    millis: int,
    now: datetime,
    outcome: str = "settled",
) -> tuple[bool, tuple[Passed, ...]]:
    """Turn what was held into what was used; False when that was done before. Tells what lines were reached."""
    mine = sa.and_(leases.c.lease_id == lease_id, leases.c.settled_at.is_(None))
    closed = connection.execute(leases.update().where(mine).values(settled_at=now, outcome=outcome))
    if closed.rowcount != 1:
        return False, ()
    lease = connection.execute(leases.select().where(leases.c.lease_id == lease_id)).mappings().one()
    held = {"tokens": lease["tokens"], "micro_usd": lease["micro_usd"] or 0, "millis": lease["millis"]}
    spent = {"tokens": used.tokens, "micro_usd": used.micro_usd or 0, "millis": millis}
    buckets: list[str] = lease["buckets"]
    _lock(connection, buckets)
    total = budget_nodes.c.bucket == TOTAL
    changes: dict[str, Any] = {
        "held_calls": budget_nodes.c.held_calls - 1,
        "used_calls": budget_nodes.c.used_calls + 1,
        "plan_micro_usd": budget_nodes.c.plan_micro_usd + used.plan_micro_usd,
        "unpriced_calls": budget_nodes.c.unpriced_calls + int(used.micro_usd is None),
    }
    for amount in AMOUNTS[1:]:
        column = budget_nodes.c[f"held_{amount}"]
        changes[f"held_{amount}"] = column - sa.case((total, held[amount]), else_=0)
        changes[f"used_{amount}"] = budget_nodes.c[f"used_{amount}"] + spent[amount]
    connection.execute(budget_nodes.update().where(budget_nodes.c.bucket_id.in_(buckets)).values(changes))
    if not any(spent.values()):
        return True, ()
    return True, _settled_lines(connection, buckets)


def open_leases(connection: sa.Connection, now: datetime, *, limit: int = BATCH) -> list[Mapping[str, Any]]:
    """Leases nobody has settled yet, the oldest end first."""
    query = leases.select().where(leases.c.settled_at.is_(None)).order_by(leases.c.expires_at).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


def reap(connection: sa.Connection, lease_ids: Iterable[str], *, now: datetime) -> list[str]:
    """Charge what the dead held, whole, because nobody knows how far they came; idempotent."""
    done = []
    for lease_id in sorted(lease_ids):
        row = connection.execute(leases.select().where(leases.c.lease_id == lease_id)).mappings().first()
        if row is None:
            continue
        used = Usage(row["tokens"], row["micro_usd"], row["plan_micro_usd"])
        settled, _ = settle(connection, lease_id, used, millis=row["millis"], now=now, outcome="reaped")
        done += [lease_id] if settled else []
    return done


# ── the rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

Rows = dict[str, dict[str, Any]]


def _wanted(path: Sequence[Node], wish: Wish) -> list[tuple[str, Node, str]]:
    return [(node.bucket_id(bucket), node, bucket) for node in path for bucket in wish.buckets]


def _rows(connection: sa.Connection, path: Sequence[Node], wish: Wish, *, lock: bool) -> Rows:
    ids = [bucket_id for bucket_id, _, _ in _wanted(path, wish)]
    query = budget_nodes.select().where(budget_nodes.c.bucket_id.in_(ids))
    if lock and connection.dialect.name == "postgresql":
        query = _in_order(query).with_for_update()
    found = connection.execute(query).mappings()
    return {row["bucket_id"]: dict(row) for row in found}


def _lock_root(connection: sa.Connection, root: Node) -> None:
    """Make or lock the top of the path before anything below it, so that nobody waits in a circle.

    SQLite's write transaction is alone anyway.
    """
    if connection.dialect.name != "postgresql":
        return
    from sqlalchemy.dialects.postgresql import insert

    limits = {f"limit_{amount}": root.limits.of(TOTAL, amount) for amount in AMOUNTS}
    row = {"bucket_id": root.bucket_id(TOTAL), "node_id": root.node_id, "kind": root.kind, **limits}
    made = insert(budget_nodes).values(row)
    # An update that changes nothing still locks the row that was there.
    same = {"node_id": made.excluded.node_id}
    connection.execute(made.on_conflict_do_update(index_elements=["bucket_id"], set_=same))


def _lock(connection: sa.Connection, bucket_ids: Sequence[str]) -> None:
    """Lock what a lease holds, its root first (names sort that way)."""
    if connection.dialect.name != "postgresql":
        return
    query = sa.select(budget_nodes.c.bucket_id)
    for part in (bucket_ids[:1], bucket_ids[1:]):
        connection.execute(_in_order(query.where(budget_nodes.c.bucket_id.in_(part))).with_for_update()).all()


def _in_order(query: sa.Select[Any]) -> sa.Select[Any]:
    return query.order_by(sa.collate(budget_nodes.c.bucket_id, "C"))


def _mend_rows(connection: sa.Connection, path: Sequence[Node], wish: Wish, rows: Rows) -> bool:
    """Insert what is missing, and let limits follow the settings; whether anything was to do."""
    parents = {node.node_id: above.node_id for above, node in pairwise(path)}
    missing, changed = [], False
    for bucket_id, node, bucket in _wanted(path, wish):
        limits = {f"limit_{amount}": node.limits.of(bucket, amount) for amount in AMOUNTS}
        if bucket_id not in rows:
            place = {"bucket_id": bucket_id, "node_id": node.node_id, "parent_id": parents.get(node.node_id)}
            missing.append({**place, "kind": node.kind, "bucket": bucket, **limits})
        elif any(rows[bucket_id][name] != value for name, value in limits.items()):
            same = budget_nodes.c.bucket_id == bucket_id
            connection.execute(budget_nodes.update().where(same).values(**limits, warned=0))
            changed = True
    if missing:
        # In the order of locking: two that insert the same rows then wait for each other only one way.
        connection.execute(_insert(connection), sorted(missing, key=lambda row: str(row["bucket_id"])))
    return changed or bool(missing)


def _insert(connection: sa.Connection) -> Any:
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgres_insert

        return postgres_insert(budget_nodes).on_conflict_do_nothing()
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(budget_nodes).on_conflict_do_nothing()


def _asked(wish: Wish, bucket: str, amount: str) -> int:
    if amount == "calls":
        return 1
    if bucket != TOTAL:
        return 0
    least = min(wish.millis, LEAST_MILLIS)
    return {"tokens": wish.usage.tokens, "micro_usd": wish.usage.micro_usd or 0, "millis": least}[amount]


def _refusal(path: Sequence[Node], wish: Wish, rows: Rows) -> BudgetExceededError | None:
    """The first limit that stands in the way, total before domain before tool, parents first."""
    for bucket_id, node, bucket in _wanted(path, wish):
        row = rows.get(bucket_id, {})
        for amount in AMOUNTS:
            limit = node.limits.of(bucket, amount)
            if limit is None:
                continue
            taken = row.get(f"used_{amount}", 0) + row.get(f"held_{amount}", 0)
            scope = _scope(bucket, amount)
            if amount == "micro_usd" and wish.usage.micro_usd is None:
                scope = "money:unknown_price"
            elif taken + _asked(wish, bucket, amount) <= limit:
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


def _take(connection: sa.Connection, wish: Wish, rows: Rows) -> None:
    """One conditional UPDATE over the whole path; fewer rows than wanted means that somebody was quicker."""
    total = budget_nodes.c.bucket == TOTAL
    asks = {
        "tokens": wish.usage.tokens,
        "micro_usd": wish.usage.micro_usd or 0,
        "millis": wish.millis,
    }
    changes: dict[str, Any] = {"held_calls": budget_nodes.c.held_calls + 1}
    fits = [_fits("calls", sa.literal(1))]
    for amount, value in asks.items():
        if value:
            share = sa.case((total, value), else_=0)
            changes[f"held_{amount}"] = budget_nodes.c[f"held_{amount}"] + share
            fits.append(_fits(amount, share))
    taken = connection.execute(
        budget_nodes.update().where(budget_nodes.c.bucket_id.in_(sorted(rows)), *fits).values(changes)
    )
    if taken.rowcount != len(rows):
        facts = {"used": "all", "limit": "what there was", "node": "this path"}
        raise BudgetExceededError(reason="budget_exceeded:total", **facts)


def _fits(amount: str, share: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    limit = budget_nodes.c[f"limit_{amount}"]
    after = budget_nodes.c[f"used_{amount}"] + budget_nodes.c[f"held_{amount}"] + share
    return sa.or_(limit.is_(None), after <= limit)


# ── warnings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _call_warnings(
    connection: sa.Connection, path: Sequence[Node], wish: Wish, rows: Rows
) -> tuple[Passed, ...]:
    """Limits of calls that this one brings to 80 percent, each told once."""
    found = []
    for bucket_id, node, bucket in _wanted(path, wish):
        row, limit = rows[bucket_id], node.limits.of(bucket, "calls")
        after = row["used_calls"] + row["held_calls"] + 1
        if _near(after, limit, node.limits.warn_at) and not row["warned"] & 1:
            found.append(Passed(node.node_id, bucket, "calls", after, limit or 0))
            _mark(connection, bucket_id, 1)
    return tuple(found)


def _settled_lines(connection: sa.Connection, bucket_ids: Sequence[str]) -> tuple[Passed, ...]:
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
                _mark(connection, row["bucket_id"], bit)
    return tuple(found)


def _near(used: int, limit: int | None, warn_at: int = WARN_AT) -> bool:
    return limit is not None and limit > 0 and used * 100 >= limit * warn_at


def _mark(connection: sa.Connection, bucket_id: str, bit: int) -> None:
    row = budget_nodes.c.bucket_id == bucket_id
    connection.execute(budget_nodes.update().where(row).values(warned=budget_nodes.c.warned.bitwise_or(bit)))
