"""A copy of the database while others go on using it: complete, checked and on disk before it gets its name.

SQLite is copied by VACUUM INTO (one snapshot, no writer waits); PostgreSQL by its own pg_dump.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from proctor.protocol.errors import IntegrityError, RefusedError, StoreUnavailableError, UnavailableError
from proctor.store.check import Finding, check, require_file
from proctor.store.database import Database

__all__ = ["Finding", "backup", "check"]

DUMP_SECONDS = 3600
_ROOM = "Choose a place that you can write and that has room for a copy."


def backup(database: Database, target: Path, *, make_directory: bool = False) -> Path:
    """Copy the database to the file `target`, or into the directory `target` under a name with the time."""
    require_file(database)
    copy = _choose(database, target, make_directory)
    with _part(copy) as part:
        if database.dialect == "sqlite":
            _copy_sqlite(database, part, copy)
        else:
            _dump_postgres(database, part)
    return copy


def _choose(database: Database, target: Path, make_directory: bool) -> Path:
    if make_directory:
        with _explained(target):
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.is_dir():
        suffix = "db" if database.dialect == "sqlite" else "dump"
        target = target / f"proctor-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.{suffix}"
    if target.exists():
        raise RefusedError(reason=f"{target} is already there", cure="Choose another name or delete it first")
    return target


@contextmanager
def _part(copy: Path) -> Iterator[Path]:
    """Give a private file beside the target; it takes the target's name only when all of it is on disk."""
    with _explained(copy):
        descriptor, name = tempfile.mkstemp(prefix=f".{copy.name}.", suffix=".part", dir=copy.parent)
        os.close(descriptor)
        try:
            yield Path(name)
            _sync(Path(name))
            Path(name).rename(copy)
            _sync(copy.parent)
        finally:
            Path(name).unlink(missing_ok=True)


@contextmanager
def _explained(copy: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(what=f"The backup {copy}", reason=error.strerror, cure=_ROOM) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_sqlite(database: Database, part: Path, copy: Path) -> None:
    try:
        with database.bare() as connection:
            connection.exec_driver_sql("VACUUM INTO ?", (str(part),))
    except StoreUnavailableError as error:
        # The file read before, so what failed is writing the copy.
        reason = error.facts["reason"]
        raise UnavailableError(what=f"The backup {copy}", reason=reason, cure=_ROOM) from error
    with closing(sqlite3.connect(part)) as connection:
        damage = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
    if damage != ["ok"]:
        raise IntegrityError(what=f"The backup {copy}", reason=damage[0])


def _dump_postgres(database: Database, part: Path) -> None:
    program = shutil.which("pg_dump")
    if program is None:
        cure = "Install PostgreSQL's client programs (`apt install postgresql-client`) or dump on the server."
        raise UnavailableError(what="pg_dump", reason="it is not on the PATH", cure=cure)
    with tempfile.TemporaryDirectory(prefix="proctor-") as private:
        url = _without_password(database, Path(private))
        _run([program, "--format=custom", "--no-password", f"--file={part}", f"--dbname={url}"])
    restore = shutil.which("pg_restore", path=str(Path(program).parent))
    if restore is not None:
        _run([restore, "--list", str(part)])


def _without_password(database: Database, private: Path) -> str:
    """Hand the password over in a private file: every user of the machine can read a command line."""
    url = database.url.set(drivername="postgresql")
    if url.password:
        passfile = private / "pgpass"
        secret = str(url.password).replace("\\", "\\\\").replace(":", "\\:")
        passfile.touch(mode=0o600)
        passfile.write_text(f"*:*:*:*:{secret}\n")
        query = {**url.query, "passfile": str(passfile)}
        # Made anew: `url.set(password=None)` would keep the password.
        url = sa.URL.create("postgresql", url.username, None, url.host, url.port, url.database, query)
    return url.render_as_string(hide_password=False)


def _run(command: list[str]) -> None:
    program = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DUMP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        cure = "Dump on the server itself."
        raise UnavailableError(what=program, reason=f"no end after {DUMP_SECONDS} s", cure=cure) from error
    if done.returncode:
        reason = next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}").rstrip(".")
        cure = "It must be at least as new as the server and able to reach it."
        raise UnavailableError(what=program, reason=reason.removeprefix(f"{program}: "), cure=cure)
