"""Which schema a database has, and how it comes to the one this code knows.

SQLite migrates by itself when it is opened, PostgreSQL by `proctor db upgrade`; a newer schema is refused.
An up-to-date database costs one SELECT: Alembic is imported only when there is something to do.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from proctor.protocol.errors import SchemaOutdatedError, SchemaTooNewError, StoreUnavailableError
from proctor.store.database import Database
from proctor.store.revisions import REVISIONS, VERSION_TABLE

__all__ = [
    "REVISIONS",
    "VERSION_TABLE",
    "head_version",
    "is_missing",
    "open_database",
    "schema_version",
    "upgrade",
]

# Any fixed number; it only has to be the same in every Proctor that migrates the same PostgreSQL.
_ADVISORY_LOCK = 7_283_665_141


def head_version() -> str:
    """Name the schema this code knows."""
    return REVISIONS[-1]


def open_database(url: str, *, migrate: bool | None = None) -> Database:
    """Open a database whose schema fits this code; `migrate` None means: on SQLite yes, on PostgreSQL no."""
    database = Database(url)
    with ExitStack() as failed:
        failed.callback(database.close)
        _prepare_file(database)
        _fit(database, migrate=database.dialect == "sqlite" if migrate is None else migrate)
        failed.pop_all()
    return database


def _fit(database: Database, *, migrate: bool) -> None:
    found = schema_version(database)
    if found == head_version():
        return
    _refuse_newer(database, found)
    if not migrate:
        raise SchemaOutdatedError(place=database.place, found=found or "none", known=head_version())
    upgrade(database)


def schema_version(database: Database) -> str | None:
    """Read which schema the database has; None when it has none yet. Makes no file."""
    if is_missing(database):
        return None
    with database.read() as connection:
        return _read_version(connection)


def upgrade(database: Database) -> str:
    """Bring the schema to this code's version in one transaction; harmless when repeated or done at once."""
    _prepare_file(database)
    with database.write() as connection:
        if database.dialect == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        # Read again under the lock: whoever waited for it finds the work done.
        found = _read_version(connection)
        _refuse_newer(database, found)
        if found != head_version():
            _run_migrations(connection)
    return head_version()


def _read_version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()
    return None if found is None else str(found)


def _refuse_newer(database: Database, found: str | None) -> None:
    if found is not None and found not in REVISIONS:
        raise SchemaTooNewError(place=database.place, found=found, known=head_version())


def _run_migrations(connection: sa.Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "proctor.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _prepare_file(database: Database) -> None:
    """Make the directory and the file of an SQLite database so that only the user can read them."""
    if database.dialect != "sqlite":
        return
    path = Path(database.place)
    with _explained(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _create_private(path)


def is_missing(database: Database) -> bool:
    """Tell that an SQLite database has no file yet; connecting to look would make an empty one."""
    if database.dialect != "sqlite":
        return False
    with _explained(Path(database.place)):
        return not Path(database.place).exists()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror} ({error.filename})"
        cure = (
            "Make the directory writable, or set XDG_STATE_HOME or PROCTOR_DATABASE_URL to a place that is."
        )
        raise StoreUnavailableError(place=path, reason=reason, cure=cure) from error


def _create_private(path: Path) -> None:
    """Put an empty file of mode 0600 in place without ever opening the database file itself.

    Closing any descriptor of a file drops all POSIX locks this process has on it: opening the file here could
    take the lock from an SQLite connection of another thread and let a second process damage the database.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    try:
        with suppress(FileExistsError):
            Path(path).hardlink_to(temporary)
    finally:
        Path(temporary).unlink()
