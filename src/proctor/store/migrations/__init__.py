"""Alembic migrations, shipped in the wheel; `proctor.store.schema` runs them, no alembic.ini is needed."""
