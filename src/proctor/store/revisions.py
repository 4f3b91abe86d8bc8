"""The schema's revisions by name, apart from the code that runs them, so that a glance at a database stays cheap."""

from __future__ import annotations

__all__ = ["REVISIONS", "VERSION_TABLE"]

VERSION_TABLE = "proctor_schema"
# Every revision in order, the newest last. A test holds this against the migration files.
REVISIONS = ("2026_11_15_ground",)
