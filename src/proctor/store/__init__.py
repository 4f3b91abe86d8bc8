"""Durable state: tables, migrations, blobs; SQLite and PostgreSQL behind one engine factory."""
