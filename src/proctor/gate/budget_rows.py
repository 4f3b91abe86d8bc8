"""The rows of the budget tree and the statements on them, built once: a call passes them twice, so they must be quick.

Locking: PostgreSQL takes the root of a path first and the rest in one order; SQLite's write transaction is alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from proctor.gate.limits import AMOUNTS, TOTAL, WARN_AT, Limits, Node
from proctor.store.lane import Step
from proctor.store.quick import Quick, keys
from proctor.store.tables import budget_nodes, leases

__all__ = [
    "Rows",
    "charge",
    "charge_step",
    "close_lease",
    "close_step",
    "find_lease",
    "insert_lease",
    "lease_step",
    "lock_buckets",
    "lock_root",
    "mark",
    "mend_rows",
    "read_rows",
    "take",
    "take_freely_step",
    "take_step",
]

Rows = dict[str, dict[str, Any]]
_NO_LIMITS: Final = (None,) * len(AMOUNTS)

_nodes = budget_nodes.c
_in_order = sa.collate(_nodes.bucket_id, "C")


def _among(size: int) -> sa.ColumnElement[bool]:
    return _nodes.bucket_id.in_(keys(size))


_READ: Final = Quick(lambda _, size: budget_nodes.select().where(_among(size)))
_READ_LOCKED: Final = Quick(
    lambda _, size: budget_nodes.select().where(_among(size)).order_by(_in_order).with_for_update()
)
_LOCK: Final = Quick(
    lambda _, size: sa.select(_nodes.bucket_id).where(_among(size)).order_by(_in_order).with_for_update()
)


def _share(amount: str) -> sa.ColumnElement[int]:
    """What a call asks of one amount: only the total's row carries tokens, money and time."""
    value = sa.bindparam(f"ask_{amount}", type_=sa.BigInteger)
    return value if amount == "calls" else sa.case((_nodes.bucket == TOTAL, value), else_=0)


def _fits(amount: str) -> sa.ColumnElement[bool]:
    limit, after = (
        _nodes[f"limit_{amount}"],
        _nodes[f"used_{amount}"] + _nodes[f"held_{amount}"] + _share(amount),
    )
    return sa.or_(limit.is_(None), after <= limit)


def _taken(size: int, condition: Callable[[str], sa.ColumnElement[bool]]) -> sa.Update:
    held = {f"held_{amount}": _nodes[f"held_{amount}"] + _share(amount) for amount in AMOUNTS}
    return budget_nodes.update().where(_among(size), *(condition(amount) for amount in AMOUNTS)).values(held)


_TAKE: Final = Quick(lambda _, size: _taken(size, _fits))
_TAKE_FREELY: Final = Quick(lambda _, size: _taken(size, lambda amount: _nodes[f"limit_{amount}"].is_(None)))


def _charged(size: int) -> sa.Update:
    held = {f"held_{amount}": _nodes[f"held_{amount}"] - _share(amount) for amount in AMOUNTS}
    used = {f"used_{amount}": _nodes[f"used_{amount}"] + _spent(amount) for amount in AMOUNTS}
    others = {
        "plan_micro_usd": _nodes.plan_micro_usd + sa.bindparam("spent_plan", type_=sa.BigInteger),
        "unpriced_calls": _nodes.unpriced_calls + sa.bindparam("unpriced", type_=sa.BigInteger),
    }
    return budget_nodes.update().where(_among(size)).values({**held, **used, **others})


def _spent(amount: str) -> sa.BindParameter[int]:
    return sa.bindparam(f"spent_{amount}", type_=sa.BigInteger)


def _far(amount: str) -> sa.ColumnElement[bool]:
    """Whether what is spent leaves a total under the line where people are told."""
    limit, after = _nodes[f"limit_{amount}"], _nodes[f"used_{amount}"] + _spent(amount)
    return sa.or_(limit.is_(None), _nodes.bucket != TOTAL, after * 100 < limit * WARN_AT)


_CHARGE: Final = Quick(lambda _, size: _charged(size))
_CHARGE_QUIETLY: Final = Quick(lambda _, size: _charged(size).where(*(_far(one) for one in AMOUNTS[1:])))
_CLOSE: Final = Quick(
    lambda _, __: (
        leases.update()
        .where(leases.c.lease_id == sa.bindparam("closed_id"), leases.c.settled_at.is_(None))
        .values(settled_at=sa.bindparam("closed_at"), outcome=sa.bindparam("how"))
    )
)
_FIND: Final = leases.select().where(leases.c.lease_id == sa.bindparam("wanted_id"))
_MARK: Final = (
    budget_nodes.update()
    .where(_nodes.bucket_id == sa.bindparam("marked_id"))
    .values(warned=_nodes.warned.bitwise_or(sa.bindparam("bit", type_=sa.Integer)))
)
_INSERT: Final = {
    "postgresql": postgresql.insert(budget_nodes).on_conflict_do_nothing(),
    "sqlite": sqlite.insert(budget_nodes).on_conflict_do_nothing(),
}
_INSERT_LEASE: Final = Quick(lambda _, __: leases.insert(), inserts=True)
_root = postgresql.insert(budget_nodes)
# An update that changes nothing still locks the row that was there.
_LOCK_ROOT: Final = Quick(
    lambda _, __: _root.on_conflict_do_update(
        index_elements=["bucket_id"], set_={"node_id": _root.excluded.node_id}
    ),
    inserts=True,
)


def _locks(connection: sa.Connection) -> bool:
    return connection.dialect.name == "postgresql"


def read_rows(connection: sa.Connection, ids: Sequence[str], *, lock: bool) -> Rows:
    """The rows that are there, by their key."""
    query = _READ_LOCKED if lock and _locks(connection) else _READ
    return {row["bucket_id"]: row for row in query.rows(connection, {}, ids)}


def lock_root(connection: sa.Connection, root: Node) -> None:
    """Make or lock the top of the path before anything below it, so that nobody waits in a circle."""
    if _locks(connection):
        row = {"bucket_id": root.bucket_id(TOTAL), "node_id": root.node_id, "kind": root.kind}
        _LOCK_ROOT.run(connection, {**row, **_limits(root.limits, TOTAL)})


def lock_buckets(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Lock what a lease holds, its root first (names sort that way)."""
    if _locks(connection):
        for part in (ids[:1], ids[1:]):
            _LOCK.rows(connection, {}, part)


def mend_rows(
    connection: sa.Connection, path: Sequence[Node], wanted: Sequence[tuple[str, Node, str]], rows: Rows
) -> bool:
    """Insert what is missing, and let limits follow the settings; whether anything was to do."""
    parents = {node.node_id: above.node_id for above, node in pairwise(path)}
    missing, changed = [], False
    for bucket_id, node, bucket in wanted:
        limits = _limits(node.limits, bucket)
        if bucket_id not in rows:
            place = {"bucket_id": bucket_id, "node_id": node.node_id, "parent_id": parents.get(node.node_id)}
            missing.append({**place, "kind": node.kind, "bucket": bucket, **limits})
        elif any(rows[bucket_id][name] != value for name, value in limits.items()):
            same = _nodes.bucket_id == bucket_id
            connection.execute(budget_nodes.update().where(same).values(**limits, warned=0))
            changed = True
    if missing:
        # In the order of locking: two that insert the same rows then wait for each other only one way.
        ordered = sorted(missing, key=lambda row: str(row["bucket_id"]))
        connection.execute(_INSERT[connection.dialect.name], ordered)
    return changed or bool(missing)


def _limits(limits: Limits, bucket: str) -> dict[str, int | None]:
    return {f"limit_{amount}": limits.of(bucket, amount) for amount in AMOUNTS}


def take(connection: sa.Connection, ids: Sequence[str], asks: Mapping[str, int]) -> bool:
    """One conditional UPDATE over the whole path; False when not every row had room."""
    return _TAKE.run(connection, _asked(asks), ids) == len(ids)


def _asked(asks: Mapping[str, int]) -> dict[str, int]:
    return {f"ask_{amount}": asks[amount] for amount in AMOUNTS}


def charge(connection: sa.Connection, ids: Sequence[str], binds: Mapping[str, Any]) -> None:
    """Give back what was held and add what was spent (`leases.charged` says how much)."""
    _CHARGE.run(connection, binds, ids)


def insert_lease(connection: sa.Connection, values: Mapping[str, Any]) -> None:
    """Write a lease down."""
    _INSERT_LEASE.run(connection, values)


# ── the same as steps of the quick lane ───────────────────────────────────────────────────────────────────────────


def take_freely_step(dialect: str, ids: Sequence[str], asks: Mapping[str, int]) -> Step:
    """Take from rows that are there and have no limit."""
    return _TAKE_FREELY.step(dialect, _asked(asks), ids, rows=len(ids))


def take_step(
    dialect: str,
    path: Sequence[Node],
    wanted: Sequence[tuple[str, Node, str]],
    asks: Mapping[str, int],
    warn_at: int,
) -> Step:
    """Make the rows that are missing and take from all, where limits stand as the settings say and none is near."""
    parents = {node.node_id: above.node_id for above, node in pairwise(path)}
    values: list[Any] = []
    whole, one_call = tuple(asks.values()), (asks["calls"], 0, 0, 0)
    for bucket_id, node, bucket in wanted:
        limits = (
            _NO_LIMITS if node.limits.unlimited else [node.limits.of(bucket, amount) for amount in AMOUNTS]
        )
        place = (bucket_id, node.node_id, parents.get(node.node_id), node.kind, bucket)
        values += (*place, *limits, *(one_call if bucket else whole))
    return Step(_take_text(dialect, len(wanted)), (*values, warn_at), len(wanted))


@lru_cache(maxsize=32)
def _take_text(dialect: str, size: int) -> str:
    mark, same = ("?", "IS") if dialect == "sqlite" else ("%s", "IS NOT DISTINCT FROM")
    columns = ["bucket_id", "node_id", "parent_id", "kind", "bucket"]
    columns += [f"{part}_{amount}" for part in ("limit", "held") for amount in AMOUNTS]
    row = f"({', '.join([mark] * len(columns))})"
    after = {one: f"n.used_{one} + n.held_{one} + excluded.held_{one}" for one in AMOUNTS}
    takes = ", ".join(f"held_{one} = n.held_{one} + excluded.held_{one}" for one in AMOUNTS)
    fits = [
        f"n.limit_{one} {same} excluded.limit_{one} AND (n.limit_{one} IS NULL OR {after[one]} <= n.limit_{one})"
        for one in AMOUNTS
    ]
    told = (
        f"(n.limit_calls IS NULL OR (n.warned & 1) = 1 OR ({after['calls']}) * 100 < n.limit_calls * {mark})"
    )
    return (
        f"INSERT INTO budget_nodes AS n ({', '.join(columns)}) VALUES {', '.join([row] * size)}"
        f" ON CONFLICT (bucket_id) DO UPDATE SET {takes} WHERE {' AND '.join([*fits, told])}"
    )


def lease_step(dialect: str, values: Mapping[str, Any]) -> Step:
    """Write a lease down."""
    return _INSERT_LEASE.step(dialect, values)


def close_step(dialect: str, lease_id: str, *, now: datetime, outcome: str) -> Step:
    """Close a lease that is open."""
    return _CLOSE.step(dialect, {"closed_id": lease_id, "closed_at": now, "how": outcome})


def charge_step(dialect: str, ids: Sequence[str], binds: Mapping[str, Any], *, limited: bool) -> Step:
    """Give back what was held and add what was spent, where that reaches no line."""
    return (_CHARGE_QUIETLY if limited else _CHARGE).step(dialect, binds, ids, rows=len(ids))


def close_lease(connection: sa.Connection, lease_id: str, *, now: datetime, outcome: str) -> bool:
    """Close a lease; False when it was closed before."""
    binds = {"closed_id": lease_id, "closed_at": now, "how": outcome}
    return _CLOSE.run(connection, binds) == 1


def find_lease(connection: sa.Connection, lease_id: str) -> Mapping[str, Any] | None:
    """One lease."""
    row = connection.execute(_FIND, {"wanted_id": lease_id}).mappings().first()
    return None if row is None else dict(row)


def mark(connection: sa.Connection, bucket_id: str, bit: int) -> None:
    """Remember that a line was told."""
    connection.execute(_MARK, {"marked_id": bucket_id, "bit": bit})
