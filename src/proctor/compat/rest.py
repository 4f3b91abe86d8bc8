"""`_execute_tool` of seed 000: its fourteen functions over the REST of a running Proctor, as the table of routes says.

Every answer is a dictionary: the body as the route gives it, or `{error, hint, code}`. 201 is a success. The token goes
only to a server that this user's own socket named, or to the one the caller named.
"""

from __future__ import annotations

import http.client
import importlib
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from proctor.app import App
from proctor.engine import client
from proctor.gate.humans import load_token

__all__ = ["BASE_PATH", "BASE_URL", "RestTools"]

BASE_PATH: Final = "/api/v1/solace-orch"
BASE_URL: Final = f"http://localhost:8080{BASE_PATH}"
"""Where the seed looks, and where `proctor serve` answers unless it is told otherwise."""
_FIRST_ERROR: Final = 300
MOST_BYTES: Final = 64 * 1024 * 1024
GRACE_SECONDS: Final = 30.0
_NOBODY: Final = {
    "error": "No server answers.",
    "hint": "Start one with `proctor serve`, or name its address with base_url.",
    "code": "unavailable",
}


class RestTools:
    """The fourteen functions at one base address."""

    def __init__(self, app: App, base_url: str | None = None, *, workspace: Path | None = None) -> None:
        if base_url is not None and urlsplit(base_url).scheme not in {"http", "https"}:
            raise ValueError("base_url must begin with http:// or https://")
        self._app = app
        self._base = base_url
        self._workspace = workspace
        # By name, as commands find the server: the rooms do not know each other.
        routes = importlib.import_module("proctor.server.solace").ROUTES
        self._rows: dict[str, Any] = {row.tool: row for row in routes if row.seed}

    @property
    def functions(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._rows)

    def base_url(self) -> str | None:
        """The address that was given, else that of this user's running server."""
        if self._base is not None:
            return self._base.rstrip("/")
        http = (client.ask(self._app.settings.paths, {"op": "hello"}) or {}).get("http")
        return f"{http}{BASE_PATH}" if http else None

    def call(self, function_name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Call one function and give the body of its answer."""
        row, base = self._rows.get(function_name), self.base_url()
        if row is None:
            known = ", ".join(self._rows)
            return {
                "error": f"Unknown function: {function_name}",
                "hint": f"Known: {known}.",
                "code": "not_found",
            }
        if base is None:
            return dict(_NOBODY)
        body, path = dict(args), row.path
        if row.id_as is not None:
            one = body.pop(row.id_as, body.pop("id", None))
            if one is None:
                return {"error": f"{row.id_as} is required", "hint": "", "code": "invalid_input"}
            path = path.replace("{id}", quote(str(one), safe=""))
        return self._ask(row, base + path + self._where(), body)

    def _where(self) -> str:
        """Our own workspace for a server that was not named: it may belong to another one, or to none."""
        if self._base is not None or self._workspace is None:
            return ""
        return f"?workspace={quote(str(self._workspace), safe='')}"

    def _ask(self, row: Any, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        data = None if row.method == "GET" else json.dumps(body).encode()
        headers = {"X-SOLACE-API-KEY": load_token(self._app.settings.paths.token_file)}
        request = urllib.request.Request(url, data, headers, method=row.method)  # noqa: S310 - http or https, checked
        if data is not None:
            request.add_header("Content-Type", "application/json")
        seconds = self._app.registry.find(row.tool).seconds + GRACE_SECONDS
        try:
            status, raw = _exchange(request, seconds)
            body = _body(raw)
        except (OSError, ValueError, http.client.HTTPException) as error:
            return {**_NOBODY, "error": f"The server gave no answer: {error}"}
        return body if status < _FIRST_ERROR else {"code": f"http_{status}", **body}


def _exchange(request: urllib.request.Request, seconds: float) -> tuple[int, bytes]:
    """Send one request; an answer of 400 and more is an answer too."""
    try:
        with _opener.open(request, timeout=seconds) as answer:
            return int(answer.status), answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read(MOST_BYTES + 1)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes to nobody else."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


# No proxy: the server is this machine's, or was named.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


def _body(raw: bytes) -> dict[str, Any]:
    if len(raw) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("what came is no JSON") from None
    if not isinstance(found, dict):
        raise ValueError("what came is no JSON object")
    return found
