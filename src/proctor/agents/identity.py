"""Who an attempt's processes are, for whoever writes them down or looks for them; see `sandbox.identity`."""

from __future__ import annotations

from proctor.sandbox.identity import ProcessIdentity, boot, find_and_kill, start_time, survivors

__all__ = ["ProcessIdentity", "boot", "find_and_kill", "start_time", "survivors"]
