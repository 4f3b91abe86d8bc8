"""A scripted model server on loopback: the prompt carries the script, so agents and chats run without any model.

`python -m proctor.testing.model_server` prints `{"url": …}` and serves until it is stopped. It speaks Anthropic
Messages (`/v1/messages`), OpenAI Responses (`/v1/responses`) and Chat Completions (`/v1/chat/completions`), Google
(`…:generateContent`, `…:streamGenerateContent`) and Ollama (`/api/chat`), stream or not. Everything it says is simulated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from proctor.testing.model_dialect import Dialect
from proctor.testing.model_script import Turn
from proctor.testing.model_wire import ANTHROPIC
from proctor.testing.model_wire_google import GOOGLE
from proctor.testing.model_wire_ollama import OLLAMA, tags
from proctor.testing.model_wire_openai import CHAT, RESPONSES

__all__ = ["ModelServer", "main"]

BODY_CAP = 64 * 1024 * 1024
HANG_S = 600.0
KEPT_REQUESTS = 200
OLLAMA_MODELS = ("qwen3:14b",)
# By how a path ends.
DIALECTS: Mapping[str, Dialect] = {
    "/messages": ANTHROPIC,
    "/responses": RESPONSES,
    "/chat/completions": CHAT,
    ":generateContent": GOOGLE,
    ":streamGenerateContent": GOOGLE,
    "/api/chat": OLLAMA,
}


class _Server(ThreadingHTTPServer):
    """A client that goes away in the middle is nothing to report."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report everything else as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class ModelServer:
    """The server in a thread of its own; a context manager."""

    def __init__(self, port: int = 0, *, ollama_models: Sequence[str] = OLLAMA_MODELS) -> None:
        self.requests: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=KEPT_REQUESTS)
        self.stopping = threading.Event()
        self.ollama_models = tuple(ollama_models)
        self._counts: Counter[tuple[str, int]] = Counter()
        self._again: Counter[str] = Counter()
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

    def due(self, turn: Turn, body: Mapping[str, Any]) -> Turn:
        """The turn that is next: a step that waits for a text comes again as long as the client does not tell it."""
        with self._lock:
            turn = turn.back(self._again[turn.script]) if self._again[turn.script] else turn
            if turn.awaited and turn.awaited not in json.dumps(body, ensure_ascii=False):
                self._again[turn.script] += 1
                turn = turn.back(1)
        return turn

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
        """What there is, as each protocol lists it."""
        if self.path.endswith("/api/tags"):
            return self._json(200, tags(self.models.ollama_models))
        return self._json(200, {"object": "list", "data": [], "simulated": True})

    def do_POST(self) -> None:
        """Answer one model request."""
        path = self.path.partition("?")[0]
        size = min(int(self.headers.get("Content-Length") or 0), BODY_CAP)
        dialect = next((one for end, one in DIALECTS.items() if path.endswith(end)), None)
        refuse = (dialect or ANTHROPIC).error
        try:
            body = json.loads(self.rfile.read(size) or b"{}")
        except ValueError:
            return self._json(400, refuse(400, "the body is not JSON"))
        if dialect is None:
            return self._json(404, refuse(404, f"nothing is served at {path}"))
        self.models.requests.append((path, body))
        return self._serve(dialect, self.models.due(dialect.turn(body), body), body, path)

    def _serve(self, dialect: Dialect, turn: Turn, body: Mapping[str, Any], path: str) -> None:
        step = turn.step
        self.models.stopping.wait(min(float(step.get("delay", 0)), HANG_S))
        strikes = self.models.strikes(turn)
        if "http" in step and strikes:
            status = int(step["http"])
            return self._json(status, dialect.error(status, "simulated fault"), step.get("headers", {}))
        if step.get("hang") and strikes:
            return self._hang()
        model = _model(body, path)
        if step.get("bad_json") and strikes:
            return self._broken(dialect, streams=_streams(dialect, body, path))
        faults = {name: bool(step.get(name)) and strikes for name in ("drop", "stall")}
        if _streams(dialect, body, path):
            return self._stream(dialect.kind, dialect.stream(turn, model), **faults)
        return self._whole(json.dumps(dialect.whole(turn, model)).encode(), **faults)

    def _hang(self) -> None:
        self.models.stopping.wait(HANG_S)
        self.close_connection = True

    def _broken(self, dialect: Dialect, *, streams: bool) -> None:
        """An answer that is no JSON."""
        if streams:
            line = b'{"broken": \n' if dialect is OLLAMA else b'data: {"broken": \n\n'
            return self._stream(dialect.kind, [line], drop=False, stall=False)
        return self._send(200, "application/json", b'{"broken": ')

    def _stream(self, kind: str, frames: list[bytes], *, drop: bool, stall: bool) -> None:
        """Chunked, so that a client can tell a dropped answer from one that has ended."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for frame in frames[: len(frames) // 2] if drop or stall else frames:
            self.wfile.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
            self.wfile.flush()
        if stall:
            self._hang()
        elif not drop:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _whole(self, data: bytes, *, drop: bool, stall: bool) -> None:
        if not drop and not stall:
            return self._send(200, "application/json", data)
        self._head(200, "application/json", len(data))
        self.wfile.write(data[: len(data) // 2])
        self.wfile.flush()
        if stall:
            self._hang()
        self.close_connection = True
        return None

    def _json(self, status: int, answer: Mapping[str, Any], headers: Mapping[str, Any] | None = None) -> None:
        self._send(status, "application/json", json.dumps(answer).encode(), headers)

    def _send(self, status: int, kind: str, data: bytes, headers: Mapping[str, Any] | None = None) -> None:
        self._head(status, kind, len(data), headers)
        self.wfile.write(data)

    def _head(self, status: int, kind: str, size: int, headers: Mapping[str, Any] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            self.send_header(name, str(value))
        self.send_header("Content-Length", str(size))
        self.end_headers()


def _streams(dialect: Dialect, body: Mapping[str, Any], path: str) -> bool:
    if dialect is GOOGLE:
        return path.endswith(":streamGenerateContent")
    return bool(body.get("stream", dialect is OLLAMA))


def _model(body: Mapping[str, Any], path: str) -> str:
    named = path.rpartition("/")[2].partition(":")[0] if ":" in path else ""
    return str(body.get("model") or named or "simulated")


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument(
        "--ollama-model",
        action="append",
        metavar="NAME",
        help="a model that /api/tags lists; may be repeated",
    )
    given = parser.parse_args()
    with ModelServer(given.port, ollama_models=given.ollama_model or OLLAMA_MODELS) as server:
        print(json.dumps({"url": server.url, "simulated": True}), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
