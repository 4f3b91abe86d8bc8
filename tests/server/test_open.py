"""`proctor open` and the background's own HTTP port, with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from proctor.config import Settings, load_settings
from proctor.engine import client
from proctor.engine.doors import last_port, read_address
from proctor.gate.humans import load_token
from tests.support.supervisors import stop_supervisor

pytestmark = pytest.mark.slow
PROCTOR = [sys.executable, "-m", "proctor"]


@pytest.fixture
def settings(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A home of its own; whatever supervisor is left is stopped."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    found = load_settings(work)
    yield found
    stop_supervisor()


def _run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROCTOR, *words], capture_output=True, text=True, timeout=90, env={**os.environ, **environ}
    )


def _opened() -> dict[str, Any]:
    done = _run("open", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_open_starts_the_supervisor_and_its_link_signs_in_once(settings: Settings) -> None:
    """Nothing runs before; then one address in status, doctor and state directory, and a link that works once."""
    assert json.loads(_run("status", "--json").stdout)["server"] is None
    said = _opened()
    code = said["link"].partition("#login=")[2]
    assert said["link"] == f"{said['http']}/#login={code}"
    made = httpx.post(f"{said['http']}/api/browser/login", json={"code": code}, timeout=30)
    cookie = {"Cookie": made.headers["set-cookie"].partition(";")[0]}
    me = httpx.get(f"{said['http']}/api/me", headers=cookie, timeout=30).json()
    assert (me["signed_in"], me["workspace"]) == ("browser", None)
    assert httpx.post(f"{said['http']}/api/browser/login", json={"code": code}).status_code == 403
    there = read_address(settings.paths)
    hello = client.greet(settings.paths)
    assert there is not None
    assert hello is not None
    assert (there.http, there.pid, hello.http) == (said["http"], hello.pid, said["http"])
    assert json.loads(_run("status", "--json").stdout)["server"]["http"] == said["http"]
    checks = {row["name"]: row for row in json.loads(_run("doctor", "--json").stdout)["checks"]}
    assert said["http"] in checks["http"]["detail"]
    assert said["http"] in _run("supervisor", "status").stdout
    assert said["http"] in _run("open", "--no-browser").stdout


def test_background_serves_every_workspace_and_none_by_itself(settings: Settings, tmp_path: Path) -> None:
    """A call must say where it works; what is asked for is executed by the same process."""
    said = _opened()
    headers = {"Authorization": f"Bearer {load_token(settings.paths.token_file)}"}
    lost = httpx.post(f"{said['http']}/api/tools/list_directory", json={}, headers=headers, timeout=30)
    assert lost.status_code == 400
    assert "workspace" in lost.json()["error"]
    for path in ("/api/v1/solace-orch/orchestrate/scan", "/api/v1/agents/tasks", "/api/tasks"):
        body = {"description": "x", "task_type": "y"} if "tasks" in path else {}
        body = {"description": "x"} if path == "/api/tasks" else body
        assert httpx.post(said["http"] + path, json=body, headers=headers, timeout=30).status_code == 400
    (tmp_path / "work" / "seen").write_text("")
    where = {"workspace": str(tmp_path / "work")}
    found = httpx.post(
        f"{said['http']}/api/tools/list_directory", json={}, params=where, headers=headers, timeout=30
    ).json()
    assert [one["path"] for one in found["output"]["files"]] == ["seen"]
    assert httpx.get(f"{said['http']}/api/agents", headers=headers, timeout=60).status_code == 200
    counted = httpx.get(f"{said['http']}/metrics", headers=headers, timeout=30).text
    assert re.search(r"proctor_trace_events_total\S* [1-9]", counted)


def test_next_supervisor_has_the_same_port_unless_it_is_taken(settings: Settings) -> None:
    """Open pages find the next one; after kill -9 too; a port that somebody else took is no hindrance."""
    first = _opened()["http"]
    hello = client.greet(settings.paths)
    assert hello is not None
    os.kill(hello.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while read_address(settings.paths) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert _opened()["http"] == first
    client.stop(settings.paths)
    assert read_address(settings.paths) is None
    assert last_port(settings.paths) == urlsplit(first).port
    with socket.create_server(("127.0.0.1", urlsplit(first).port or 0)):
        assert _opened()["http"] != first


def test_agents_cannot_open(settings: Settings) -> None:
    """A command an agent has started gets no link, and nothing is started for it."""
    done = _run("open", "--json", PROCTOR_RUN="x")
    assert (done.returncode, "person" in done.stderr) == (5, True)
    assert client.greet(settings.paths) is None
    assert _run("logout", PROCTOR_RUN="x").returncode == 5


def test_logout_makes_a_new_token(settings: Settings) -> None:
    """The old token and every browser are out at once; the server stays."""
    said = _opened()
    old = {"Authorization": f"Bearer {load_token(settings.paths.token_file)}"}
    assert httpx.get(f"{said['http']}/api/me", headers=old, timeout=30).status_code == 200
    assert _run("logout").returncode == 0
    assert httpx.get(f"{said['http']}/api/me", headers=old, timeout=30).status_code == 401
    code = said["link"].partition("#login=")[2]
    assert httpx.post(f"{said['http']}/api/browser/login", json={"code": code}).status_code == 403
    assert _opened()["http"] == said["http"]


def test_browser_program_gets_the_link(settings: Settings, tmp_path: Path) -> None:
    """BROWSER names the program; it is given the one-time link, and the terminal shows no secret then."""
    seen = tmp_path / "seen-link"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    program.chmod(0o755)
    done = _run("open", BROWSER=str(program))
    assert done.returncode == 0, done.stderr
    assert "#login=" not in done.stdout
    deadline = time.monotonic() + 30
    while not seen.exists() or not seen.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "#login=" in seen.read_text()


def test_supervisor_stays_while_somebody_is_there(settings: Settings) -> None:
    """An open page keeps it longer than it would stay idle; asked to leave, it leaves all the same."""
    line = subprocess.Popen([*PROCTOR, "supervisor", "--idle", "6"])
    try:
        deadline = time.monotonic() + 60
        while (there := read_address(settings.paths)) is None:
            client.greet(settings.paths, doors=True)
            assert time.monotonic() < deadline
            time.sleep(0.05)
        headers = {"Authorization": f"Bearer {load_token(settings.paths.token_file)}"}
        with httpx.stream("GET", f"{there.http}/api/events", headers=headers, timeout=60) as watching:
            assert next(watching.iter_lines()) == ": connected"
            time.sleep(8)
            assert line.poll() is None
            line.terminate()
            assert line.wait(60) == 0
    finally:
        line.kill()
        line.wait(60)
