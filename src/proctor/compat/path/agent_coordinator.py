"""`AgentCoordinator` under the name of its class, for code that would not call a module just `coordinator`."""

from __future__ import annotations

from proctor.compat.agent_coordinator import AgentCoordinator

__all__ = ["AgentCoordinator"]
