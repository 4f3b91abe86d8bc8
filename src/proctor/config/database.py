"""Which database: the embedded one by default, PostgreSQL for a team; there is never a default password.

`DB_HOST` and its companions of the seeds count from the process's environment only: in a `.env` they nearly
always belong to the application under work, and Proctor's tables must not land in that one's database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from proctor.config.paths import Paths
from proctor.protocol.errors import ConfigError

__all__ = ["DATABASE_VARIABLE", "DB_VARIABLES", "Databases", "choose_databases"]

DATABASE_VARIABLE = "PROCTOR_DATABASE_URL"
DB_VARIABLES = ("DB_HOST", "DB_PORT", "DB_USER", "DB_PASSWORD", "DB_NAME")
EXAMPLE = "Write postgresql://user:password@host/name or sqlite:////absolute/path.db."


class Databases(NamedTuple):
    """Our database, the engine's, and where that was decided."""

    url: str
    engine_url: str
    source: str


def choose_databases(paths: Paths, environ: Mapping[str, str], given: str, given_at: str) -> Databases:
    """Take the URL that was given for Proctor, else the seeds' variables, else the embedded database."""
    if given:
        return _given(given.strip(), given_at)
    if environ.get("DB_HOST"):
        url = _from_parts(environ)
        return Databases(url, url, "environment DB_HOST")
    return Databases(_file_url(paths.proctor_db), _file_url(paths.engine_db), "default")


def _file_url(path: Path) -> str:
    """Name a file as a URL, whatever characters the user's directories have."""
    return f"sqlite:///{quote(str(path), safe='/ ')}"


def _given(url: str, where: str) -> Databases:
    scheme = url.partition(":")[0].lower()
    if scheme in {"postgres", "postgresql", "postgresql+psycopg"}:
        url = _postgres("postgresql" + url[len(scheme) :], where)
        return Databases(url, url, where)
    if scheme == "sqlite":
        return _sqlite(url, where)
    raise _wrong(where, "names a database that is neither PostgreSQL nor SQLite", EXAMPLE)


def _postgres(url: str, where: str) -> str:
    try:
        parts = urlsplit(url)
        port, name = parts.port, parts.path.strip("/")
    except ValueError:
        raise _wrong(where, "is not a URL", EXAMPLE) from None
    if (
        not url.startswith("postgresql://")
        or port == 0
        or not name
        or "/" in name
        or re.search(r"\s|[\x00-\x1f]", url)
    ):
        raise _wrong(where, "is not the URL of a PostgreSQL database", EXAMPLE)
    return url


def _sqlite(url: str, where: str) -> Databases:
    path = url.removeprefix("sqlite:///")
    if path == url or not path.startswith("/") or path.endswith("/") or "?" in path or "\0" in path:
        raise _wrong(where, "must name a file by its absolute path", EXAMPLE)
    engine = Path(path).with_name("engine.db")
    if engine == Path(path):
        raise _wrong(where, "names engine.db, the engine's own file", "Choose another file name.")
    return Databases(f"sqlite:///{path}", f"sqlite:///{engine}", where)


def _from_parts(environ: Mapping[str, str]) -> str:
    """Build the URL from the seeds' variables; a part that is missing is an error, never a guess."""
    lacking = [name for name in ("DB_USER", "DB_NAME") if not environ.get(name)]
    if lacking:
        problem = f"is set, but {' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not"
        raise _wrong(
            "environment DB_HOST", problem, f"Set all of {', '.join(DB_VARIABLES)}, or {DATABASE_VARIABLE}."
        )
    host, port = environ["DB_HOST"], environ.get("DB_PORT") or "5432"
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise _wrong("environment DB_PORT", "must be a port number", "The usual one is 5432.")
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        raise _wrong("environment DB_HOST", "must be the name or address of a host", EXAMPLE)
    password = f":{quote(environ['DB_PASSWORD'], safe='')}" if environ.get("DB_PASSWORD") else ""
    user, name = quote(environ["DB_USER"], safe=""), quote(environ["DB_NAME"], safe="")
    return f"postgresql://{user}{password}@{f'[{host}]' if ':' in host else host}:{port}/{name}"


def _wrong(where: str, problem: str, allowed: str) -> ConfigError:
    return ConfigError(
        where=where, problem=f"the database {problem}" if "DB_" not in where else problem, allowed=allowed
    )
