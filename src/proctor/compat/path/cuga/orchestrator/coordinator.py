"""`cuga.orchestrator.coordinator` under its own name."""

from __future__ import annotations

from proctor.compat.coordinator import AGENTSCoordinator
from proctor.protocol.plans import ExecutionResult

__all__ = ["AGENTSCoordinator", "ExecutionResult"]
