"""Who may come in: the token or a signed-in browser, the Host and the Origin, looked at before anything else.

Invariants: Host and Origin are checked always, also without a token; the token is never taken from an HTTP address, where it
would end in logs and histories; a browser's cookie alone only reads; a refusal says the cure and names the token file.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from proctor.gate.humans import Human, NotHumanError, human_with_token, load_token
from proctor.server.browsers import COOKIE, Browsers, Session

__all__ = [
    "LOGIN_PATH",
    "OPEN_PATHS",
    "PAGE_HEADER",
    "Access",
    "Refusal",
    "hide_token",
    "is_loopback",
    "presented_cookie",
    "presented_token",
    "query_pairs",
]

Scope = Mapping[str, Any]

# Health says only that the server lives: what watches it has no token. The pages hold nothing: they are the same for all and
# ask for what they show, as whoever is signed in.
OPEN_PATHS: Final = frozenset(
    {"/health", "/", "/docs", "/favicon.ico", "/assets/page.css", "/assets/home.js", "/assets/docs.js"}
)
LOGIN_PATH: Final = "/api/browser/login"
PAGE_HEADER: Final = "X-Proctor-Page"
_LOOPBACK_NAMES: Final = frozenset({"localhost"})
_TOKEN_HEADER: Final = b"x-solace-api-key"
_QUERY_NAME: Final = "api_key"
_PAGE_HEADER: Final = PAGE_HEADER.lower().encode()
_PAGE_QUERY: Final = "page_key"
_SECRETS: Final = {_QUERY_NAME: "proctor.token", _PAGE_QUERY: "proctor.page"}
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_TRACE_SOCKETS: Final = "/ws/traces/"
# The seeds' one GET that takes something.
_TAKES: Final = frozenset({"/api/v1/solace-orch/orchestrate/next"})
_ELSEWHERE: Final = frozenset({b"cross-site", b"same-site"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody does not come in, and what to do about it."""

    status: int
    error: str
    hint: str

    def body(self) -> dict[str, str]:
        """As it is answered."""
        return {"error": self.error, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one server."""

    token_file: Path
    needs_token: bool = True
    """False for `--auth none`; answers to approvals need the token all the same."""
    hosts: frozenset[str] = field(default_factory=frozenset)
    """Names of this server besides loopback and the address a client has really reached."""
    ports: frozenset[int] = field(default_factory=frozenset)
    """Where it listens: pages from all of them are its own."""
    browsers: Browsers | None = None
    """Who is signed in; None where no browser may be."""

    def refuse(self, scope: Scope) -> Refusal | None:
        """Look at a request or WebSocket before anything of it is read; None lets it in."""
        headers = list(scope.get("headers", ()))
        found = self._wrong_host(scope, headers) or self._wrong_origin(scope, headers)
        if found is not None:
            return found
        if not self.needs_token or _is_open(scope):
            return None
        if presented_token(scope) is None and (session := self.session(scope)) is not None:
            return self._wrong_page(scope, headers, session)
        return self._wrong_token(scope)

    def session(self, scope: Scope) -> Session | None:
        """The signed-in browser behind a request."""
        cookie = presented_cookie(scope) if self.browsers is not None else None
        return None if cookie is None or self.browsers is None else self.browsers.find(cookie)

    @staticmethod
    def page_holds(scope: Scope, session: Session) -> bool:
        """Whether the page behind a request has shown its key."""
        return session.holds(_presented_page(scope) or "")

    def human(self, scope: Scope, name: str) -> Human:
        """Recognise the person behind a request by token or signed-in page, whatever `--auth` says."""
        given = presented_token(scope)
        try:
            session = self.session(scope) if given is None else None
            if session is not None and self.page_holds(scope, session):
                given = load_token(self.token_file)
            if given is None:
                raise NotHumanError(reason="no token was shown", token_file=self.token_file)
            return human_with_token(given, token_file=self.token_file, name=name)
        except OSError as error:
            reason = f"the token cannot be read: {error.strerror}"
            raise NotHumanError(reason=reason, token_file=self.token_file) from error

    # ── where it comes from ───────────────────────────────────────────────────────────────────────────────────────

    def _wrong_host(self, scope: Scope, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
        """A name that somebody else's DNS points at us is not ours (DNS rebinding)."""
        hosts = [value for name, value in headers if name == b"host"]
        host = _host_of(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
        if host is not None and self._ours(host, scope):
            return None
        shown = b", ".join(hosts).decode("latin-1")[:100] or "none"
        hint = "Use the address that `proctor serve` printed, or give it the name with --name."
        return Refusal(403, f"The Host {shown!r} is not a name of this server.", hint)

    def _ours(self, host: str, scope: Scope) -> bool:
        reached = scope.get("server")
        return (
            is_loopback(host) or host in self.hosts or (reached is not None and _same_address(host, reached))
        )

    def _wrong_origin(self, scope: Scope, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
        """A page from elsewhere may not speak to us, not even to find out whether we are here."""
        given = {name: value for name, value in headers if name in {b"origin", b"host", b"sec-fetch-site"}}
        many = sum(name == b"origin" for name, _ in headers) > 1
        origin = given.get(b"origin")
        if not many and origin is None and given.get(b"sec-fetch-site") not in _ELSEWHERE:
            return None
        if not many and origin is not None and self._own_origin(origin, given[b"host"], scope):
            return None
        if not many and origin is None and _is_visit(scope, headers):
            return None
        shown = (origin or given.get(b"sec-fetch-site", b"")).decode("latin-1")[:100]
        hint = "Only pages of this server may call it. Programs send no Origin header."
        return Refusal(403, f"Pages from {shown!r} may not call this server.", hint)

    def _own_origin(self, origin: bytes, host: bytes, scope: Scope) -> bool:
        try:
            parts = urlsplit(origin.decode("ascii"))
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        except ValueError:
            return False
        if parts.scheme not in {"http", "https"} or parts.hostname is None or parts.path:
            return False
        if parts.netloc.lower().encode() == host.lower():
            return True
        return port in self.ports and self._ours(parts.hostname, scope)

    # ── who it is ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _wrong_page(
        self, scope: Scope, headers: Iterable[tuple[bytes, bytes]], session: Session
    ) -> Refusal | None:
        """The cookie reads; what changes anything comes from a page of ours, which says so and shows its key."""
        if _only_reads(scope):
            return None
        origin = any(name == b"origin" for name, _ in headers)  # whose it is, was looked at before
        if origin and self.page_holds(scope, session):
            return None
        hint = f"Pages send {PAGE_HEADER}; programs send the token, which is in {self.token_file}."
        return Refusal(403, "A cookie alone may only read.", hint)

    def _wrong_token(self, scope: Scope) -> Refusal | None:
        given = presented_token(scope)
        way = "Authorization: Bearer TOKEN or X-SOLACE-API-KEY: TOKEN"
        if scope["type"] == "websocket":
            way += f", or ?{_QUERY_NAME}=TOKEN"
        hint = f"Send {way}; the token is in {self.token_file}. In a browser: run `proctor open`."
        if given is None:
            load_token(self.token_file)  # the file the hint names must be there
            return Refusal(401, "This server needs a token.", hint)
        try:
            human_with_token(given, token_file=self.token_file, name="")
        except NotHumanError as error:
            wrong = "The token is wrong." if "wrong" in str(error.facts["reason"]) else str(error)
            return Refusal(401, wrong, hint)
        return None


def presented_token(scope: Scope) -> str | None:
    """The token a caller shows: a header, or on WebSockets (browsers cannot set one there) the address."""
    for name, value in scope.get("headers", ()):
        if name == _TOKEN_HEADER:
            return str(value.decode("latin-1")).strip()
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return str(value[7:].decode("latin-1")).strip()
    return _in_address(scope, _QUERY_NAME)


def presented_cookie(scope: Scope) -> str | None:
    """The cookie a browser shows; with two of that name nobody knows whose it is."""
    given = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"cookie"]
    pairs = [pair.strip().partition("=") for header in given for pair in header.split(";")]
    found = [value for name, _, value in pairs if name == COOKIE]
    return found[0] if len(found) == 1 else None


def _presented_page(scope: Scope) -> str | None:
    """The key of a page: a header, or on WebSockets the address."""
    for name, value in scope.get("headers", ()):
        if name == _PAGE_HEADER:
            return str(value.decode("latin-1")).strip()
    return _in_address(scope, _PAGE_QUERY)


def _in_address(scope: Scope, name: str) -> str | None:
    if scope["type"] != "websocket":
        return None
    kept: str | None = scope.get(_SECRETS[name])
    return kept if kept is not None else dict(query_pairs(scope)).get(name)


def hide_token(scope: MutableMapping[str, Any]) -> None:
    """Take token and page key out of a WebSocket's address before anybody logs it."""
    pairs = query_pairs(scope)
    if any(name in _SECRETS for name, _ in pairs):
        scope.update({_SECRETS[name]: value for name, value in pairs if name in _SECRETS})
        rest = [(name, value) for name, value in pairs if name not in _SECRETS]
        scope["query_string"] = urlencode(rest).encode()


def _is_open(scope: Scope) -> bool:
    if scope["type"] != "http":
        return False
    if scope["path"] == LOGIN_PATH:
        return bool(scope["method"] == "POST")
    return scope["path"] in OPEN_PATHS and scope["method"] in _READS


def _only_reads(scope: Scope) -> bool:
    if scope["type"] == "websocket":
        return str(scope["path"]).startswith(_TRACE_SOCKETS)
    return scope["method"] in _READS and scope["path"] not in _TAKES


def query_pairs(scope: Scope) -> list[tuple[str, str]]:
    """What stands behind the `?` of an address; nothing where it cannot be read."""
    try:
        return parse_qsl(scope.get("query_string", b"").decode("latin-1"), max_num_fields=100)
    except ValueError:
        return []


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own and nobody else's."""
    if host.rstrip(".") in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(header: str) -> str | None:
    """The host of a Host header, without port and brackets, in small letters."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # refuses a port that is none
    except ValueError:
        return None
    odd = parts.path or parts.query or parts.fragment or parts.username is not None
    return None if odd or not parts.hostname else parts.hostname


def _same_address(host: str, reached: tuple[str, int | None]) -> bool:
    try:
        return ipaddress.ip_address(host) == ipaddress.ip_address(reached[0])
    except ValueError:
        return False


def _is_visit(scope: Scope, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """A person who follows a link from elsewhere to one of our pages; the API is no page."""
    modes = [value for name, value in headers if name == b"sec-fetch-mode"]
    page = scope["type"] == "http" and scope["method"] == "GET" and not scope["path"].startswith("/api/")
    return page and modes == [b"navigate"]
