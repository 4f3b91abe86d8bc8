"""Alembic migrations, shipped in the wheel; `proctor.store.schema` runs them, no alembic.ini is needed.

To change the schema: change `tables.py`, add `versions/YYYY_MM_DD_name.py` whose `down_revision` is the newest one
(both databases in one transaction, SQLite tables through `op.batch_alter_table`), and append its name to
`REVISIONS` in `schema.py`. tests/store/test_schema.py says what is still missing.
"""
