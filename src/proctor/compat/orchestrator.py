"""`cuga.orchestrator` of seed 002: its nine exports, and the words its users need beside them."""

from __future__ import annotations

from proctor.compat.approval_manager import ApprovalManager
from proctor.compat.approval_manager import ApprovalRequest as ApprovalRequestAGENTS
from proctor.compat.budget_enforcer import BudgetEnforcer
from proctor.compat.budget_enforcer import ToolBudget as ToolBudgetEnforcer
from proctor.compat.coordinator import AGENTSCoordinator
from proctor.compat.planning import ExecutionContext, Plan, PlanningStage, PlanStep, ToolBudget
from proctor.compat.profile_loader import ProfileConfig, ProfileLoader
from proctor.compat.trace_emitter import TraceEmitter
from proctor.protocol.failures import ErrorPropagation, FailureCategory, FailureMode, FailureSeverity
from proctor.protocol.plans import ExecutionResult, PartialResult

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
