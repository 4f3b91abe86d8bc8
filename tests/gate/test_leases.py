"""Leases as a state machine: whatever is taken, settled and reaped in any order, the tree stays true."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from proctor.gate.leases import BudgetExceededError, Held, Wish, reap, reserve, settle
from proctor.gate.limits import Limits, Node, tighter
from proctor.protocol.tools import Usage
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from proctor.store.tables import budget_nodes
from tests.support.rows import NOON, rows_of

SESSION = {
    "s1": Limits(calls=6, tokens=60, micro_usd=50, domains={"filesystem": 4}, tools={"write_file": 2}),
    "s2": Limits(calls=3, millis=20_000),
}
PROFILE = Limits(calls=8, tokens=90)
TASK = Limits(calls=4, tokens=40)


class Tree(RuleBasedStateMachine):
    """Two sessions with two tasks each, under one profile."""

    held: Bundle[tuple[Held, Usage]] = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.database: Database = open_database(sqlite_url(Path(self.place.name) / "proctor.db"))
        self.settled = 0

    def teardown(self) -> None:
        """Remove the database."""
        self.database.close()
        self.place.cleanup()

    @rule(
        target=held,
        session=st.sampled_from(["s1", "s2"]),
        task=st.sampled_from(["a", "b"]),
        tool=st.sampled_from([("filesystem", "write_file"), ("filesystem", "read_file"), ("command", "run")]),
        tokens=st.integers(0, 30),
        money=st.integers(0, 30),
        millis=st.integers(0, 9000),
    )
    def take(
        self, session: str, task: str, tool: tuple[str, str], tokens: int, money: int, millis: int
    ) -> MultipleResults[tuple[Held, Usage]] | tuple[Held, Usage]:
        """Reserve; a refusal is fine, what it leaves behind is checked by the invariants."""
        usage = Usage(tokens, money)
        nodes = [
            Node("profile:p", "profile", PROFILE),
            Node(f"session:{session}", "session", SESSION[session]),
            Node(f"task:{session}{task}", "task", TASK),
        ]
        try:
            with self.database.write() as connection:
                wish = Wish(*tool, usage, millis)
                granted = reserve(connection, nodes, wish, call_id="c", holder="h", now=NOON, seconds=1)
        except BudgetExceededError:
            return multiple()
        return granted, usage

    @rule(lease=consumes(held), share=st.floats(0, 1), again=st.booleans())
    def settle(self, lease: tuple[Held, Usage], share: float, again: bool) -> None:
        """Use a part of what was held; a second time must change nothing."""
        granted, usage = lease
        spent = Usage(int(usage.tokens * share), int((usage.micro_usd or 0) * share))
        for _ in range(1 + again):
            with self.database.write() as connection:
                settle(connection, granted.lease_id, spent, millis=int(granted.millis * share), now=NOON)
        self.settled += 1

    @rule(lease=consumes(held), again=st.booleans())
    def die(self, lease: tuple[Held, Usage], again: bool) -> None:
        """The holder dies and is reaped, perhaps by two."""
        for _ in range(1 + again):
            with self.database.write() as connection:
                reap(connection, [lease[0].lease_id], now=NOON)
        self.settled += 1

    @invariant()
    def no_limit_is_passed(self) -> None:
        """Held and used together stay within every limit, and nothing is negative."""
        for row in rows_of(self.database, budget_nodes.select()):
            for amount in ("calls", "tokens", "micro_usd", "millis"):
                taken = row[f"used_{amount}"] + row[f"held_{amount}"]
                assert 0 <= row[f"held_{amount}"] <= taken
                assert row[f"limit_{amount}"] is None or taken <= row[f"limit_{amount}"]

    @invariant()
    def children_sum_up_to_their_parent(self) -> None:
        """Every amount of every bucket is the sum of the children's, at each level."""
        rows = rows_of(self.database, budget_nodes.select())
        sums: dict[tuple[str, str, str], int] = defaultdict(int)
        own: dict[tuple[str, str, str], int] = {}
        for row in rows:
            for column in [
                f"{part}_{name}" for part in ("used", "held") for name in ("calls", "tokens", "millis")
            ]:
                own[row["node_id"], row["bucket"], column] = row[column]
                if row["parent_id"]:
                    sums[row["parent_id"], row["bucket"], column] += row[column]
        assert all(own[key] == value for key, value in sums.items())

    @invariant()
    def what_ended_is_charged(self) -> None:
        """Each settled or reaped call is counted once."""
        rows = rows_of(self.database, budget_nodes.select().where(budget_nodes.c.bucket_id == "profile:p/"))
        assert sum(row["used_calls"] for row in rows) == self.settled


Tree.TestCase.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
test_tree_stays_true = pytest.mark.slow(Tree.TestCase)


def test_tighter_takes_the_smaller_of_each_limit() -> None:
    """Two sets of limits hold at once; None limits nothing, 0 limits everything."""
    one = Limits(calls=5, tokens=None, domains={"a": 1, "b": 9})
    other = Limits(calls=0, tokens=7, domains={"b": 3}, tools={"t": 0})
    both = tighter(one, other)
    assert (both.calls, both.tokens, both.micro_usd) == (0, 7, None)
    assert both.domains == {"a": 1, "b": 3}
    assert both.tools == {"t": 0}
    assert (both.of("tool:t", "calls"), both.of("domain:x", "calls"), both.of("tool:t", "tokens")) == (
        0,
        None,
        None,
    )
