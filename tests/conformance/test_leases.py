"""Leases hold on both databases: exact under a crowd, charged after failure and death, settled once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import sqlalchemy as sa

from proctor.gate.leases import BudgetExceededError, Held, Wish, check, reap, reserve, settle
from proctor.gate.limits import Limits, Node
from proctor.protocol.tools import Usage
from proctor.store.database import Database
from proctor.store.tables import budget_nodes, leases
from tests.support.rows import NOON, rows_of

CALLERS = 100


def path(limits: Limits | None = None, *, task: str = "t1", task_limits: Limits | None = None) -> list[Node]:
    """A profile, a session with these limits, and a task."""
    return [
        Node("profile:p", "profile"),
        Node("session:s", "session", limits or Limits()),
        Node(f"task:{task}", "task", task_limits or Limits()),
    ]


def take(database: Database, nodes: list[Node], wish: Wish | None = None, *, holder: str = "me") -> Held:
    """One reservation in a transaction of its own."""
    with database.write() as connection:
        return reserve(
            connection,
            nodes,
            wish or Wish("filesystem", "read_file"),
            call_id="c",
            holder=holder,
            now=NOON,
            seconds=10,
        )


def try_take(database: Database, nodes: list[Node], wish: Wish | None = None) -> str:
    """Reserve, or say the reason."""
    try:
        take(database, nodes, wish)
    except BudgetExceededError as error:
        return str(error.facts["reason"])
    return ""


def crowd(work: Callable[[int], str]) -> list[str]:
    """A hundred callers at once."""
    start = Barrier(CALLERS)

    def one(number: int) -> str:
        start.wait(30)
        return work(number)

    with ThreadPoolExecutor(CALLERS) as pool:
        return list(pool.map(one, range(CALLERS)))


def total(database: Database, node: str, bucket: str = "") -> dict[str, int]:
    """One row of the tree."""
    query = budget_nodes.select().where(budget_nodes.c.node_id == node, budget_nodes.c.bucket == bucket)
    (row,) = rows_of(database, query)
    return dict(row)


@pytest.mark.parametrize(
    ("limits", "granted", "reason"),
    [
        (Limits(calls=10), 10, "budget_exceeded:total"),
        (Limits(domains={"filesystem": 7}), 7, "budget_exceeded:domain:filesystem"),
        (Limits(tools={"read_file": 3}), 3, "budget_exceeded:tool:read_file"),
        (Limits(tokens=55), 5, "budget_exceeded:tokens"),
        (Limits(micro_usd=100), 4, "budget_exceeded:money"),
        (Limits(calls=0), 0, "budget_exceeded:total"),
    ],
)
def test_hundred_callers_get_exactly_what_there_is(
    database: Database, limits: Limits, granted: int, reason: str
) -> None:
    """Whatever is limited, a crowd gets it to the last one and not one more."""
    wish = Wish("filesystem", "read_file", Usage(tokens=10, micro_usd=25))
    answers = crowd(lambda number: try_take(database, path(limits, task=f"t{number % 3}"), wish))
    assert answers.count("") == granted
    assert set(answers) - {""} == {reason}
    if granted:
        assert total(database, "session:s")["held_calls"] == granted
        assert total(database, "profile:p")["held_calls"] == granted
        assert len(rows_of(database, leases.select())) == granted


def test_crowd_that_also_settles_never_passes_a_limit(database: Database) -> None:
    """Taking and settling at once: what is used at the end is what was granted, nothing is held."""
    nodes = path(Limits(calls=30, tokens=1000))

    def work(number: int) -> str:
        try:
            held = take(database, nodes, Wish("filesystem", "read_file", Usage(tokens=20)))
        except BudgetExceededError as error:
            return str(error.facts["reason"])
        with database.write() as connection:
            settle(connection, held.lease_id, Usage(tokens=number % 20), millis=1, now=NOON)
        return ""

    answers = crowd(work)
    row = total(database, "session:s")
    assert answers.count("") == row["used_calls"] == 30
    assert (row["held_calls"], row["held_tokens"], row["held_millis"]) == (0, 0, 0)
    assert row["used_tokens"] == sum(n % 20 for n, answer in enumerate(answers) if not answer)


def test_every_level_of_the_tree_counts_and_limits(database: Database) -> None:
    """A task's own limit holds beside the session's, and the parent counts all children."""
    one = path(Limits(calls=5), task="a", task_limits=Limits(calls=2))
    other = path(Limits(calls=5), task="b")
    assert [try_take(database, one) for _ in range(3)] == ["", "", "budget_exceeded:total"]
    assert [try_take(database, other) for _ in range(4)] == ["", "", "", "budget_exceeded:total"]
    assert total(database, "task:a")["held_calls"] == 2
    assert total(database, "task:b")["held_calls"] == 3
    assert total(database, "session:s", "tool:read_file")["held_calls"] == 5
    assert total(database, "profile:p", "domain:filesystem")["held_calls"] == 5


def test_refused_reservation_takes_nothing_anywhere(database: Database) -> None:
    """All or nothing: a limit at the last node leaves the first ones untouched."""
    assert try_take(database, path(task_limits=Limits(calls=0))) == "budget_exceeded:total"
    assert rows_of(database, sa.select(sa.func.sum(budget_nodes.c.held_calls).label("held"))) == [
        {"held": None}
    ]
    assert rows_of(database, leases.select()) == []


def test_settling_twice_charges_once(database: Database) -> None:
    """The second settlement, and a reaper after it, change nothing."""
    held = take(database, path(), Wish("filesystem", "read_file", Usage(tokens=9, micro_usd=5)))
    for _ in range(2):
        with database.write() as connection:
            settle(connection, held.lease_id, Usage(tokens=4, micro_usd=2), millis=7, now=NOON)
    with database.write() as connection:
        assert reap(connection, [held.lease_id], now=NOON) == []
    row = total(database, "session:s")
    assert (row["used_calls"], row["used_tokens"], row["used_micro_usd"], row["used_millis"]) == (1, 4, 2, 7)
    assert (row["held_calls"], row["held_tokens"], row["held_micro_usd"]) == (0, 0, 0)


def test_the_dead_are_charged_whole_and_once(database: Database) -> None:
    """Nobody knows how far a dead holder came, so what it held counts as used."""
    held = take(database, path(), Wish("filesystem", "read_file", Usage(tokens=9, micro_usd=5), millis=3000))
    for wanted in ([held.lease_id], []):
        with database.write() as connection:
            assert reap(connection, [held.lease_id, "unknown"], now=NOON) == wanted
    row = total(database, "task:t1")
    assert (row["used_calls"], row["used_tokens"], row["used_micro_usd"], row["used_millis"]) == (
        1,
        9,
        5,
        3000,
    )
    assert row["held_tokens"] == 0


def test_time_is_granted_as_far_as_it_goes(database: Database) -> None:
    """A call gets at most the seconds that are left, and is refused when that is less than one."""
    nodes = path(Limits(millis=5000))
    wish = Wish("command", "execute_command", millis=3000)
    assert [take(database, nodes, wish).millis for _ in range(2)] == [3000, 2000]
    assert try_take(database, nodes, wish) == "budget_exceeded:seconds"


def test_unknown_price_is_refused_where_money_is_limited(database: Database) -> None:
    """No price is no free ride; without a limit it is counted as unpriced, a plan's usage apart from money."""
    unknown = Wish("agent", "ask_model", Usage(tokens=5, micro_usd=None, plan_micro_usd=40))
    limited = path(Limits(micro_usd=1_000_000))
    assert try_take(database, limited, unknown) == "budget_exceeded:money:unknown_price"
    held = take(database, path(), unknown)
    with database.write() as connection:
        settle(connection, held.lease_id, unknown.usage, millis=1, now=NOON)
    row = total(database, "session:s")
    assert (row["unpriced_calls"], row["used_micro_usd"], row["plan_micro_usd"]) == (1, 0, 40)


def test_raised_limit_lets_the_session_go_on(database: Database) -> None:
    """Limits are read from the settings at each call, not frozen at the first."""
    assert [try_take(database, path(Limits(calls=1))) for _ in range(2)] == ["", "budget_exceeded:total"]
    assert try_take(database, path(Limits(calls=2))) == ""


def test_check_takes_nothing_and_says_the_same(database: Database) -> None:
    """What is checked before asking is what would be refused after."""
    nodes, wish = path(Limits(calls=1)), Wish("filesystem", "read_file")
    with database.read() as connection:
        assert check(connection, nodes, wish) is None
    take(database, nodes)
    with database.read() as connection:
        refusal = check(connection, nodes, wish)
    assert refusal is not None
    assert refusal.facts["reason"] == "budget_exceeded:total"
    assert total(database, "session:s")["held_calls"] == 1


def test_overrun_is_told_once_and_refuses_the_next(database: Database) -> None:
    """A call that used more than it said is charged the truth; the limit then holds for the next."""
    nodes = path(Limits(tokens=100))
    held = take(database, nodes, Wish("agent", "ask", Usage(tokens=50)))
    with database.write() as connection:
        settled, lines = settle(connection, held.lease_id, Usage(tokens=130), millis=1, now=NOON)
    assert settled
    assert [(line.reason, line.used, line.over) for line in lines] == [("budget_exceeded:tokens", 130, True)]
    assert try_take(database, nodes, Wish("agent", "ask", Usage(tokens=1))) == "budget_exceeded:tokens"
