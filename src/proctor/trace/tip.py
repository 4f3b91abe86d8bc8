"""The tip of the log as this writer left it: whoever still finds it so may write the next events without reading first.

Every writer changes the log's own head, so one that is as we left it, in every column, says that no other head has moved
either. A head that somebody altered is not as we left it: then the ordinary way reads it, and refuses what is not sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from proctor.protocol.events import Event
from proctor.store.lane import Step
from proctor.trace.chain import Head
from proctor.trace.log import CHANNEL, EVENT, NEW_HEAD, place, seal
from proctor.trace.rows import Prepared

__all__ = ["Advance", "Tip"]

MAX_TRACES: Final = 512
_MOVE: Final = (
    "UPDATE trace_heads SET last_seq = ?, count = ?, hash = ?, mac = ? WHERE trace_id = ? AND first_seq = ?"
    " AND last_seq = ? AND count = ? AND hash = ? AND mac = ? AND started = ?"
)
_MOVE_IN: Final = {"sqlite": _MOVE, "postgresql": _MOVE.replace("?", "%s")}
_TELL: Final = "SELECT pg_notify(%s, %s)"


class Advance(NamedTuple):
    """The log some events further: the steps that write it, and where it stands then."""

    steps: list[Step]
    events: list[Event]
    base: Head
    log: Head
    heads: dict[str, Head]


class Tip:
    """What one writer remembers; used by its thread alone."""

    def __init__(self, dialect: str, key: bytes) -> None:
        self._dialect, self._key = dialect, key
        self._log: Head | None = None
        self._traces: dict[str, Head] = {}
        self._alone = True

    def advance(self, prepared: Sequence[Prepared]) -> Advance | None:
        """How these events are written onto what we know; None when we know nothing, or others write too."""
        if self._log is None or not self._alone:
            return None
        known = {
            name: self._traces[name] for name in {one.trace_id for one in prepared} & self._traces.keys()
        }
        log, heads = self._log.copy(), {name: head.copy() for name, head in known.items()}
        rows, events = place(prepared, log, heads)
        seal(log, heads, {name: head.mac for name, head in known.items()}, self._key)
        # The log's own head first: its row is the lock that orders all writers.
        steps = [self._moved(self._log, log)]
        steps += [self._moved(known.get(name), head) for name, head in heads.items()]
        steps += [Step(EVENT[self._dialect], row) for row in rows]
        if self._dialect == "postgresql":
            steps.append(Step(_TELL, (CHANNEL, str(log.last_seq))))
        return Advance(steps, events, self._log, log, heads)

    def _moved(self, before: Head | None, after: Head) -> Step:
        if before is None:
            return Step(NEW_HEAD[self._dialect], after.row())
        new = (after.last_seq, after.count, after.hash, after.mac)
        return Step(_MOVE_IN[self._dialect], (*new, *before.row()))

    def keep(self, log: Head, heads: dict[str, Head], *, onto: Head | None = None) -> None:
        """Remember where the log stands after a commit of ours, unless another has gone by since we stood at `onto`."""
        if onto is not None and onto is not self._log:
            self.miss()
            return
        self._log = log
        if len(self._traces) + len(heads) > MAX_TRACES:
            self._traces.clear()
        self._traces |= heads

    def meet(self, log: Head) -> None:
        """Take notice of the head as the ordinary way has found it: one we did not leave so says that others write."""
        self._alone = self._log is None or self._log.mac == log.mac
        if not self._alone:
            self._traces.clear()

    def miss(self) -> None:
        """It was not as we left it: read first, until that has found nobody else."""
        self._alone = False

    def forget(self) -> None:
        """Trust nothing until the ordinary way has looked."""
        self._log = None
        self._traces.clear()
