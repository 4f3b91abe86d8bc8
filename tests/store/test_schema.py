"""Schema and code agree, on both databases and whoever opens first."""

from __future__ import annotations

from proctor.store.database import Database
from proctor.store.schema import head_version, schema_version


def test_fresh_database_has_the_newest_schema(database: Database) -> None:
    """A migrated database says so."""
    assert schema_version(database) == head_version()
