"""Is a database whole? Looks, changes nothing, and names each thing that is wrong with its cure.

A file that cannot be read at all is no finding: that ends in StoreCorruptError or StoreUnavailableError.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from proctor.protocol.errors import NotFoundError
from proctor.store.database import Database
from proctor.store.schema import REVISIONS, head_version, is_missing, schema_version
from proctor.store.tables import approvals, metadata, task_queue

__all__ = ["Finding", "check", "require_file"]

# More of the same tells nothing new; each list says when it is cut.
MOST = 20
_RESTORE = "Restore the newest copy made by `proctor db backup`."


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where, what, and how to mend it."""

    subject: str
    problem: str
    cure: str


def require_file(database: Database) -> None:
    """Refuse to look at an SQLite file that is not there: connecting would make an empty one."""
    if is_missing(database):
        cure = "The first command that stores something makes it."
        raise NotFoundError(kind="database", name=database.place, cure=cure)


def check(database: Database) -> list[Finding]:
    """Examine the whole database; an empty list means that nothing is wrong."""
    require_file(database)
    findings = list(_schema(database))
    with database.read() as connection:
        findings += (
            _sqlite(connection, Path(database.place))
            if database.dialect == "sqlite"
            else _postgres(connection)
        )
        # Rows of another schema would be judged by the wrong rules.
        if not findings:
            findings += _orphans(connection)
    return findings


def _schema(database: Database) -> Iterator[Finding]:
    found = schema_version(database)
    if found is None or found in REVISIONS[:-1]:
        text = f"it has schema {found or 'none'!r} and needs {head_version()!r}"
        yield Finding("schema", text, "Run `proctor db upgrade`.")
    elif found not in REVISIONS:
        yield Finding("schema", f"schema {found!r} is newer than {head_version()!r}", "Upgrade Proctor.")


def _sqlite(connection: sa.Connection, path: Path) -> Iterator[Finding]:
    damage = connection.exec_driver_sql(f"PRAGMA integrity_check({MOST})").scalars().all()
    if damage != ["ok"]:
        yield from (Finding("integrity", str(line), _RESTORE) for line in damage)
        return
    lost = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(MOST)
    yield from (
        Finding("foreign keys", f"row {row[1]} of {row[0]} points at no row of {row[2]}", _RESTORE)
        for row in lost
    )
    journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if journal != "wal":
        yield Finding(
            "journal", f"journal mode is {journal!r}, not WAL", "Move it off the network file system."
        )
    loose = stat.S_IMODE(path.stat().st_mode) & 0o077
    if loose:
        yield Finding("permissions", "others on this machine can open it", f"Run `chmod 600 {path}`.")


def _postgres(connection: sa.Connection) -> Iterator[Finding]:
    statement = (
        "SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
        " WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace"
    )
    for name in connection.exec_driver_sql(statement).scalars().fetchmany(MOST):
        yield Finding("index", f"index {name} is not valid", f"Run `REINDEX INDEX {name}` on the server.")


def _orphans(connection: sa.Connection) -> Iterator[Finding]:
    """Find rows that point at nothing; also where no foreign key forbids it."""
    links = [(key.parent, key.column) for table in metadata.sorted_tables for key in table.foreign_keys]
    for child, parent in [*links, (approvals.c.task_id, task_queue.c.task_id)]:
        there = sa.exists().where(parent == child)
        lost = sa.select(sa.func.count()).select_from(child.table).where(child.is_not(None), ~there)
        count = connection.execute(lost).scalar_one()
        if count:
            yield Finding(
                "orphans",
                f"{count} rows of {child.table.name} name a {child.name} that is not there",
                _RESTORE,
            )
