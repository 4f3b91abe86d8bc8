"""The dispatcher over REST against servers that misbehave: always a dictionary, and the token stays home."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from proctor.compat.house import House
from proctor.compat.rest import RestTools
from proctor.engine import client
from tests.server.conftest import served


class _Odd(BaseHTTPRequestHandler):
    """Answers what the path of the base address says."""

    seen: list[str | None]

    def do_GET(self) -> None:
        """Misbehave."""
        kind = self.path.split("/")[1]
        type(self).seen.append(self.headers.get("X-SOLACE-API-KEY"))
        if kind == "gone":
            self.close_connection = True
            return
        status, body = {
            "html": (500, b"<html>oops</html>"),
            "list": (200, b"[1]"),
            "deep": (200, b"[" * 100_000),
            "bytes": (200, b"\xff\xfe"),
            "empty": (200, b""),
            "away": (302, b""),
            "refused": (403, b'{"error": "no", "hint": "h", "code": "refused"}'),
            "bare": (418, b'{"error": "no"}'),
        }[kind]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/refused/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def odd() -> Iterator[str]:
    """A server of that kind."""
    _Odd.seen = []
    server = HTTPServer(("127.0.0.1", 0), _Odd)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A state of the test's own."""
    made = House(tmp_path / "state")
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["html", "list", "deep", "bytes", "empty", "gone"])
def test_answers_that_are_none_are_an_error_with_the_cure(odd: str, house: House, kind: str) -> None:
    """Whatever comes back, the caller gets error, hint and code."""
    found = RestTools(house.app, f"{odd}/{kind}").call("verify_system_running", {})
    assert set(found) == {"error", "hint", "code"}
    assert "no answer" in found["error"]


def test_refusals_come_as_they_are(odd: str, house: House) -> None:
    """With the server's own code, else the status."""
    assert RestTools(house.app, f"{odd}/refused").call("verify_system_running", {})["code"] == "refused"
    assert RestTools(house.app, f"{odd}/bare").call("verify_system_running", {})["code"] == "http_418"


def test_token_follows_no_redirect(odd: str, house: House) -> None:
    """Who sends us elsewhere does not get the token there."""
    _Odd.seen.clear()
    found = RestTools(house.app, f"{odd}/away").call("verify_system_running", {})
    assert "no answer" in found["error"]
    assert len(_Odd.seen) == 1


def test_nobody_at_the_address_is_said(house: House) -> None:
    """A closed port is a sentence."""
    found = RestTools(house.app, "http://127.0.0.1:9").call("verify_system_running", {})
    assert found["code"] == "unavailable"


def test_server_that_was_found_is_told_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The background belongs to no directory and `proctor serve` perhaps to another one: the coordinator's counts."""
    with served(tmp_path) as door:
        door.front.leave_workspace()
        monkeypatch.setattr(client, "ask", lambda *_: {"http": door.http})
        (door.workspace / "a b.txt").write_text("here")
        tools = RestTools(door.app, workspace=door.workspace)
        assert tools.call("read_file", {"file_path": "a b.txt"})["content"] == "here"
        assert tools.call("verify_system_running", {})["status"] == "running"
        made = tools.call("create_user_request", {"request_text": "a thing"})
        assert tools.call("analyze_request", {"request_id": made["id"]})["status"] == "planned"
