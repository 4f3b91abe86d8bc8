"""`cuga.orchestrator.budget_enforcer` under its own name."""

from __future__ import annotations

from proctor.compat.budget_enforcer import BudgetEnforcer, ToolBudget

__all__ = ["BudgetEnforcer", "ToolBudget"]
