"""What is well and what is not on this machine, row by row, each trouble with its cure. Looks only; never imports dbos.

A check that cannot even be made is a row too: whatever is broken, the others still answer.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from proctor import __version__
from proctor.config import Settings, load_settings
from proctor.protocol.errors import ConfigError, ProctorError, RefusedError, UnavailableError

__all__ = ["Check", "examine"]

GIT_MERGE_TREE = (2, 38)
SQLITE_SUBSECONDS = (3, 42)
LOW_BYTES, NO_BYTES = 1 << 30, 100 << 20
COMMAND_SECONDS = 20.0
KEY_VARIABLE = "PROCTOR_TRACE_KEY"
EXTRAS = {
    "fast": ("hyperscan", "finds secrets in one pass over the text"),
    "otlp": ("opentelemetry.exporter.otlp.proto.http", "sends the trace to an OpenTelemetry collector"),
}
_WRITABLE = "Make it yours and writable, or set the XDG variables to a place that is."


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the answer."""

    name: str
    state: str
    """ok, warn or fail."""
    detail: str
    cure: str = ""


Rows = Iterator[Check]


def examine(start: Path | None = None) -> Iterator[Check]:
    """Make every check, one after the other."""
    yield from _guarded("python", _python)
    yield from _guarded("sqlite", _sqlite)
    yield from _guarded("git", _git)
    settings: list[Settings] = []
    yield from _guarded("settings", lambda: _settings(start, settings))
    if not settings:
        return
    found = settings[0]
    for name, check in _CHECKS:
        yield from _guarded(name, partial(check, found))
    yield from _guarded("extras", _extras)


def _guarded(name: str, check: Callable[[], Rows]) -> Rows:
    """The rows of one check; its failure is a row."""
    try:
        yield from check()
    except ProctorError as error:
        yield Check(name, "fail", str(error))
    except OSError as error:
        yield Check(name, "fail", f"{error.strerror or error} ({error.filename or name})", _WRITABLE)


# The machine


def _python() -> Rows:
    yield Check("proctor", "ok", f"{__version__} at {Path(__file__).resolve().parents[1]}")
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable}) on {platform.platform()}")


def _sqlite() -> Rows:
    note = ""
    if sqlite3.sqlite_version_info < SQLITE_SUBSECONDS:
        note = "; older than 3.42, so the engine gets our own unixepoch('subsec')"
    yield Check("sqlite", "ok", f"{sqlite3.sqlite_version}{note}")


def _git() -> Rows:
    try:
        done = subprocess.run(
            ["git", "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        yield Check("git", "fail", "git is not on PATH", "Install git 2.38 or newer.")
        return
    except subprocess.TimeoutExpired:
        yield Check("git", "fail", f"git did not answer within {COMMAND_SECONDS:g} s", "Run `git --version`.")
        return
    version = done.stdout.strip().removeprefix("git version ")
    if done.returncode != 0 or not version:
        yield Check("git", "fail", done.stderr.strip()[:200] or "git does not work", "Run `git --version`.")
    elif _numbers(version) < GIT_MERGE_TREE:
        yield Check(
            "git", "warn", f"{version}: too old to merge without a checkout", "Install git 2.38 or newer."
        )
    else:
        yield Check("git", "ok", version)


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(" ", maxsplit=1)[0].split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)


# Settings


def _settings(start: Path | None, found: list[Settings]) -> Rows:
    """Wrong settings of this workspace are a row; the rest is then looked at without them."""
    try:
        settings = load_settings(start)
    except ConfigError as error:
        facts = error.facts
        yield Check("settings", "fail", f"{facts['where']}: {facts['problem']}", str(facts["allowed"]))
        with suppress(ConfigError):  # then it is the environment that is wrong, and the row above names it
            found.append(load_settings(Path("/")))
        return
    found.append(settings)
    where = f"workspace {settings.workspace}" if settings.workspace else "no workspace here"
    yield Check("settings", "ok", where)


# State


def _paths(settings: Settings) -> Rows:
    paths = settings.paths
    places = {"state": paths.state_dir, "data": paths.data_dir, "runtime": paths.runtime_dir}
    for name, place in places.items():
        yield _directory(f"{name} directory", place, private=name != "data")


def _directory(name: str, place: Path, *, private: bool) -> Check:
    if not place.exists():
        parent = _nearest(place)
        if os.access(parent, os.W_OK | os.X_OK):
            return Check(name, "ok", f"{place} (made at first use)")
        return Check(name, "fail", f"{place} cannot be made: {parent} is not writable", _WRITABLE)
    if not place.is_dir() or not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return Check(name, "fail", f"{place} is not a directory that can be read and written", _WRITABLE)
    mode = stat.S_IMODE(place.stat().st_mode)
    if private and mode & 0o077:
        return Check(
            name, "warn", f"{place} can be opened by others (mode {mode:04o})", f"Run `chmod 700 {place}`."
        )
    return Check(name, "ok", str(place))


def _nearest(place: Path) -> Path:
    return next(parent for parent in (place, *place.parents) if parent.exists())


def _disk(settings: Settings) -> Rows:
    for name, place in (("state", settings.paths.state_dir), ("data", settings.paths.data_dir)):
        free = shutil.disk_usage(_nearest(place)).free
        state = "fail" if free < NO_BYTES else "warn" if free < LOW_BYTES else "ok"
        cure = "" if state == "ok" else "Free some space; `proctor gc` removes what is old."
        yield Check(f"disk space for {name}", state, f"{free / 2**30:.1f} GiB free at {place}", cure)


def _database(settings: Settings) -> Rows:
    from proctor.store.database import Database
    from proctor.store.schema import head_version, is_missing, schema_version

    database = Database(settings.database_url)
    try:
        if is_missing(database):
            yield Check(
                "database", "ok", f"{database.place} (made by the first command that stores something)"
            )
            return
        found = schema_version(database)
        yield Check("database", "ok", f"{database.place}, schema {found or 'none yet'}")
        yield from _schema(found, head_version(), database.dialect)
        # Takes the write lock and gives it back: proves that writing is allowed without writing anything.
        with database.write() as connection:
            if database.dialect == "sqlite":
                yield _journal(str(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()))
        yield Check("database writable", "ok", "a transaction could be begun")
    finally:
        database.close()


def _schema(found: str | None, wanted: str, dialect: str) -> Rows:
    from proctor.store.schema import REVISIONS

    if found is not None and found not in REVISIONS:
        yield Check(
            "database schema", "fail", f"{found} is newer than this Proctor's {wanted}", "Upgrade Proctor."
        )
    elif found != wanted and dialect == "postgresql":
        yield Check(
            "database schema", "fail", f"{found or 'none'}, needs {wanted}", "Run `proctor db upgrade`."
        )
    elif found != wanted:
        yield Check("database schema", "ok", f"{found or 'none'}; the next command brings it to {wanted}")


def _journal(mode: str) -> Check:
    if mode == "wal":
        return Check("database journal", "ok", "WAL")
    return Check("database journal", "fail", f"{mode}, not WAL", "Move it off the network file system.")


def _key(settings: Settings) -> Rows:
    path = settings.paths.key_file
    if settings.environ.get(KEY_VARIABLE):
        yield Check("trace key", "ok", f"from the environment ({KEY_VARIABLE})")
    elif path.exists():
        mode = stat.S_IMODE(path.stat().st_mode)
        good = not mode & 0o077
        cure = "" if good else f"Run `chmod 600 {path}`."
        yield Check("trace key", "ok" if good else "fail", f"{path}, mode {mode:04o}", cure)
    elif _has_events(settings):
        cure = "Put the file back; without it the trace can neither be verified nor written."
        yield Check("trace key", "fail", f"{path} is missing although there are events", cure)
    else:
        yield Check("trace key", "ok", f"{path} (made with the first event)")


def _has_events(settings: Settings) -> bool:
    from proctor.store.glance import glance

    with glance(settings.database_url) as look:
        return look is not None and bool(look.rows("SELECT trace_id FROM trace_heads LIMIT 1"))


# Processes and agents


def _supervisor(settings: Settings) -> Rows:
    from proctor.engine.client import greet

    log = settings.paths.log_file
    hello = greet(settings.paths)
    if hello is None:
        yield Check("supervisor", "ok", f"not running; started on demand. Log: {log}")
    elif hello.version != __version__:
        detail = f"pid {hello.pid} is version {hello.version}, this is {__version__}. Log: {log}"
        yield Check("supervisor", "warn", detail, "The next command that needs it replaces it.")
    else:
        detail = f"pid {hello.pid}, version {hello.version}, {len(hello.running)} running. Log: {log}"
        yield Check("supervisor", "ok", detail)
        if hello.http:
            yield Check("http", "ok", f"{hello.http}; `proctor open` signs a browser in")
        elif hello.no_http:
            cure = "`proctor supervisor stop`; the next command starts one anew."
            yield Check("http", "warn", hello.no_http, cure)


def _service(settings: Settings) -> Rows:
    from proctor.engine.service import plan

    try:
        planned = plan(settings.environ, settings.paths, platform=sys.platform, python=sys.executable)
    except (RefusedError, UnavailableError) as error:
        yield Check("service", "ok", f"optional, and not possible as it is: {error}")
        return
    if not planned.installed():
        yield Check("service", "ok", "not installed; optional: `proctor service install`")
    elif not planned.current():
        yield Check(
            "service", "warn", f"{planned.path} is out of date", "Run `proctor service install` again."
        )
    else:
        yield Check("service", "ok", f"{planned.path}: {planned.state()}")


def _sandbox(_settings: Settings) -> Rows:
    """Below level 2 proofs are not run and every command asks: worth a warning, no failure."""
    from proctor.sandbox.probe import describe, probe

    for row in describe(probe()):
        yield Check(row.name, "ok" if row.ok else "warn", row.detail, row.cure)


def _agents(settings: Settings) -> Rows:
    from proctor.agents.health import health_of_all
    from proctor.agents.roster import Roster

    listed = Roster(settings.agents).agents()
    health = health_of_all(listed, settings.environ)
    for agent in listed:
        found = health[agent.name]
        if agent.seed and not (found.present or agent.configured):
            continue
        name = f"agent {agent.name}" + (" (simulated)" if found.simulated else "")
        detail = f"{found.reason} {found.version}".strip()
        yield Check(name, "ok" if found.online else "warn", detail, found.cure)
    if not any(one.online for one in health.values()):
        cure = "Install one of them, or set a model's key (`proctor agents --all`); `proctor demo` simulates them."
        yield Check("agents", "warn", "nobody can work here yet", cure)


def _extras() -> Rows:
    for extra, (module, use) in EXTRAS.items():
        there = _installed(module)
        detail = "installed" if there else f"not installed; optional: {use}"
        yield Check(
            f"extra {extra}",
            "ok",
            detail,
            "" if there else f"In the checkout: `uv tool install '.[{extra}]'`",
        )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


_CHECKS: tuple[tuple[str, Callable[[Settings], Rows]], ...] = (
    ("paths", _paths),
    ("disk space", _disk),
    ("database", _database),
    ("trace key", _key),
    ("supervisor", _supervisor),
    ("service", _service),
    ("sandbox", _sandbox),
    ("agents", _agents),
)
