"""Fixtures for all tests: a HOME of their own, and fresh, migrated databases on SQLite and a real PostgreSQL.

All xdist workers share one PostgreSQL server: the first test that needs it starts it under a lock, the main
process removes it at the end, and a keeper removes it should the main process be killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database, upgrade
from tests.support.postgres import PostgresServer
from tests.support.requirements import missing

# Machines are noisy, so no test is judged by its time. CI tries the same examples each run; elsewhere they are new ones.
settings.register_profile("proctor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("proctor"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "proctor")
SERVER_HOME = pytest.StashKey[Path]()
TEMPLATE = "proctor_template"


def pytest_configure(config: pytest.Config) -> None:
    """Choose where the shared server will lie; workers hear it from the main process. No test uses a real key or model.

    Ctrl-C must reach what tests start, also when a shell started us in the background and had it ignored.
    """
    with contextlib.suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CLAUDE_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        os.environ.pop(name, None)
    os.environ["OLLAMA_HOST"] = "http://127.0.0.1:9"
    given = getattr(config, "workerinput", {}).get("proctor_server_home")
    config.stash[SERVER_HOME] = Path(given) if given else PostgresServer.new_home()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker where the shared server lies and whose it is."""
    node.workerinput["proctor_server_home"] = str(node.config.stash[SERVER_HOME])
    node.workerinput["proctor_owner"] = os.getpid()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the shared server; workers have ended by now."""
    if not hasattr(config, "workerinput") and SERVER_HOME in config.stash:
        PostgresServer(config.stash[SERVER_HOME]).remove()


def _not_run(reporter: Any) -> list[tuple[str, str]]:
    reports = reporter.stats.get("skipped", [])
    return [(report.nodeid, lack) for report in reports if (lack := missing(report))]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List by name what could not run on this machine, with the cure."""
    rows = _not_run(terminalreporter)
    if rows:
        terminalreporter.section("Could not run here:", sep="-")
        for name, lack in rows:
            terminalreporter.line(f"{name}: {lack}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where everything is expected to run, a test that could not is a failure."""
    if hasattr(session.config, "workerinput") or os.environ.get("CI", "").lower() not in {"true", "1"}:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if (
        reporter is not None
        and _not_run(reporter)
        and exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME of the test's own, with the XDG directories in it and none of the user's Proctor settings."""
    place = tmp_path / "home"
    place.mkdir()
    for name in [name for name in os.environ if name.startswith(("XDG_", "PROCTOR_", "DB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(place))
    for name in ("config", "state", "data", "cache", "runtime"):
        (place / name).mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{name.upper()}_{'DIR' if name == 'runtime' else 'HOME'}", str(place / name))
    return place


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> PostgresServer:
    """The one PostgreSQL server of this run."""
    home = pytestconfig.stash[SERVER_HOME]
    owner: int = getattr(pytestconfig, "workerinput", {}).get("proctor_owner", os.getpid())
    with (home / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        server = PostgresServer(home)
        if not server.running():
            server.keep(owner)
            server.start()
            _make_template(server)
    return server


def _make_template(server: PostgresServer) -> None:
    server.execute(f"CREATE DATABASE {TEMPLATE}")
    database = Database(server.url(TEMPLATE))
    upgrade(database)
    database.close()


@pytest.fixture
def empty_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh PostgreSQL database without any table."""
    with postgres_server.fresh() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, migrated PostgreSQL database."""
    with postgres_server.fresh(TEMPLATE) as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy; migrating takes longer than copying."""
    path = tmp_path_factory.mktemp("template") / "proctor.db"
    open_database(sqlite_url(path)).close()
    return path


@pytest.fixture
def sqlite_path(tmp_path: Path, sqlite_template: Path) -> Path:
    """A fresh, migrated SQLite file."""
    path = tmp_path / "state" / "proctor.db"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(sqlite_template, path)
    return path


@pytest.fixture
def sqlite_database(sqlite_path: Path) -> Iterator[Database]:
    """A fresh, migrated SQLite database."""
    database = open_database(sqlite_url(sqlite_path))
    yield database
    database.close()


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[Database]:
    """A fresh, migrated PostgreSQL database."""
    database = open_database(postgres_url)
    yield database
    database.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> Database:
    """A fresh, migrated database; the test runs once on SQLite and once on PostgreSQL."""
    wanted = "sqlite_database" if request.param == "sqlite" else "postgres_database"
    found: Database = request.getfixturevalue(wanted)
    return found
