"""Runs the migrations on the connection that `proctor.store.schema` hands over, inside its transaction.

The caller holds the lock and commits; a crash on the way leaves the database as it was.
"""

from __future__ import annotations

from alembic import context

from proctor.store.schema import VERSION_TABLE
from proctor.store.tables import metadata


def run() -> None:
    """Upgrade on the given connection; there is no offline mode and no URL of its own."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        transactional_ddl=True,
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
