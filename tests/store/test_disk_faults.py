"""A full disk, a read-only directory, a held lock, kill -9: one sentence with the cure, nothing acknowledged lost."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proctor.protocol.errors import StoreUnavailableError
from proctor.store import database as database_module
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from tests.support import require, writer

WRITER = [sys.executable, "-W", "error", str(writer.__file__)]
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
MANY = "100000"
# Imports first: afterwards this process may no longer be able to read where Python's packages lie.
AS_NOBODY = """
import os, sys, alembic.command, logging.config
from proctor.cli import db, main
from proctor.config import load_settings
from proctor.store import backup, schema, tables
from proctor.store.migrations import versions
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
sys.exit(main.main(sys.argv[2:]))
"""


def _write(url: str, count: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WRITER, url, count], capture_output=True, text=True, timeout=100, **options)  # type: ignore[call-overload, no-any-return]


def _names(url: str) -> set[str]:
    return set(_write(url, "list").stdout.split())


@pytest.mark.slow
def test_file_that_may_not_grow_loses_nothing_acknowledged(sqlite_path: Path) -> None:
    """A write the system refuses ends in one sentence; all rows said before it are there; then it goes on."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))

    url = sqlite_url(sqlite_path)
    done = _write(url, MANY, preexec_fn=limit)
    assert done.returncode == 6
    assert done.stderr.startswith(f"The database {sqlite_path} cannot be used: ")
    assert done.stderr.count("\n") == 1
    acknowledged = set(done.stdout.split())
    assert len(acknowledged) > 20
    assert acknowledged <= _names(url)
    assert _write(url, "3").returncode == 0


def _can_mount() -> bool:
    probe = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"]
    return (
        bool(shutil.which("unshare"))
        and subprocess.run(probe, capture_output=True, timeout=20).returncode == 0
    )


@pytest.mark.slow
def test_full_disk_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """On a really full file system: one sentence that says so, and after making room everything goes on."""
    cure = "Run as root or allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)."
    require(_can_mount(), "a small file system cannot be mounted", cure)
    disk = tmp_path / "disk"
    disk.mkdir()
    write = f'"{sys.executable}" "{writer.__file__}" "{sqlite_url(disk / "proctor.db")}"'
    script = f"""
    mount -t tmpfs -o size=4m none "{disk}" && head -c 3000000 /dev/zero >"{disk}/ballast" || exit 99
    {write} {MANY} >"{tmp_path}/said" 2>"{tmp_path}/error"; echo $? >"{tmp_path}/code"
    rm "{disk}/ballast"
    {write} 3 >>"{tmp_path}/said" || exit 97
    {write} list >"{tmp_path}/kept" || exit 96
    """
    assert subprocess.run([*UNSHARE, "sh", "-c", script], timeout=100).returncode == 0
    error = (tmp_path / "error").read_text()
    assert (tmp_path / "code").read_text() == "6\n"
    assert "disk is full" in error
    assert "Free some space" in error
    assert error.count("\n") == 1
    said = (tmp_path / "said").read_text().split()
    assert len(said) > 10
    assert set(said) <= set((tmp_path / "kept").read_text().split())


def test_kill_nine_loses_nothing_acknowledged(sqlite_path: Path) -> None:
    """A writer killed in the middle leaves all it has said, and a file that opens."""
    url = sqlite_url(sqlite_path)
    with subprocess.Popen([*WRITER, url, MANY], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline().strip() for _ in range(30)]
        child.send_signal(signal.SIGKILL)
        said += [line.strip() for line in child.stdout if line.endswith("\n")]
    assert set(said) <= _names(url)


@pytest.fixture
def locked_place() -> Iterator[Path]:
    """A directory that the test's children may enter but not write."""
    place = Path(tempfile.mkdtemp(prefix="proctor-ro-", dir="/tmp"))
    yield place
    place.chmod(0o755)
    shutil.rmtree(place)


def _run_without_rights(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    place.chmod(0o555)
    nobody = str(pwd.getpwnam("nobody").pw_uid)
    path = str(place / "proctor.db")
    environment = {**os.environ, "HOME": str(place), "PROCTOR_DATABASE_URL": f"sqlite:///{path}"}
    command = [sys.executable, "-c", AS_NOBODY, nobody, *words]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize("words", [("db", "upgrade"), ("db", "check")], ids=" ".join)
def test_read_only_directory_ends_in_one_sentence(
    locked_place: Path, sqlite_template: Path, existing: bool, words: tuple[str, ...]
) -> None:
    """Whether the file is there or not: what is wrong and the cure, exit code 6 (4 when there is nothing to check)."""
    if existing:
        shutil.copy(sqlite_template, locked_place / "proctor.db")
        (locked_place / "proctor.db").chmod(0o444)
    done = _run_without_rights(locked_place, *words)
    assert done.returncode == (4 if words == ("db", "check") and not existing else 6), done.stderr
    assert done.stderr.startswith("proctor: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_lock_held_too_long_ends_in_one_sentence(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that waits in vain for another process says who is in the way, and works when it is gone."""
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 0.1)
    database = Database(sqlite_url(sqlite_path))
    with closing(sqlite3.connect(sqlite_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="Another process holds it"), database.write():
            pass
        other.execute("ROLLBACK")
    with database.write() as connection:
        connection.exec_driver_sql("INSERT INTO task_queue (description) VALUES ('now')")
    database.close()


def test_directory_in_the_place_of_the_file_ends_in_one_sentence(tmp_path: Path) -> None:
    """What cannot be opened at all is said so, with the cure."""
    (tmp_path / "proctor.db").mkdir()
    with pytest.raises(StoreUnavailableError, match="unable to open database file"):
        open_database(sqlite_url(tmp_path / "proctor.db"))
