"""Ports of a server: had from our own background, from nobody else, and each refusal is a sentence."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.config import Paths, load_settings
from proctor.engine import client
from proctor.protocol.errors import RefusedError, UnavailableError
from proctor.server.listening import listen_instead

HOST = "127.0.0.1"


@pytest.fixture
def paths(home: Path, tmp_path: Path) -> Paths:
    """Of a user for whom nothing runs."""
    return load_settings(tmp_path).paths


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """Somebody who listens."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def _there(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> list[str]:
    """Let this supervisor be there; gives whether it was asked to leave."""
    stopped: list[str] = []
    monkeypatch.setattr(client, "ask", lambda *_: facts)
    monkeypatch.setattr(client, "stop", lambda _: stopped.append("stopped"))
    return stopped


def test_port_of_another_program_is_one_sentence_with_the_options(paths: Paths, taken: socket.socket) -> None:
    """No supervisor runs, so nobody can be asked to leave."""
    with pytest.raises(UnavailableError, match="--port"):
        listen_instead(paths, HOST, _port(taken))


def test_background_leaves_the_port_that_it_holds(
    paths: Paths, taken: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept its last one, and a server takes its place."""
    port = _port(taken)
    _there(monkeypatch, http=f"http://{HOST}:{port}", serves=False)
    monkeypatch.setattr(client, "stop", lambda _: taken.close())
    with listen_instead(paths, HOST, port) as listener:
        assert _port(listener) == port


def test_background_elsewhere_is_not_disturbed_for_a_port_it_does_not_hold(
    paths: Paths, taken: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end would free nothing."""
    stopped = _there(monkeypatch, http=f"http://{HOST}:1", serves=False)
    with pytest.raises(UnavailableError):
        listen_instead(paths, HOST, _port(taken))
    assert stopped == []


def test_second_server_hears_where_the_first_is(
    paths: Paths, taken: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it wants the very same port."""
    http = f"http://{HOST}:{_port(taken)}"
    stopped = _there(monkeypatch, http=http, pid=7, serves=True)
    with pytest.raises(RefusedError, match=http):
        listen_instead(paths, HOST, _port(taken))
    assert stopped == []
