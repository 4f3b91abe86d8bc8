"""A scripted model server on loopback: the prompt carries the script, so real CLI agents run without any
model.

`python -m proctor.testing.model_server` prints `{"url": …}` and serves until it is stopped. It speaks
Anthropic Messages (`/v1/messages`, stream or not) and OpenAI Responses (`/v1/responses`). Everything it
says is simulated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from proctor.testing.model_script import Turn, anthropic_turn, responses_turn
from proctor.testing.model_wire import (
    anthropic_error,
    anthropic_events,
    anthropic_message,
    responses_error,
    responses_events,
)

__all__ = ["ModelServer", "main"]

BODY_CAP = 64 * 1024 * 1024
HANG_S = 600.0
KEPT_REQUESTS = 200


class _Server(ThreadingHTTPServer):
    """A client that goes away in the middle is nothing to report."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report everything else as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class ModelServer:
    """The server in a thread of its own; a context manager."""

    def __init__(self, port: int = 0) -> None:
        self.requests: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=KEPT_REQUESTS)
        self.stopping = threading.Event()
        self._counts: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="scripted-models", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it listens, without the API's own path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def strikes(self, turn: Turn) -> bool:
        """Whether the fault of a step happens this time; `times` limits it."""
        with self._lock:
            self._counts[turn.script, turn.number] += 1
            return self._counts[turn.script, turn.number] <= int(turn.step.get("times", 1 << 30))

    def _handler(self) -> type[_Handler]:
        return type("Handler", (_Handler,), {"models": self})


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    models: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Stay silent; the requests are kept."""

    def do_HEAD(self) -> None:
        self._head(200, "text/plain", 0)

    def do_GET(self) -> None:
        self._json(200, {"object": "list", "data": [], "simulated": True})

    def do_POST(self) -> None:
        """Answer one model request."""
        path = self.path.partition("?")[0]
        size = min(int(self.headers.get("Content-Length") or 0), BODY_CAP)
        try:
            body = json.loads(self.rfile.read(size) or b"{}")
        except ValueError:
            return self._json(400, anthropic_error(400, "the body is not JSON"))
        self.models.requests.append((path, body))
        if path.endswith("/messages"):
            return self._serve(anthropic_turn(body), body, claude=True)
        if path.endswith("/responses"):
            return self._serve(responses_turn(body), body, claude=False)
        return self._json(404, anthropic_error(404, f"nothing is served at {path}"))

    def _serve(self, turn: Turn, body: Mapping[str, Any], *, claude: bool) -> None:
        step = turn.step
        time.sleep(min(float(step.get("delay", 0)), HANG_S))
        strikes = self.models.strikes(turn)
        if "http" in step and strikes:
            error = anthropic_error if claude else responses_error
            return self._json(
                int(step["http"]), error(int(step["http"]), "simulated fault"), step.get("headers", {})
            )
        if step.get("hang") and strikes:
            self.models.stopping.wait(HANG_S)
            return self._close()
        model = str(body.get("model", "simulated"))
        if claude and not body.get("stream"):
            return self._json(200, anthropic_message(turn, model))
        frames = anthropic_events(turn, model) if claude else responses_events(turn, model)
        return self._stream(frames, drop=bool(step.get("drop")) and strikes)

    def _stream(self, frames: list[tuple[str, dict[str, Any]]], *, drop: bool) -> None:
        self._head(200, "text/event-stream", None)
        for name, frame in frames[: len(frames) // 2] if drop else frames:
            self.wfile.write(f"event: {name}\ndata: {json.dumps(frame)}\n\n".encode())
            self.wfile.flush()
        self._close()

    def _json(self, status: int, answer: Mapping[str, Any], headers: Mapping[str, Any] | None = None) -> None:
        data = json.dumps(answer).encode()
        self._head(status, "application/json", len(data), headers or {})
        self.wfile.write(data)

    def _head(
        self, status: int, kind: str, size: int | None, headers: Mapping[str, Any] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            self.send_header(name, str(value))
        if size is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def _close(self) -> None:
        self.close_connection = True


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    with ModelServer(parser.parse_args().port) as server:
        print(json.dumps({"url": server.url, "simulated": True}), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
