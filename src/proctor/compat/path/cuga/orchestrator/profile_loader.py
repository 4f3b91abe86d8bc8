"""`cuga.orchestrator.profile_loader` under its own name."""

from __future__ import annotations

from proctor.compat.profile_loader import ProfileConfig, ProfileLoader

__all__ = ["ProfileConfig", "ProfileLoader"]
