"""Who comes in: tokens, hosts and origins, on HTTP and on both WebSockets."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from proctor.server.auth import Access, hide_token, is_loopback, presented_token
from tests.server.conftest import Door

PATH = "/api/tools"


def _status(address: str, **headers: str) -> int:
    """What a WebSocket's handshake is answered: 101 or the refusal."""
    try:
        with connect(address, additional_headers=headers, open_timeout=30, proxy=None):
            return 101
    except InvalidStatus as refused:
        body = refused.response.body or b"{}"
        assert b'"error"' in body
        assert b'"hint"' in body
        return refused.response.status_code


def test_refusal_names_the_token_file_that_only_the_user_can_read(door: Door) -> None:
    """Without a token the answer is 401 with the cure, and the file it names is there, mode 0600."""
    answer = door.get(PATH, headers={})
    assert answer.status_code == 401
    assert set(answer.json()) == {"error", "hint"}
    file = door.app.settings.paths.token_file
    assert str(file) in answer.json()["hint"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("how", ["bearer", "lower", "solace"])
def test_each_header_lets_in(door: Door, how: str) -> None:
    """Bearer in any case and the seed's own header are the same token."""
    header = {
        "bearer": {"Authorization": f"Bearer {door.token}"},
        "lower": {"authorization": f"bearer {door.token}"},
        "solace": {"X-SOLACE-API-KEY": door.token},
    }[how]
    assert door.get(PATH, headers=header).status_code == 200
    with door.socket("/ws", additional_headers=header) as line:
        assert line.ask({"type": "ping"})["type"] == "pong"


@pytest.mark.parametrize(
    "header",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic abc"},
        {"X-SOLACE-API-KEY": ""},
        {"X-SOLACE-API-KEY": "ü" * 40},
        {"Cookie": "token=abc"},
    ],
    ids=["wrong", "empty", "basic", "no key", "bytes", "cookie"],
)
def test_wrong_tokens_are_refused_everywhere(door: Door, header: dict[str, str]) -> None:
    """Whatever is shown instead of the token is 401 on HTTP and on both sockets."""
    raw = [(name.encode(), value.encode("latin-1")) for name, value in header.items()]
    assert httpx.get(door.http + PATH, headers=raw).status_code == 401
    assert _status(door.ws, **header) == 401
    assert _status(door.http.replace("http", "ws") + "/ws", **header) == 401


def test_key_in_the_address_works_on_websockets_only(door: Door) -> None:
    """Browsers cannot set headers on a WebSocket; on HTTP an address ends in logs, so the key there is no key."""
    assert door.get(f"{PATH}?api_key={door.token}", headers={}).status_code == 401
    assert _status(f"{door.ws}/?api_key={door.token}") == 101
    assert _status(f"{door.http.replace('http', 'ws')}/ws?api_key={door.token}") == 101
    assert _status(f"{door.ws}/?api_key=wrong") == 401


def test_only_health_is_open(door: Door) -> None:
    """What watches the server sees that it lives, and pages hold nothing; metrics, the API and all else need the token."""
    assert door.get("/health", headers={}).json() == {"status": "healthy", "active_sessions": 0}
    for path in ("/metrics", "/openapi.json", "/ws/health", "/api/events", "/api/me", "/redoc", "/nothing"):
        assert door.get(path, headers={}).status_code == 401


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "file://", "x"])
def test_bug_1_a_page_from_another_origin_cannot_connect(door: Door, open_door: Door, origin: str) -> None:
    """Bug 1: neither with the token nor where none is needed does a strange page get in, by HTTP or WebSocket."""
    for one in (door, open_door):
        token = {"Authorization": f"Bearer {one.token}", "Origin": origin}
        assert httpx.get(one.http + "/health", headers=token).status_code == 403
        assert httpx.post(one.http + "/api/tools/list_directory", headers=token).status_code == 403
        assert _status(one.ws, **token) == 403
        assert _status(one.http.replace("http", "ws") + "/ws", **token) == 403
        assert _status(one.http.replace("http", "ws") + "/ws/traces/t", **token) == 403


def test_own_pages_come_in_on_both_ports(door: Door) -> None:
    """A page of this server may use its API and also the seeds' port."""
    own = {**door.headers, "Origin": door.http}
    assert door.get(PATH, headers=own).status_code == 200
    assert _status(door.ws, **own) == 101


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pictures_and_scripts_of_other_pages_are_refused(open_door: Door, site: str) -> None:
    """A GET without Origin that a browser marks as another page's does not reach the API, even without token."""
    header = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert open_door.get("/api/tools", headers=header).status_code == 403
    visit = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert open_door.get("/api/tools", headers=visit).status_code == 403
    assert open_door.get("/health", headers=visit).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1", "a@localhost", ""]
)
def test_names_that_are_not_ours_are_refused(door: Door, open_door: Door, host: str) -> None:
    """DNS rebinding: a name somebody points at us gets 403, with or without token."""
    for one in (door, open_door):
        headers = {"Authorization": f"Bearer {one.token}", "Host": host}
        assert httpx.get(one.http + "/health", headers=headers).status_code in {400, 403}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]:8080"])
def test_names_of_this_machine_come_in(door: Door, host: str) -> None:
    """Loopback by any of its names; the port may be a tunnel's."""
    assert door.get(PATH, headers={**door.headers, "Host": host}).status_code == 200


def test_refusal_of_a_name_says_how_to_give_it(door: Door) -> None:
    """Whoever set up a proxy reads the option that lets its name in."""
    refused = door.get(PATH, headers={**door.headers, "Host": "proxy.example"})
    assert "--name" in refused.json()["hint"]


def test_refusals_are_closed_to_pages_like_every_answer(door: Door) -> None:
    """What is refused can be framed, sniffed or read from elsewhere as little as what is answered."""
    closed = {"x-content-type-options", "x-frame-options", "cross-origin-resource-policy", "referrer-policy"}
    for headers in ({}, {"Host": "evil.example"}, {"Authorization": "Bearer prt_void"}, door.headers):
        answer = door.get(PATH, headers=headers)
        assert closed <= set(answer.headers)
        assert len(answer.headers.get_list("x-frame-options")) == 1


@pytest.mark.parametrize("path", ["/ws/", "/", "/ws/traces/a/b", "/api/tools"])
def test_websocket_on_another_path_hears_where_they_are(door: Door, path: str) -> None:
    """A wrong path is 404 with a sentence, not a bare 403 that looks like a wrong token."""
    with pytest.raises(InvalidStatus) as refused, door.socket(path):
        pass
    response = refused.value.response
    assert response.status_code == 404
    assert "/ws" in json.loads(response.body or b"{}")["hint"]


def test_without_auth_programs_come_in_but_do_not_answer_questions(open_door: Door) -> None:
    """`--auth none` opens the tools; an answer to an approval needs the token all the same."""
    assert open_door.get(PATH, headers={}).status_code == 200
    with open_door.socket(additional_headers={}) as line:
        assert line.ask({"type": "ping"})["type"] == "pong"


def test_token_does_not_reach_the_log() -> None:
    """The key is taken out of a WebSocket's address before anybody can log it, and is known all the same."""
    scope: dict[str, Any] = {"type": "websocket", "query_string": b"a=1&api_key=secret", "headers": []}
    hide_token(scope)
    assert scope["query_string"] == b"a=1"
    assert presented_token(scope) == "secret"


def test_unreadable_token_file_lets_nobody_in(tmp_path: Path) -> None:
    """A token file that others can read is no proof of anything."""
    file = tmp_path / "token"
    file.write_text("x" * 43)
    file.chmod(0o644)
    scope = {
        "type": "http",
        "path": "/api",
        "method": "GET",
        "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer " + b"x" * 43)],
    }
    refusal = Access(file).refuse(scope)
    assert refusal is not None
    assert refusal.status == 401


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_whatever_stands_in_host_and_origin_is_judged(host: bytes, origin: bytes) -> None:
    """No header makes the check fail with an exception, and what is no name of ours is refused."""
    scope = {
        "type": "websocket",
        "path": "/",
        "query_string": b"",
        "headers": [(b"host", host), (b"origin", origin)],
        "server": ("127.0.0.1", 80),
    }
    refusal = Access(Path("/nonexistent/token"), needs_token=False).refuse(scope)
    assert refusal is not None or b"localhost" in host.lower() or b"127." in host or b"::1" in host


@pytest.mark.parametrize(
    ("host", "ours"), [("127.8.9.1", True), ("::1", True), ("0.0.0.0", False), ("a", False)]
)
def test_loopback_is_known_by_its_addresses(host: str, ours: bool) -> None:
    """All of 127/8 and ::1, nothing else."""
    assert is_loopback(host) is ours
