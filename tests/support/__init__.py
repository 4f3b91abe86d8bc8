"""What tests share: requirements that may be missing, and a real PostgreSQL server."""

from __future__ import annotations

from tests.support.requirements import require

__all__ = ["require"]
