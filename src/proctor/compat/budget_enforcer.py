"""Seed 002's `ToolBudget` (three tiers) and `BudgetEnforcer` over the real leases: exact under many threads.

A limit of 0 allows nothing. What is recorded is taken by one conditional update, so no limit is ever passed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from proctor.compat.trace_emitter import TraceEmitter
from proctor.gate import leases
from proctor.gate.holder import this_process
from proctor.gate.leases import BudgetExceededError, Wish
from proctor.gate.limits import Node
from proctor.gate.report import report_of
from proctor.protocol.events import Draft
from proctor.protocol.ids import new_id
from proctor.protocol.limits import Allowance, Limits
from proctor.protocol.tools import Usage

__all__ = ["BudgetEnforcer", "ToolBudget"]


@dataclass
class ToolBudget:
    """How many calls: in all, per domain, per tool."""

    total_calls: int = 100
    calls_per_domain: dict[str, int] = field(default_factory=dict)
    calls_per_tool: dict[str, int] = field(default_factory=dict)
    warning_threshold: float = 0.8

    def __post_init__(self) -> None:
        if self.total_calls <= 0:
            raise ValueError("total_calls must be positive")
        if not 0 < self.warning_threshold < 1:
            raise ValueError("warning_threshold must be between 0 and 1")

    def limits(self) -> Limits:
        """As the gate knows it."""
        return Limits(
            calls=self.total_calls,
            domains=dict(self.calls_per_domain),
            tools=dict(self.calls_per_tool),
            warn_at=round(self.warning_threshold * 100),
        )


class BudgetEnforcer:
    """Checks and records calls against one budget."""

    def __init__(self, budget: ToolBudget, trace_emitter: TraceEmitter | None = None) -> None:
        self.budget = budget
        self.trace_emitter = trace_emitter or TraceEmitter()
        self._house = self.trace_emitter.house
        self._name = new_id("budget")
        self._lock = threading.Lock()
        self._warned: set[tuple[str, int]] = set()

    def allowance(self, *, quiet_as: Limits | None = None) -> Allowance:
        """The budget for calls through the gate; silent where equal limits already warn elsewhere."""
        limits = self.budget.limits()
        same = quiet_as is not None and _numbers(limits) == _numbers(quiet_as)
        return Allowance(self._name, Limits(**{**_fields(limits), "warn_at": 101}) if same else limits)

    def _path(self) -> list[Node]:
        allowance = Allowance(self._name, self.budget.limits())
        return [Node(allowance.node_id, "task", allowance.limits)]

    def check_budget(self, tool_name: str, domain: str) -> tuple[bool, str | None]:
        """Say whether one more call fits, with the reason when not; warns once per limit, this call counted."""
        with self._house.app.database.read() as connection:
            refusal = leases.check(connection, self._path(), Wish(domain, tool_name))
        if refusal is not None:
            reason = str(refusal.facts["reason"])
            details = {"reason": reason, "limit": refusal.facts["limit"], "used": refusal.facts["used"]}
            self.trace_emitter.emit("budget_exceeded", {**details, "tool_name": tool_name}, status="error")
            return False, reason
        self._warn(tool_name, domain)
        return True, None

    def _warn(self, tool_name: str, domain: str) -> None:
        used, limits = self.get_utilization(), self.budget.limits()
        tiers = {
            "total": (used["total"]["used"], limits.calls),
            f"domain:{domain}": (_used(used["by_domain"], domain), limits.domains.get(domain)),
            f"tool:{tool_name}": (_used(used["by_tool"], tool_name), limits.tools.get(tool_name)),
        }
        for scope, (before, limit) in tiers.items():
            if limit and (before + 1) * 100 >= limit * limits.warn_at and self._first(scope, limit):
                details = {"scope": scope, "used": before + 1, "limit": limit}
                share = {"percentage": round(100 * (before + 1) / limit, 1)}
                self.trace_emitter.emit("budget_warning", {**details, **share}, status="warning")

    def _first(self, scope: str, limit: int) -> bool:
        with self._lock:
            told = (scope, limit) in self._warned
            self._warned.add((scope, limit))
            return not told

    def record_usage(self, tool_name: str, domain: str) -> None:
        """Count one call; one that would pass a limit raises `BudgetExceededError` and is not counted."""
        now = datetime.now(UTC)

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            held = leases.reserve(
                connection,
                self._path(),
                Wish(domain, tool_name),
                call_id=new_id("call"),
                holder=this_process(),
                now=now,
                seconds=60.0,
            )
            leases.settle(connection, held.lease_id, Usage(), millis=0, now=now)
            return None, []

        try:
            self._house.app.writer.transact(change)
        except BudgetExceededError as error:
            details = {"reason": str(error.facts["reason"]), "tool_name": tool_name}
            self.trace_emitter.emit("budget_exceeded", details, status="error")
            raise

    @property
    def usage(self) -> dict[str, Any]:
        """What was counted: in all, by domain, by tool."""
        found = self.get_utilization()
        return {
            "total": found["total"]["used"],
            **{
                part: {name: one["used"] for name, one in found[part].items()}
                for part in ("by_domain", "by_tool")
            },
        }

    def get_utilization(self) -> dict[str, Any]:
        """Used, limit and percentage: in all, by domain, by tool; the limits are the budget's as it is now."""
        limits = self.budget.limits()
        node_id = Allowance(self._name, limits).node_id
        with self._house.app.database.read() as connection:
            found = report_of(connection, node_id, limits)
        return {
            "total": _share(found["total"]["used"], limits.calls),
            "by_domain": {
                n: _share(one["used"], limits.domains.get(n)) for n, one in found["by_domain"].items()
            },
            "by_tool": {n: _share(one["used"], limits.tools.get(n)) for n, one in found["by_tool"].items()},
        }


def _used(table: dict[str, Any], name: str) -> int:
    found: int = table.get(name, {}).get("used", 0)
    return found


def _share(used: int, limit: int | None) -> dict[str, Any]:
    """A limit of 0 is all used: there is nothing left."""
    percentage = 0.0 if limit is None else 100.0 if limit == 0 else round(100 * used / limit, 1)
    return {"used": used, "limit": limit, "percentage": percentage}


def _fields(limits: Limits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in Limits.__dataclass_fields__}


def _numbers(limits: Limits) -> dict[str, Any]:
    return {**_fields(limits), "domains": dict(limits.domains), "tools": dict(limits.tools)}
