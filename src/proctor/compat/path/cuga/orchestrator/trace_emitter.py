"""`cuga.orchestrator.trace_emitter` under its own name."""

from __future__ import annotations

from proctor.compat.trace_emitter import TraceEmitter

__all__ = ["TraceEmitter"]
