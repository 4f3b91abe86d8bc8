"""Browsers that are signed in: one-time links, and sessions whose secrets are kept as hashes only, in a file of the user's.

Invariants: a link works once and for two minutes; a session ends by its time, by signing out, and with the token it was made
under. A cookie goes to every port of a machine, also to a page an agent serves: so the cookie alone only reads, and what
changes anything needs the page's key too, which browsers keep per address and port.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from proctor.gate.humans import load_token
from proctor.protocol.errors import RefusedError
from proctor.workspace.locks import file_lock

__all__ = ["COOKIE", "LINK_SECONDS", "SESSION_SECONDS", "Browsers", "Login", "Session"]

COOKIE: Final = "proctor_session"
LINK_SECONDS: Final = 120
SESSION_SECONDS: Final = 7 * 24 * 3600
MOST_SESSIONS: Final = 50
MOST_LINKS: Final = 20
_CAP: Final = 1_000_000
_LONGEST: Final = 200


class LinkUsedError(RefusedError):
    """Refused: this link was used already or is too old. Run `proctor open` for a new one."""

    code = "link_used"


@dataclass(frozen=True, slots=True)
class Login:
    """What a browser gets: the cookie, and the key that its pages keep."""

    cookie: str
    page_key: str
    expires: int


@dataclass(frozen=True, slots=True)
class Session:
    """One signed-in browser, as it is kept."""

    cookie: str
    page: str
    token: str
    expires: int

    def holds(self, page_key: str) -> bool:
        """Whether this key is the one its pages were given."""
        return hmac.compare_digest(_hash(page_key), self.page)


class Browsers:
    """The sessions of one user; many processes may share the file."""

    def __init__(self, file: Path, token_file: Path) -> None:
        self._file = file
        self._token_file = token_file
        self._seen: tuple[tuple[int, int, int], dict[str, Session]] | None = None

    def link(self) -> str:
        """A new one-time code; only its hash is kept."""
        code = secrets.token_urlsafe(32)
        with self._changing() as kept:
            kept["links"] = [*kept["links"][-MOST_LINKS + 1 :], self._entry(code, LINK_SECONDS)]
        return code

    def redeem(self, code: str) -> Login:
        """Sign a browser in; the code is used up, whatever comes after."""
        login = Login(secrets.token_urlsafe(32), secrets.token_urlsafe(32), _now() + SESSION_SECONDS)
        wanted, token = _hash(code), self._fingerprint()
        with self._changing() as kept:
            found = [one for one in kept["links"] if one["hash"] == wanted and one["token"] == token]
            kept["links"] = [one for one in kept["links"] if one["hash"] != wanted]
            if found:
                made = Session(_hash(login.cookie), _hash(login.page_key), token, login.expires)
                kept["sessions"] = [*kept["sessions"][-MOST_SESSIONS + 1 :], asdict(made)]
        if not found:
            raise LinkUsedError(reason="the link was used already or is too old")
        return login

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie, while it lives and the token is the one it was made under."""
        found = self._known().get(_hash(cookie)) if 0 < len(cookie) <= _LONGEST else None
        if found is None or found.expires <= _now():
            return None
        return found if hmac.compare_digest(found.token, self._fingerprint()) else None

    def end(self, cookie: str) -> None:
        """Sign a browser out."""
        gone = _hash(cookie)
        with self._changing() as kept:
            kept["sessions"] = [one for one in kept["sessions"] if one["cookie"] != gone]

    # ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _entry(self, code: str, seconds: int) -> dict[str, Any]:
        return {"hash": _hash(code), "token": self._fingerprint(), "expires": _now() + seconds}

    def _fingerprint(self) -> str:
        """A new token ends every session: none of them was made under it."""
        return _hash("made under " + load_token(self._token_file))

    def _known(self) -> dict[str, Session]:
        """The sessions, read again only when the file is another."""
        try:
            told = self._file.stat()
        except OSError:
            return {}
        mark = told.st_mtime_ns, told.st_ino, told.st_size
        if self._seen is None or self._seen[0] != mark:
            rows = _read(self._file)["sessions"]
            self._seen = mark, {one["cookie"]: Session(**one) for one in rows}
        return self._seen[1]

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, list[dict[str, Any]]]]:
        """Change the file as a whole, one process at a time; what has expired leaves on the way."""
        with file_lock(self._file.with_suffix(".lock"), exclusive=True):
            kept = {
                name: [one for one in rows if one["expires"] > _now()]
                for name, rows in _read(self._file).items()
            }
            yield kept
            _write(self._file, kept)


def _hash(secret: str) -> str:
    """Secrets have 256 bits of chance, so a plain hash cannot be turned round."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _now() -> int:
    return int(time.time())


def _read(file: Path) -> dict[str, list[dict[str, Any]]]:
    """What is kept; a damaged file signs everybody out."""
    try:
        with file.open("rb") as opened:
            told = json.loads(opened.read(_CAP))
        sessions = [asdict(Session(**one)) for one in told["sessions"]]
        links = [{name: one[name] for name in ("hash", "token", "expires")} for one in told["links"]]
        if not all(isinstance(one["expires"], int) for one in (*sessions, *links)):
            raise ValueError("no times")
    except (OSError, ValueError, KeyError, TypeError):
        return {"sessions": [], "links": []}
    return {"sessions": sessions, "links": links}


def _write(file: Path, kept: dict[str, list[dict[str, Any]]]) -> None:
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w") as opened:
        opened.write(json.dumps(kept))
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)
