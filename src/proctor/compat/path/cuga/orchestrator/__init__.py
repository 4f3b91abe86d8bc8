"""`cuga.orchestrator` under its own name; everything is `proctor.compat.orchestrator`."""

from __future__ import annotations

from proctor.compat.orchestrator import (
    AGENTSCoordinator,
    ApprovalManager,
    ApprovalRequestAGENTS,
    BudgetEnforcer,
    ErrorPropagation,
    ExecutionContext,
    ExecutionResult,
    FailureCategory,
    FailureMode,
    FailureSeverity,
    PartialResult,
    Plan,
    PlanningStage,
    PlanStep,
    ProfileConfig,
    ProfileLoader,
    ToolBudget,
    ToolBudgetEnforcer,
    TraceEmitter,
)

__all__ = [
    "AGENTSCoordinator",
    "ApprovalManager",
    "ApprovalRequestAGENTS",
    "BudgetEnforcer",
    "ErrorPropagation",
    "ExecutionContext",
    "ExecutionResult",
    "FailureCategory",
    "FailureMode",
    "FailureSeverity",
    "PartialResult",
    "Plan",
    "PlanStep",
    "PlanningStage",
    "ProfileConfig",
    "ProfileLoader",
    "ToolBudget",
    "ToolBudgetEnforcer",
    "TraceEmitter",
]
