"""Seed 002's `AGENTSCoordinator` over the real engine: its plans are durable, governed and traced like all others.

One coordinator holds one budget for all plans it executes. Its profile rules; what a plan or a context names as theirs
cannot loosen it. Safe for many threads.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from proctor.compat.approval_manager import ApprovalManager
from proctor.compat.budget_enforcer import BudgetEnforcer, ToolBudget
from proctor.compat.house import House
from proctor.compat.planning import ExecutionContext, Plan, PlanStep
from proctor.compat.profile_loader import ProfileLoader
from proctor.compat.trace_emitter import TraceEmitter, as_seed_event
from proctor.engine.plan_run import Waits
from proctor.gate.profiles import find_profile
from proctor.protocol import plans
from proctor.protocol.errors import NotFoundError
from proctor.protocol.events import EventKind
from proctor.protocol.failures import ErrorPropagation
from proctor.protocol.ids import new_id
from proctor.protocol.limits import Allowance
from proctor.protocol.plans import ExecutionResult
from proctor.protocol.tools import MOCK
from proctor.trace.reader import stream

__all__ = ["AGENTSCoordinator"]

_MAX_TRACES: Final = 100


class AGENTSCoordinator:
    """Executes plans under one profile, one budget and one trace."""

    def __init__(
        self,
        profile: str = "enterprise",
        trace_emitter: TraceEmitter | None = None,
        *,
        profile_loader: ProfileLoader | None = None,
        house: House | None = None,
        workspace: Path | None = None,
        approval_wait: float = 0.0,
        on_error: str = "continue",
    ) -> None:
        self.profile_loader = profile_loader or ProfileLoader()
        self.profile_config = self.profile_loader.load_profile(profile)
        self.trace_emitter = trace_emitter or TraceEmitter(house=house)
        budget = self.profile_config.budget
        self.budget_enforcer = BudgetEnforcer(
            budget=ToolBudget(
                total_calls=budget["total_calls"],
                calls_per_domain=dict(budget.get("calls_per_domain", {})),
                calls_per_tool=dict(budget.get("calls_per_tool", {})),
                warning_threshold=budget.get("warning_threshold", 0.8),
            ),
            trace_emitter=self.trace_emitter,
        )
        self.approval_manager = ApprovalManager(trace_emitter=self.trace_emitter)
        self.workspace = workspace
        self._wait = approval_wait
        self._on_error = ErrorPropagation(on_error)
        self._app = self.trace_emitter.house.app_with(self.profile_loader.tables())
        self._traces: dict[str, None] = {self.trace_emitter.trace_id: None}
        self._lock = threading.Lock()

    async def execute_plan(
        self, plan: Plan, execution_context: ExecutionContext | None = None
    ) -> ExecutionResult:
        """Execute a plan, or go on with it: the same plan_id again continues where it parked.

        Without anybody to answer (`approval_wait` 0) a step that needs an answer is parked, not run.
        """
        context = execution_context or ExecutionContext(trace_id=plan.trace_id or self.trace_emitter.trace_id)
        self._remember(context.trace_id)
        await asyncio.to_thread(self._warn, plan)
        result = await self._app.plans.execute_plan(
            self._ours(plan),
            context.ours(),
            workspace=self.workspace,
            waits=Waits(hold_s=self._wait),
            allowances=(self._allowance(),),
            by="AGENTSCoordinator",
        )
        return await self._with_budget(result)

    async def resume_plan(self, plan_id: str) -> ExecutionResult:
        """Go on with a plan by its id: a failed one tries again what failed."""
        again = partial(self._app.plans.resume, plan_id, by="AGENTSCoordinator", hand_over=False)
        row = await asyncio.to_thread(again)
        result = await self._app.plans.go_on(
            row.plan_id, waits=Waits(hold_s=self._wait), allowances=(self._allowance(),)
        )
        return await self._with_budget(result)

    def _allowance(self) -> Allowance:
        profile = find_profile(self.profile_config.name, self._app.settings.profiles)
        return self.budget_enforcer.allowance(quiet_as=profile.limits)

    async def _with_budget(self, result: ExecutionResult) -> ExecutionResult:
        return replace(result, budget_utilization=await asyncio.to_thread(self.get_budget_utilization))

    def _remember(self, trace_id: str) -> None:
        with self._lock:
            self._traces[trace_id] = None
            while len(self._traces) > _MAX_TRACES:
                self._traces.pop(next(iter(self._traces)))

    def _warn(self, plan: Plan) -> None:
        """A plan over its own ceilings, where they only warn, is told once before it begins."""
        if plan.budget.policy != "warn" or plan.budget_sufficient() or self._known(plan.plan_id):
            return
        details = {
            "scope": "plan",
            "plan_id": plan.plan_id,
            "steps": len(plan.steps),
            "call_ceiling": plan.budget.call_ceiling,
            "why": "the plan's own ceilings do not hold all of it",
        }
        self.trace_emitter.emit("budget_warning", details, status="warning")

    def _known(self, plan_id: str) -> bool:
        with suppress(NotFoundError):
            return self._app.plans.get(plan_id).plan_id == plan_id
        return False

    def _ours(self, plan: Plan) -> plans.Plan:
        return plans.Plan(
            goal=plan.goal,
            steps=tuple(step.ours() for step in plan.steps),
            plan_id=plan.plan_id,
            trace_id=plan.trace_id,
            profile=self.profile_config.name,
            budget=plan.budget.limits(),
            on_error=self._on_error,
            metadata=dict(plan.metadata),
        )

    async def _execute_tool(self, step: PlanStep) -> dict[str, Any]:
        """One step alone, as a plan of its own; its adapter is the mock unless the profile allows the one it names."""
        plan = Plan(plan_id=new_id("plan"), goal=step.name or step.tool, steps=[step])
        result = await self.execute_plan(plan, ExecutionContext(trace_id=self.trace_emitter.trace_id))
        if result.results:
            return dict(result.results[0])
        why = result.failure_context or {}
        return {"success": False, "tool": step.tool, "adapter": MOCK, "error": why.get("message"), **why}

    def get_trace(self) -> list[dict[str, Any]]:
        """All canonical events of the traces this coordinator worked in."""
        with self._lock:
            names = list(self._traces)
        database = self.trace_emitter.house.app.database
        found = [event for name in names for event in stream(database, name)]
        found.sort(key=lambda event: event.seq)
        return [as_seed_event(event) for event in found if event.kind is EventKind.CANONICAL]

    def get_golden_signals(self) -> dict[str, Any]:
        """Success rate, latency, error rate and the rest, of this coordinator's trace."""
        return self.trace_emitter.get_golden_signals()

    def get_budget_utilization(self) -> dict[str, Any]:
        """Used, limit and percentage: in all, by domain, by tool."""
        return self.budget_enforcer.get_utilization()
