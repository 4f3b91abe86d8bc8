"""What a database says when it cannot serve, put into one sentence with the cure.

Goes by error codes, not by words: words change with versions and languages, and may quote a user's data. Only a
refused connection to PostgreSQL has no code; there words choose the cure, and without a match it is the general one.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import sqlalchemy as sa

from proctor.protocol.errors import StoreCorruptError, StoreUnavailableError, UnavailableError

__all__ = ["explain"]

_DISK = "Free some space and run it again; nothing acknowledged was lost."
_PLACE = "Make the directory exist and be yours to write, or set XDG_STATE_HOME to one that is."
_SERVER = "Check PROCTOR_DATABASE_URL and that the server runs, then run it again."
_BUSY = "Another process holds it; wait for it to end, or see `proctor doctor`."

_SQLITE = {
    sqlite3.SQLITE_PERM: _PLACE,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_NOMEM: "Free some memory and run it again.",
    sqlite3.SQLITE_READONLY: _PLACE,
    sqlite3.SQLITE_IOERR: "Check the disk and its quota; `proctor db check` tests the file.",
    sqlite3.SQLITE_FULL: _DISK,
    sqlite3.SQLITE_CANTOPEN: _PLACE,
    sqlite3.SQLITE_PROTOCOL: _BUSY,
    sqlite3.SQLITE_AUTH: _PLACE,
}
_STILL = "This process stood still in the middle of writing; nothing was written, run it again."
# By SQLSTATE, the longest prefix wins (PostgreSQL, appendix A).
_LOGIN = "Check user, password and pg_hba.conf, and PROCTOR_DATABASE_URL."
_CREATE = "Create the database, or correct its name in PROCTOR_DATABASE_URL; then `proctor db upgrade`."
_POSTGRES = {
    "08": _SERVER,
    "25P03": _STILL,
    "25P04": _STILL,
    "25006": "This server is a read-only replica; point PROCTOR_DATABASE_URL at the primary.",
    "28": _LOGIN,
    "3D000": _CREATE,
    "40": "Two writers met; run it again.",
    "53": "Give the server more of what is missing and run it again.",
    "53100": _DISK,
    "55P03": _BUSY,
    "57": _SERVER,
    "58": "Check the server's disk and its log.",
}
_CONNECT = {
    '" does not exist': _CREATE,
    "authentication failed": _LOGIN,
    "no password supplied": _LOGIN,
    "pg_hba.conf": _LOGIN,
}


def explain(
    error: sa.exc.DBAPIError | sa.exc.TimeoutError, place: str, *, reading: bool = False
) -> UnavailableError | None:
    """Say in our words what the database said; None for a caller's mistake, such as a broken constraint."""
    if isinstance(error, sa.exc.TimeoutError):
        reason = "all its connections are in use"
        return StoreUnavailableError(
            place=place, reason=reason, cure="Run it again when less goes on at once."
        )
    if reading and _wrote(error):
        return None
    reason = _first_line(error)
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite(error.orig, place, reason)
    return _postgres(error, place, reason)


def _wrote(error: sa.exc.DBAPIError) -> bool:
    """A statement tried to write in `read()`; without a statement it is the place that is read-only."""
    code = getattr(error.orig, "sqlite_errorcode", None) or getattr(error.orig, "sqlstate", None)
    return error.statement is not None and code in {sqlite3.SQLITE_READONLY, "25006"}


def _sqlite(fault: sqlite3.Error, place: str, reason: str) -> UnavailableError | None:
    code = getattr(fault, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreCorruptError(place=place, reason=reason)
    cure = _SQLITE.get(code)
    return None if cure is None else StoreUnavailableError(place=place, reason=reason, cure=cure)


def _postgres(error: sa.exc.DBAPIError, place: str, reason: str) -> UnavailableError | None:
    state: str = getattr(error.orig, "sqlstate", None) or ""
    if state in {"XX001", "XX002"}:
        return StoreCorruptError(place=place, reason=reason)
    known = [prefix for prefix in _POSTGRES if state.startswith(prefix)]
    if known:
        return StoreUnavailableError(place=place, reason=reason, cure=_POSTGRES[max(known, key=len)])
    # No SQLSTATE: the server never answered. Only then is it the connection and not the statement.
    gone = error.connection_invalidated or isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
    if state or not gone:
        return None
    refused = error.statement is None
    cure = next((cure for sign, cure in _CONNECT.items() if refused and sign in reason), _SERVER)
    return StoreUnavailableError(place=place, reason=reason, cure=cure)


def _first_line(error: Any) -> str:
    lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
    return lines[0].strip().rstrip(".")
