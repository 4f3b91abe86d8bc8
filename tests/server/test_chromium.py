"""A real browser: what a page from elsewhere can do to this server, and what our own page shows."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.server.conftest import Door
from tests.support.chromium import Tab, chromium, program
from tests.support.requirements import require

pytestmark = pytest.mark.slow

TRIES = """
(async () => {
  const base = BASE;
  const tried = {};
  const report = (name, work) => work().then((value) => tried[name] = `in: ${value}`, (error) => tried[name] = "out");
  await report("cors", async () => (await fetch(base + "/api/approvals", { credentials: "include" })).status);
  await report("health", async () => (await fetch(base + "/health")).status);
  await report("post", async () => (await fetch(base + "/api/tools/list_directory", {
    method: "POST", credentials: "include", headers: { "Content-Type": "application/json" }, body: "{}" })).status);
  await report("socket", () => new Promise((yes, no) => {
    const line = new WebSocket(base.replace("http", "ws") + "/ws");
    line.onopen = () => yes("open"); line.onerror = no; }));
  await report("trace", () => new Promise((yes, no) => {
    const line = new WebSocket(base.replace("http", "ws") + "/ws/traces/t");
    line.onopen = () => yes("open"); line.onerror = no; }));
  await report("pathless", () => new Promise((yes, no) => {
    const line = new WebSocket(WS);
    line.onopen = () => yes("open"); line.onerror = no; }));
  await report("stream", () => new Promise((yes, no) => {
    const lines = new EventSource(base + "/api/events", { withCredentials: true });
    lines.onopen = () => yes("open"); lines.onerror = () => { lines.close(); no(); }; }));
  await report("script", () => new Promise((yes, no) => {
    const made = document.createElement("script");
    made.src = base + "/api/tools"; made.onload = () => yes("loaded"); made.onerror = no; document.head.append(made); }));
  return tried;
})()
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """One browser for this file."""
    require(program() is not None, "no Chromium on this machine", "Install Debian's chromium, or Chrome.")
    with chromium(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """A page on another port of this machine, as an agent may serve one, and the cookies it was shown."""
    cookies: list[str] = []

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Any path is the page."""
            cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title>")

        def log_message(self, *_words: object) -> None:
            """Be quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", cookies
    server.shutdown()
    server.server_close()


def _link(door: Door) -> str:
    return door.http + str(door.post("/api/browser/links").json()["path"])


def _tries(door: Door) -> str:
    return TRIES.replace("BASE", repr(door.http), 1).replace("WS)", repr(door.ws) + ")", 1)


def test_own_page_signs_in_and_shows_texts_as_texts(door: Door, tab: Tab) -> None:
    """The code leaves the address, scripts cannot read the cookie, and markup in a description is text."""
    door.post("/api/tasks", {"description": "<img src=x onerror=document.title='taken'> & more"})
    tab.open(_link(door))
    tab.until(
        "document.getElementById('lists')?.hidden === false && document.querySelectorAll('#tasks tr').length > 0"
    )
    assert tab.ask("location.href") == f"{door.http}/"
    assert tab.ask("document.cookie") == ""
    assert "<img src=x" in tab.ask("document.getElementById('tasks').innerText")
    assert tab.ask("document.title") == "Proctor"
    tab.ask("document.getElementById('leave').click()")
    tab.until("document.readyState === 'complete' && document.getElementById('notice')?.hidden === false")
    assert "proctor open" in tab.ask("document.getElementById('notice').innerText")


@pytest.mark.parametrize("which", ["door", "open_door"])
def test_page_from_another_origin_cannot_connect(
    request: pytest.FixtureRequest, tab: Tab, elsewhere: tuple[str, list[str]], which: str
) -> None:
    """Signed in or where no token is needed: REST, both sockets, traces, streams and scripts are closed to it."""
    door: Door = request.getfixturevalue(which)
    page, cookies = elsewhere
    tab.open(_link(door))
    tab.until("document.getElementById('lists')?.hidden === false")
    tab.open(page)
    found = tab.ask(_tries(door))
    assert found == dict.fromkeys(
        ("cors", "health", "post", "socket", "trace", "pathless", "stream", "script"), "out"
    )
    # A browser does show the cookie to other ports of this machine: that is why it may only read.
    stolen = next(one for one in cookies if "proctor_session=" in one)
    answer = httpx.post(f"{door.http}/api/browser/links", headers={"Cookie": stolen, "Origin": door.http})
    assert answer.status_code in {401, 403}


def test_api_page_lists_every_operation(door: Door, tab: Tab) -> None:
    """Made of the document, without anything from elsewhere."""
    tab.open(_link(door))
    tab.until("document.getElementById('lists')?.hidden === false")
    tab.open(f"{door.http}/docs")
    paths = door.get("/openapi.json").json()["paths"]
    operations = sum(len(methods) for methods in paths.values())
    tab.until(f"document.querySelectorAll('details').length === {operations}")
    assert tab.ask(
        "performance.getEntriesByType('resource').every((one) => one.name.startsWith(location.origin))"
    )
