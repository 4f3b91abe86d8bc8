"""The other side of `bench.gate`: a LangGraph no-op node with a durable checkpointer, run by a Python of its own.

Usage: `peer_langgraph.py sqlite PATH | postgresql URL`. Each line `node N` or `invoke N` on standard input is answered
by a line of JSON: seconds per node of one long graph, or per `invoke` of a graph of one node, and the processor's seconds
for all of them. `commits N` says how many transactions N nodes were. Imports nothing of ours.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from contextlib import ExitStack
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

__all__ = ["main"]

SYNCHRONOUS = "FULL"


class State(TypedDict):
    """How many nodes have run, and how many shall."""

    n: int
    wanted: int


def saver(kind: str, place: str, stack: ExitStack) -> Any:
    """The checkpointer, as durable as the gate is."""
    if kind == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver

        made = stack.enter_context(SqliteSaver.from_conn_string(place))
        made.setup()
        made.conn.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
        found = made.conn.execute("PRAGMA synchronous").fetchone()[0]
        assert found == 2, f"synchronous is {found}, sqlite {sqlite3.sqlite_version}"
        return made
    from langgraph.checkpoint.postgres import PostgresSaver

    made = stack.enter_context(PostgresSaver.from_conn_string(place))
    made.setup()
    return made


class Peer:
    """One compiled graph of a node that does nothing but say when it began."""

    def __init__(self, checkpointer: Any) -> None:
        self.saver = checkpointer
        self.entered: list[float] = []
        self.turn = 0
        graph: Any = StateGraph(State)
        graph.add_node("work", self._work)
        graph.add_edge(START, "work")
        graph.add_conditional_edges("work", lambda state: END if state["n"] >= state["wanted"] else "work")
        self.graph = graph.compile(checkpointer=checkpointer)

    def _work(self, state: State) -> dict[str, int]:
        self.entered.append(time.perf_counter())
        return {"n": state["n"] + 1}

    def _invoke(self, wanted: int) -> None:
        self.turn += 1
        config = {"configurable": {"thread_id": f"t{self.turn}"}, "recursion_limit": wanted + 10}
        self.graph.invoke({"n": 0, "wanted": wanted}, config, durability="sync")

    def node(self, count: int) -> list[float]:
        """Seconds from one node to the next, with everything that is saved in between."""
        self.entered.clear()
        self._invoke(count + 1)
        return [after - before for before, after in zip(self.entered, self.entered[1:], strict=False)]

    def invoke(self, count: int) -> list[float]:
        """Seconds of a whole run of one node."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self._invoke(1)
            times.append(time.perf_counter() - began)
        return times

    def commits(self, count: int) -> int:
        """Durable transactions of so many nodes: two runs of different length, so that their ends do not count."""
        return self._transactions(2 * count) - self._transactions(count)

    def _transactions(self, nodes: int) -> int:
        if sys.argv[1] == "sqlite":
            heard: list[str] = []
            self.saver.conn.set_trace_callback(heard.append)
            self._invoke(nodes)
            self.saver.conn.set_trace_callback(None)
            return sum(text.startswith("COMMIT") for text in heard)
        number = "SELECT pg_current_xact_id()::text::bigint AS number"
        before = self.saver.conn.execute(number).fetchone()["number"]
        self._invoke(nodes)
        return int(self.saver.conn.execute(number).fetchone()["number"]) - int(before) - 1


def main() -> int:
    """Answer until standard input ends."""
    with ExitStack() as stack:
        peer = Peer(saver(sys.argv[1], sys.argv[2], stack))
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            what, count = line.split()
            began = time.process_time()
            found = getattr(peer, what)(int(count))
            print(json.dumps([found, time.process_time() - began]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
