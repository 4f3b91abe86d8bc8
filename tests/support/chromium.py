"""A real Chromium over its debugging protocol, where one is installed: enough to open a page and look at what it did."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

__all__ = ["Tab", "chromium", "program"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str | None:
    """Where the browser is; None when there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One page of the browser."""

    def __init__(self, line: ClientConnection, session: str) -> None:
        self._line = line
        self._session = session
        self._ids = itertools.count(100)

    def do(self, method: str, **values: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        told = self._send(method, **values)
        assert "error" not in told, told
        found: dict[str, Any] = told["result"]
        return found

    def _send(self, method: str, **values: Any) -> dict[str, Any]:
        """The answer as it comes, or the error that stands in its place."""
        mark = next(self._ids)
        self._line.send(
            json.dumps({"id": mark, "method": method, "params": values, "sessionId": self._session})
        )
        told: dict[str, Any] = {}
        while told.get("id") != mark:
            told = json.loads(self._line.recv(timeout=60))
        return told

    def open(self, address: str) -> None:
        """Go there, and wait until that page is there: the one before may still answer for a moment."""
        self.do("Runtime.evaluate", expression="window.leaving = true")
        self.do("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank' && !window.leaving")

    def ask(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        told = self.do("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, script: str, seconds: float = 90) -> Any:
        """Wait until an expression is true; a page that is just being left or made is asked again."""
        deadline = time.monotonic() + seconds
        while True:
            told = self._send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
            found = told.get("result", {}).get("result", {}).get("value")
            if found and "exceptionDetails" not in told["result"]:
                return found
            assert time.monotonic() < deadline, (told, self.ask("document.body && document.body.innerText"))
            time.sleep(0.1)

    def picture(self, path: Path) -> None:
        """Keep what it looks like."""
        path.write_bytes(base64.b64decode(self.do("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def chromium(place: Path) -> Iterator[Tab]:
    """A browser with a profile of its own, gone at the end."""
    found = program()
    assert found is not None
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run",
             "--window-size=1100,800", f"--user-data-dir={place}"]  # fmt: skip
    browser = subprocess.Popen([found, *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        told = place / "DevToolsActivePort"
        deadline = time.monotonic() + 60
        while not told.exists() or len(told.read_text().split()) < 2:
            assert browser.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        port, path = told.read_text().split()
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None) as line:
            yield _tab(line)
    finally:
        browser.kill()
        browser.wait(30)


def _tab(line: ClientConnection) -> Tab:
    def do(mark: int, method: str, **values: Any) -> dict[str, Any]:
        line.send(json.dumps({"id": mark, "method": method, "params": values}))
        while (told := json.loads(line.recv(timeout=60))).get("id") != mark:
            continue
        found: dict[str, Any] = told["result"]
        return found

    target = do(1, "Target.createTarget", url="about:blank")["targetId"]
    session = do(2, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    tab = Tab(line, session)
    tab.do("Page.enable")
    tab.do("Runtime.enable")
    return tab
