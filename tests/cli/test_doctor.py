"""`proctor doctor`: every row has a state, each trouble its cure, and whatever is broken the others still answer."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import main
from proctor.config import load_settings
from proctor.store.database import sqlite_url
from proctor.store.schema import open_database

LIGHT = """
import sys
from proctor.cli.main import main
from proctor.config import load_settings
main(["doctor"])
print("LOADED", sorted({"dbos", "alembic"} & set(sys.modules)))
"""


@pytest.fixture(autouse=True)
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository to stand in; API models' servers and keys are not there."""
    repo = home / "repo"
    (repo / ".git").mkdir(parents=True)
    monkeypatch.chdir(repo)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return repo


def _examine(capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert main(["doctor", "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is (code == 0)
    for row in found["checks"]:
        assert row["state"] in {"ok", "warn", "fail"}
        assert row["detail"]
    return {row["name"]: row for row in found["checks"]}


def test_fresh_home_has_nothing_that_fails_and_stays_untouched(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every subject has its row; looking makes neither database nor key."""
    rows = _examine(capsys)
    assert {"python", "sqlite", "git", "settings", "database", "trace key", "supervisor", "service"} <= set(
        rows
    )
    assert {"state directory", "data directory", "sandbox level", "extra fast", "extra otlp"} <= set(rows)
    assert any(name.startswith("agent claude") for name in rows)
    assert not any("SOLACE" in name for name in rows)
    assert "orchestrator.log" in rows["supervisor"]["detail"]
    assert list((home / "state").iterdir()) == []
    assert main(["doctor"]) == 0
    assert "0 failed" in capsys.readouterr().out


def test_old_sqlite_is_named_with_what_is_done_about_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's replaced function is told, below 3.42 only."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    assert "unixepoch" in _examine(capsys)["sqlite"]["detail"]
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 45, 0))
    assert "unixepoch" not in _examine(capsys)["sqlite"]["detail"]


def test_wrong_settings_name_file_and_line_and_the_rest_still_answers(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, where it stands, what is allowed; also when the environment itself is wrong."""
    (place / "proctor.toml").write_text('profile = "standard"\nprofil = "x"\n')
    rows = _examine(capsys, code=1)
    assert rows["settings"]["detail"].startswith("proctor.toml:2")
    assert "profile" in rows["settings"]["cure"]
    assert rows["database"]["state"] == "ok"
    monkeypatch.setenv("PROCTOR_PROFIL", "x")
    (place / "proctor.toml").unlink()
    assert "PROCTOR_PROFIL" in _examine(capsys, code=1)["settings"]["detail"]


def test_database_troubles_are_rows(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole, then with a key that others may read, then without its key, then damaged."""
    path = home / "state" / "proctor" / "proctor.db"
    assert main(["pause"]) == 0
    capsys.readouterr()
    rows = _examine(capsys)
    assert rows["database journal"]["detail"] == "WAL"
    assert rows["database writable"]["state"] == "ok"
    key = path.with_name("trace.key")
    key.chmod(0o644)
    assert _examine(capsys, code=1)["trace key"]["cure"] == f"Run `chmod 600 {key}`."
    key.unlink()
    assert "Put the file back" in _examine(capsys, code=1)["trace key"]["cure"]
    path.write_bytes(b"no database" * 1000)
    rows = _examine(capsys, code=1)
    assert "proctor db backup" in rows["database"]["detail"]
    assert rows["extra fast"]["state"] == "ok"


def test_newer_schema_and_open_state_directory(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one fails with the cure, the other warns."""
    database = open_database(sqlite_url(home / "state" / "proctor" / "proctor.db"))
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE proctor_schema SET version_num = '2999_01_01'")
    database.close()
    (home / "state" / "proctor").chmod(0o755)
    rows = _examine(capsys, code=1)
    assert rows["database schema"]["cure"] == "Upgrade Proctor."
    assert rows["state directory"]["state"] == "warn"
    assert "chmod 700" in rows["state directory"]["cure"]


def test_state_that_is_no_directory(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file in its place fails with a cure instead of a traceback."""
    (home / "state" / "proctor").write_text("in the way")
    rows = _examine(capsys, code=1)
    assert rows["state directory"]["state"] == "fail"
    assert rows["extra otlp"]["state"] == "ok"


def test_missing_and_old_git(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without git nothing works; with an old one merging does not."""
    monkeypatch.setenv("PATH", str(home))
    assert _examine(capsys, code=1)["git"]["cure"] == "Install git 2.38 or newer."
    (home / "git").write_text("#!/bin/sh\necho git version 2.30.2\n")
    (home / "git").chmod(0o755)
    assert _examine(capsys)["git"]["state"] == "warn"


def test_supervisor_that_does_not_answer_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that talks nonsense is told with the log's place."""
    with tempfile.TemporaryDirectory(prefix="p-") as short, socket.socket(socket.AF_UNIX) as server:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)  # a socket's address is short
        place = load_settings().paths.socket
        place.parent.mkdir(mode=0o700)
        server.bind(str(place))
        server.listen()

        def nonsense() -> None:
            line, _ = server.accept()
            with line:
                line.recv(100)
                line.sendall(b"what?\n")

        talker = threading.Thread(target=nonsense)
        talker.start()
        rows = _examine(capsys, code=1)
        talker.join(10)
    assert "orchestrator.log" in rows["supervisor"]["detail"]


def test_full_disk_fails_and_a_nearly_full_one_warns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what is free where the state lies."""
    usage = type(shutil.disk_usage("/"))
    for free, state, code in ((10, "fail", 1), (500 << 20, "warn", 0), (50 << 30, "ok", 0)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage(free, 0, free))
        assert _examine(capsys, code=code)["disk space for state"]["state"] == state


def test_engine_is_not_loaded(home: Path) -> None:
    """Doctor works also where DBOS does not."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert done.stdout.splitlines()[-1] == "LOADED []", done.stderr


def test_unknown_flag_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    assert main(["doctor", "--fix"]) == 2
