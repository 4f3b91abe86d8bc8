"""`cuga.orchestrator.approval_manager` under its own name."""

from __future__ import annotations

from proctor.compat.approval_manager import ApprovalManager, ApprovalRequest

__all__ = ["ApprovalManager", "ApprovalRequest"]
