"""The browser: a link that works once, a cookie that only reads, a page key that writes, and nothing for other pages."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from proctor.gate.humans import load_token
from proctor.protocol.errors import RefusedError
from proctor.server import browsers as browsers_module
from proctor.server.auth import PAGE_HEADER
from proctor.server.browser_api import PAGES
from proctor.server.browsers import COOKIE, Browsers
from tests.server.conftest import Door, served

CALL = "/api/tools/list_directory"


class Browser:
    """A client that behaves as browsers do: keeps the cookie, sends Origin, knows the page's key."""

    def __init__(self, door: Door) -> None:
        self.door = door
        code = door.post("/api/browser/links").json()["path"].partition("=")[2]
        made = httpx.post(
            f"{door.http}/api/browser/login", json={"code": code}, headers={"Origin": door.http}, timeout=30
        )
        assert made.status_code == 200
        self.set_cookie = made.headers["set-cookie"]
        self.cookie = f"{COOKIE}={made.cookies[COOKIE]}"
        self.key: str = made.json()["page_key"]
        self.code = code

    def headers(self, *, origin: bool = True, key: bool = True) -> dict[str, str]:
        """As a page of ours sends them."""
        found = {"Cookie": self.cookie}
        found |= {"Origin": self.door.http} if origin else {}
        return found | ({PAGE_HEADER: self.key} if key else {})

    def get(self, path: str, **more: Any) -> httpx.Response:
        """Read with the cookie alone, as a link or an EventSource does."""
        return httpx.get(self.door.http + path, headers={"Cookie": self.cookie}, timeout=30, **more)

    def post(self, path: str, body: object = None, **how: bool) -> httpx.Response:
        """Change something."""
        return httpx.post(self.door.http + path, json=body, headers=self.headers(**how), timeout=30)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Door]:
    """A server whose token may be changed."""
    with served(tmp_path) as made:
        yield made


def test_link_works_once(door: Door) -> None:
    """The code is in the part of the address that is never sent, and the second use is refused with the cure."""
    link = door.post("/api/browser/links").json()
    assert link["path"].startswith("/#login=")
    assert door.token not in link["path"]
    browser = Browser(door)
    again = httpx.post(f"{door.http}/api/browser/login", json={"code": browser.code}, timeout=30)
    assert again.status_code == 403
    assert "proctor open" in again.json()["error"]
    assert "set-cookie" not in again.headers


def test_links_need_the_token(door: Door, open_door: Door) -> None:
    """Nobody signs a browser in without it, also where `--auth none` lets programs in; a page cannot either."""
    assert door.post("/api/browser/links", headers={}).status_code == 401
    assert open_door.post("/api/browser/links", headers={}).status_code == 401
    assert Browser(door).post("/api/browser/links", key=False).status_code == 403


def test_cookie_is_for_this_site_alone_and_not_for_scripts(door: Door) -> None:
    """HttpOnly, SameSite=Strict, no domain, a week; Secure where a proxy with TLS is before us."""
    parts = [one.strip().lower() for one in Browser(door).set_cookie.split(";")]
    assert {"httponly", "samesite=strict", "path=/"} <= set(parts)
    assert any(one.startswith("max-age=") for one in parts)
    assert not any(one.startswith("domain") for one in parts)
    assert "secure" not in parts
    code = door.post("/api/browser/links").json()["path"].partition("=")[2]
    host = door.http.removeprefix("http://")
    tls = httpx.post(
        f"{door.http}/api/browser/login", json={"code": code}, headers={"Origin": f"https://{host}"}
    )
    assert "secure" in tls.headers["set-cookie"].lower()


def test_cookie_alone_reads(door: Door) -> None:
    """Lists, documents, metrics and live traces; who one is, is told."""
    browser = Browser(door)
    me = browser.get("/api/me").json()
    assert (me["signed_in"], me["user"], me["pages_write"]) == ("browser", door.front.user, False)
    for path in ("/api/approvals", "/api/tools", "/openapi.json", "/metrics", "/ws/health"):
        assert browser.get(path).status_code == 200
    address = door.http.replace("http", "ws") + "/ws/traces/t"
    with connect(
        address, additional_headers={"Cookie": browser.cookie, "Origin": door.http}, proxy=None
    ) as line:
        assert json.loads(line.recv(timeout=30))["event"] == "connected"


def test_cookie_alone_changes_nothing(door: Door) -> None:
    """A cookie goes to every port of a machine: whoever got it there still lacks the page's key, or a page of ours."""
    browser = Browser(door)
    assert browser.post(CALL, {}).status_code == 200
    for how in ({"key": False}, {"origin": False}, {"key": False, "origin": False}):
        assert browser.post(CALL, {}, **how).status_code == 403
    assert browser.get("/api/v1/solace-orch/orchestrate/next").status_code == 403
    browser.key = "x" * 43
    assert browser.post(CALL, {}).status_code == 403
    with pytest.raises(InvalidStatus, match="403"):
        connect(
            door.http.replace("http", "ws") + "/ws",
            additional_headers={"Cookie": browser.cookie, "Origin": door.http},
            proxy=None,
        )


def test_page_with_its_key_speaks_on_the_socket(door: Door) -> None:
    """Browsers cannot set headers there, so the key stands in the address and is taken out of it."""
    browser = Browser(door)
    address = f"{door.http.replace('http', 'ws')}/ws?page_key={browser.key}"
    with connect(
        address, additional_headers={"Cookie": browser.cookie, "Origin": door.http}, proxy=None
    ) as line:
        line.send('{"type": "ping"}')
        assert "pong" in str(line.recv(timeout=30))


def test_signed_in_page_answers_questions_and_a_cookie_does_not(door: Door) -> None:
    """An answer is a person's: cookie and key together stand for the token, the cookie alone does not."""
    asked = door.post(
        "/api/tools/write_file?agent=forge&profile=careful", {"path": "asked", "content": ""}
    ).json()
    browser = Browser(door)
    path = f"/api/approvals/{asked['approval_id']}"
    assert browser.post(path, {"approved": True}, key=False).status_code == 403
    assert door.get(path).json()["status"] == "pending"
    assert browser.post(path, {"approved": True}).status_code == 200
    assert door.get(path).json()["answered_by"] == door.front.user


def test_without_auth_a_page_still_needs_its_key_to_answer(open_door: Door) -> None:
    """`--auth none` lets programs call tools; yes is only said by who signed in."""
    asked = open_door.post(
        "/api/tools/write_file?agent=forge&profile=careful", {"path": "asked", "content": ""}
    ).json()
    browser, path = Browser(open_door), f"/api/approvals/{asked['approval_id']}"
    assert browser.post(path, {"approved": True}, key=False).status_code == 401
    assert browser.post(path, {"approved": True}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null", "https://localhost"])
def test_page_from_elsewhere_is_refused_even_with_cookie_and_key(door: Door, origin: str) -> None:
    """REST, server-sent events, both kinds of WebSocket and signing in itself: 403 before anything is read."""
    browser = Browser(door)
    headers = {**browser.headers(), "Origin": origin}
    assert httpx.get(f"{door.http}/api/me", headers=headers).status_code == 403
    assert httpx.post(door.http + CALL, json={}, headers=headers).status_code == 403
    assert httpx.get(f"{door.http}/api/events", headers=headers).status_code == 403
    code = door.post("/api/browser/links").json()["path"].partition("=")[2]
    taken = httpx.post(f"{door.http}/api/browser/login", json={"code": code}, headers={"Origin": origin})
    assert taken.status_code == 403
    for path in (f"/ws?page_key={browser.key}", "/ws/traces/t"):
        with pytest.raises(InvalidStatus, match="403"):
            connect(door.http.replace("http", "ws") + path, additional_headers=headers, proxy=None)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_a_browser_marks_as_anothers_are_refused(door: Door, site: str) -> None:
    """Pictures and scripts send no Origin but say whose they are; another port of this machine is not us."""
    browser = Browser(door)
    headers = {"Cookie": browser.cookie, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert httpx.get(f"{door.http}/api/approvals", headers=headers).status_code == 403
    own = {"Cookie": browser.cookie, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert httpx.get(f"{door.http}/api/approvals", headers=own).status_code == 200


def test_signing_out_ends_one_browser(door: Door) -> None:
    """The other stays; the cookie is taken back."""
    one, other = Browser(door), Browser(door)
    left = one.post("/api/browser/logout")
    assert left.status_code == 200
    assert "max-age=0" in left.headers["set-cookie"].lower()
    assert one.get("/api/me").status_code == 401
    assert other.get("/api/me").status_code == 200


def test_new_token_signs_everybody_out(own: Door) -> None:
    """Sessions and open links belong to the token they were made under."""
    browser = Browser(own)
    code = own.post("/api/browser/links").json()["path"].partition("=")[2]
    old = own.headers
    own.app.settings.paths.token_file.unlink()
    assert browser.get("/api/me").status_code == 401
    assert own.get("/api/me", headers=old).status_code == 401
    assert httpx.post(f"{own.http}/api/browser/login", json={"code": code}).status_code == 403
    assert own.get("/api/me").status_code == 200


@pytest.mark.parametrize(
    "cookie",
    ["", f"{COOKIE}=", f"{COOKIE}=x", f"{COOKIE}={'x' * 5000}", f"{COOKIE}=a; {COOKIE}=b", "a=b;;=;{", "ü"],
)
def test_strange_cookies_let_nobody_in(door: Door, cookie: str) -> None:
    """Whatever stands there: 401, never a defect."""
    raw = [(b"cookie", cookie.encode("latin-1"))]
    assert httpx.get(f"{door.http}/api/me", headers=raw).status_code == 401


def test_two_cookies_of_our_name_are_nobodys(door: Door) -> None:
    """A page of another port can put a second one beside ours: nobody knows whose it is."""
    browser = Browser(door)
    header = {"Cookie": f"{COOKIE}=planted; {browser.cookie}"}
    assert httpx.get(f"{door.http}/api/me", headers=header).status_code == 401
    beside = {"Cookie": f"other=1; {browser.cookie}; {{odd}}"}
    assert httpx.get(f"{door.http}/api/me", headers=beside).status_code == 200


@pytest.mark.parametrize("path", sorted(PAGES))
def test_pages_are_the_same_for_everybody_and_load_nothing_from_elsewhere(door: Door, path: str) -> None:
    """No secret, no other host, no inline script; they may not be framed."""
    page = httpx.get(door.http + path)
    assert page.status_code == 200
    assert page.text == Browser(door).get(path).text
    assert door.token not in page.text
    assert "http://" not in page.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page.text
    assert "innerHTML" not in page.text
    assert page.headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


def test_api_answers_cannot_be_framed_or_sniffed(door: Door) -> None:
    """Every answer says so, also refusals of the application."""
    for path in ("/api/me", "/nothing"):
        found = door.get(path).headers
        assert found["x-content-type-options"] == "nosniff"
        assert found["cross-origin-resource-policy"] == "same-origin"
        assert found["content-security-policy"].startswith("default-src 'none'")


# ── the file alone ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def kept(tmp_path: Path) -> Browsers:
    """Browsers of a token of their own."""
    load_token(tmp_path / "token")
    return Browsers(tmp_path / "browsers.json", tmp_path / "token")


def test_only_hashes_are_kept(kept: Browsers, tmp_path: Path) -> None:
    """Who reads the file can sign nobody in; and only its owner can read it."""
    code = kept.link()
    assert code not in (tmp_path / "browsers.json").read_text()
    login = kept.redeem(code)
    text = (tmp_path / "browsers.json").read_text()
    assert login.cookie not in text
    assert login.page_key not in text
    assert load_token(tmp_path / "token") not in text
    assert stat.S_IMODE((tmp_path / "browsers.json").stat().st_mode) == 0o600


def test_links_and_sessions_expire(kept: Browsers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link after two minutes, a session after a week."""
    late, used = kept.link(), kept.link()
    login = kept.redeem(used)
    now = time.time()
    monkeypatch.setattr("proctor.server.browsers.time.time", lambda: now + browsers_module.LINK_SECONDS + 1)
    with pytest.raises(RefusedError):
        kept.redeem(late)
    assert kept.find(login.cookie) is not None
    monkeypatch.setattr(
        "proctor.server.browsers.time.time", lambda: now + browsers_module.SESSION_SECONDS + 1
    )
    assert kept.find(login.cookie) is None


def test_one_code_used_at_once_lets_one_in(kept: Browsers) -> None:
    """Eight at the same moment: one session."""
    code, won = kept.link(), []

    def take() -> None:
        try:
            won.append(kept.redeem(code))
        except RefusedError:
            return

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"sessions": 1, "links": []}', '{"sessions": [{"a": 1}], "links": []}', "null"]
)
def test_damaged_file_signs_everybody_out_and_works_again(kept: Browsers, tmp_path: Path, text: str) -> None:
    """Nobody gets in by damage, and the next link mends it."""
    login = kept.redeem(kept.link())
    (tmp_path / "browsers.json").write_text(text)
    assert kept.find(login.cookie) is None
    again = kept.redeem(kept.link())
    assert kept.find(again.cookie) is not None


def test_sessions_and_links_are_bounded(kept: Browsers) -> None:
    """The newest stay."""
    logins = [kept.redeem(kept.link()) for _ in range(browsers_module.MOST_SESSIONS + 2)]
    assert kept.find(logins[0].cookie) is None
    assert kept.find(logins[-1].cookie) is not None
    codes = [kept.link() for _ in range(browsers_module.MOST_LINKS + 1)]
    with pytest.raises(RefusedError):
        kept.redeem(codes[0])
    assert kept.redeem(codes[-1]).cookie
