"""Hypothesis over frames: arbitrary JSON, text, bytes, fragments, raw noise. No crash, no hang, every message answered."""

from __future__ import annotations

import json
import os
import socket as sockets
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.conftest import Door, Socket

KINDS = st.sampled_from(
    ["ping", "read_file", "write_file", "list_directory", "get_architecture", "query_schema", "create_backup",
     "restore_backup", "chat", "verify_system_running", "list_backups", "command_status", "status", "error", ""]
)  # fmt: skip
NUMBERS = st.integers() | st.integers(min_value=-(10**60), max_value=10**60) | st.floats()
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=30)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["path", "content", "recursive", "max_depth", "feature_type", "table_name", "backup_path", "message",
     "id", "trace_id", "progress", "background", "job_id", "x"]
)  # fmt: skip
MESSAGES = st.builds(
    lambda kind, data, top: {**top, "type": kind, **({} if data is None else {"data": data})},
    KINDS | JSON,
    st.dictionaries(NAMES, JSON, max_size=5) | JSON,
    st.dictionaries(NAMES, JSON, max_size=5),
)
DEEP = st.integers(min_value=1, max_value=3000).map(
    lambda deep: '{"type": "ping", "data": ' + "[" * deep + "]" * deep + "}"
)
WIDE = st.integers(min_value=1, max_value=5000).map(
    lambda digits: '{"type": "ping", "id": ' + "9" * digits + "}"
)


@pytest.fixture(scope="module")
def kept(door: Door) -> Iterator[Socket]:
    """One connection for all examples: none of them may close it."""
    with door.socket() as made:
        yield made


def expect_answer(line: Socket, raw: str | bytes) -> None:
    """One frame comes back that is no defect, and the next ping is answered."""
    frame = line.ask(raw)
    while frame["type"] == "status":
        frame = line.receive()
    assert isinstance(frame["type"], str)
    assert "defect" not in str(frame.get("message", "")).lower(), frame
    assert line.ask({"type": "ping"})["type"] == "pong"


@settings(max_examples=150)
@given(message=MESSAGES)
def test_any_request_isexpect_answer(kept: Socket, message: Any) -> None:
    """Whatever fields, kinds and values: one answer, no defect, and the connection lives."""
    expect_answer(kept, json.dumps(message))


@settings(max_examples=100)
@given(raw=st.one_of(st.text(max_size=200), st.binary(max_size=200), DEEP, WIDE, JSON.map(json.dumps)))
def test_any_text_and_any_bytes_areexpect_answer(kept: Socket, raw: str | bytes) -> None:
    """No JSON, deep JSON, huge numbers, binary frames: one sentence each."""
    expect_answer(kept, raw)


@settings(max_examples=25)
@given(parts=st.lists(st.text(max_size=20), min_size=2, max_size=8))
def test_fragments_are_one_message(kept: Socket, parts: list[str]) -> None:
    """A message in many frames is one message."""
    kept.line.send(iter(parts))
    assert kept.receive()["type"] == "error"
    pieces = iter(['{"ty', 'pe": "pi', 'ng", "id"', ": 7}"])
    kept.line.send(pieces)
    assert kept.receive()["id"] == 7


def test_many_at_once_are_answered_in_order(door: Door) -> None:
    """Twenty clients send a hundred requests each, the most that may wait: all are answered, each in its order."""
    wrong: list[str] = []

    def talk() -> None:
        with door.socket() as line:
            for mark in range(100):
                line.send({"type": "get_architecture" if mark % 20 == 0 else "fly", "id": mark})
            marks = [line.receive(60).get("id") for _ in range(100)]
            if marks != list(range(100)):
                wrong.append(str(marks[:10]))

    threads = [threading.Thread(target=talk) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)


def test_who_sends_and_never_reads_holds_up_nobody(door: Door) -> None:
    """A client that takes no answers is not answered for ever: others are, and it can go."""
    (door.workspace / "large.txt").write_text("x" * 900_000)
    with _raw(door) as rude:
        rude.settimeout(2)
        with suppress(TimeoutError, OSError):
            for _ in range(500):
                rude.sendall(_frame(json.dumps({"type": "read_file", "path": "large.txt"}).encode()))
        with door.socket() as other:
            assert other.ask({"type": "ping"})["type"] == "pong"


# ── raw bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _raw(door: Door) -> sockets.socket:
    """A WebSocket's TCP connection after its handshake."""
    parts = urlsplit(door.ws)
    line = sockets.create_connection((str(parts.hostname), parts.port or 0), timeout=30)
    line.sendall(
        f"GET / HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {door.token}\r\n\r\n".encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += line.recv(4096)
    assert b" 101 " in answer
    return line


def _frame(payload: bytes, *, first: int = 0x81) -> bytes:
    size = len(payload)
    head = bytes([first]) + (bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack("!H", size))
    return head + b"\0\0\0\0" + payload


def _gone(door: Door) -> None:
    """Until the server has forgotten every raw connection."""
    deadline = time.monotonic() + 30
    while door.front.sockets > 1:  # the one that is kept for all examples
        assert time.monotonic() < deadline
        time.sleep(0.02)


@settings(max_examples=40)
@given(
    noise=st.one_of(
        st.binary(min_size=1, max_size=100),
        st.binary(max_size=60).map(_frame),
        st.binary(max_size=60).map(lambda raw: _frame(raw)[: max(1, len(raw) // 2)]),
        st.tuples(st.integers(0, 255), st.binary(max_size=60)).map(lambda two: _frame(two[1], first=two[0])),
    )
)
def test_raw_noise_ends_at_most_its_own_connection(door: Door, kept: Socket, noise: bytes) -> None:
    """Broken, half and reserved frames: that client may be closed, the others do not notice."""
    with _raw(door) as line:
        line.sendall(noise)
    assert kept.ask({"type": "ping"})["type"] == "pong"


def test_half_frames_and_silent_clients_are_forgotten_when_they_go(door: Door, kept: Socket) -> None:
    """Half a header, half a payload, nothing at all: each is gone when its connection is."""
    assert kept.ask({"type": "ping"})["type"] == "pong"
    for noise in (b"", b"\x81", b"\x81\xfe", _frame(b"x" * 100)[:50], _frame(b'{"type":', first=0x01)):
        with _raw(door) as line:
            line.sendall(noise)
    _gone(door)
    assert kept.ask({"type": "ping"})["type"] == "pong"


def test_text_that_is_not_utf_8_closes_only_that_connection(door: Door, kept: Socket) -> None:
    """The protocol demands the close; it is said why, and nobody else notices."""
    with _raw(door) as line:
        line.sendall(_frame(b"\xff\xfe\xfd"))
        line.settimeout(30)
        assert line.recv(100)[:1] == b"\x88"
    assert kept.ask({"type": "ping"})["type"] == "pong"


@settings(max_examples=40)
@given(noise=st.lists(st.text(max_size=30) | st.binary(max_size=30), max_size=6))
def test_trace_sockets_ignore_noise(door: Door, noise: list[str | bytes]) -> None:
    """Anything but ping and close is ignored; a ping is answered after all of it."""
    with door.socket("/ws/traces/noise") as viewer:
        assert viewer.receive()["event"] == "connected"
        for one in noise:
            if one not in {"ping", "close"}:
                viewer.send(one)
        viewer.send("ping")
        assert viewer.line.recv(timeout=30) == "pong"


@settings(max_examples=60)
@given(raw=st.binary(min_size=1, max_size=300))
def test_raw_noise_on_the_http_port_is_refused(door: Door, raw: bytes) -> None:
    """What is no HTTP is answered with 4xx or hung up on; the server goes on."""
    parts = urlsplit(door.http)
    with sockets.create_connection((str(parts.hostname), parts.port or 0), timeout=30) as line:
        line.sendall(raw + os.linesep.encode())
        line.shutdown(sockets.SHUT_WR)
        answer = b""
        with suppress(ConnectionResetError):
            answer = line.recv(4096)
    assert not answer.startswith(b"HTTP/1.1 5")
    assert door.get("/health").status_code == 200
