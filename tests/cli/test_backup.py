"""`proctor backup` and `proctor undo`, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.app import open_app
from proctor.cli.main import main
from proctor.store.tables import calls

Out = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is the current directory."""
    root = home / "swarm"
    root.mkdir()
    (root / "a.txt").write_text("a")
    (root / os.fsdecode(b"odd\xff")).write_text("odd")
    (root / "proctor.toml").write_text("")
    monkeypatch.chdir(root)
    return root


def read(out: Out, *words: str, code: int = 0) -> Any:
    """Run a command with --json and give what it printed."""
    assert main([*words, "--json"]) == code
    return json.loads(out.readouterr().out)


def test_create_list_show_verify_and_prune(workspace: Path, home: Path, capsys: Out) -> None:
    """A backup goes through its whole life by command, and its place is the seeds' form of path."""
    made = read(capsys, "backup", "create", "--reason", "before lunch")
    base = home / "data" / "proctor" / "backups"
    assert Path(made["backup_path"]).parent == base
    assert Path(made["backup_path"]).name.startswith("swarm_2")
    assert made["complete"] is True
    assert [row["reason"] for row in read(capsys, "backup", "list")] == ["before lunch"]
    shown = read(capsys, "backup", "show", made["timestamp"], "--files")
    assert {"a.txt", "odd\\xff"} <= {row["path"] for row in shown["files"]}
    assert read(capsys, "backup", "verify")["ok"] is True
    read(capsys, "backup", "create")
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    assert read(capsys, "backup", "prune", str(elsewhere), "--keep", "1")["removed"] == []
    assert read(capsys, "backup", "prune", "--keep", "1")["removed"] == [made["name"]]


def test_text_output_names_the_path_first(workspace: Path, capsys: Out) -> None:
    """The path is alone on standard output, so that a script can take it; the list is a table."""
    assert main(["backup", "create"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert (path / "manifest").is_file()
    for words in (["list"], ["show", path.name, "--files"], ["verify"], ["prune"]):
        assert main(["backup", *words]) == 0
    text = capsys.readouterr().out
    assert path.name in text
    assert "odd\\udcff" in text


def test_damage_gives_exit_code_seven(workspace: Path, home: Path, capsys: Out) -> None:
    """A flipped byte is told with the path and the exit code for altered data."""
    read(capsys, "backup", "create")
    pack = next((home / "data" / "proctor" / "backups" / ".store" / "packs").glob("*.pack"))
    raw = bytearray(pack.read_bytes())
    raw[20] ^= 1
    pack.write_bytes(raw)
    assert read(capsys, "backup", "verify", code=7)["damaged"]


def test_unknown_backup_is_not_found(workspace: Path, capsys: Out) -> None:
    """A wrong name says the cure and gives exit code 4."""
    assert main(["backup", "show", "nothing"]) == 4
    assert "proctor backup list" in capsys.readouterr().err


def test_restore_and_undo_pass_the_gate_and_tell_what_they_did(workspace: Path, capsys: Out) -> None:
    """Restore, then undo, then nothing is left to undo; dry runs change nothing; every write is in the trace."""
    name = read(capsys, "backup", "create")["name"]
    (workspace / "a.txt").write_text("changed")
    assert read(capsys, "backup", "restore", name, "--dry-run") == [{"path": "a.txt", "change": "write"}]
    assert (workspace / "a.txt").read_text() == "changed"
    done = read(capsys, "backup", "restore", name)
    assert done["changed"] == ["a.txt"]
    assert (workspace / "a.txt").read_text() == "a"
    assert [row["undone"] for row in read(capsys, "undo", "--list")] == [False]
    assert read(capsys, "undo", "--dry-run") == [{"path": "a.txt", "change": "write"}]
    assert read(capsys, "undo")["changed"] == ["a.txt"]
    assert (workspace / "a.txt").read_text() == "changed"
    assert [row["undone"] for row in read(capsys, "undo", "--list")] == [True]
    assert main(["undo"]) == 4
    assert "undo --list" in capsys.readouterr().err
    app = open_app()
    with app.database.read() as connection:
        rows = connection.execute(sa.select(calls.c.tool_name, calls.c.actor, calls.c.state)).all()
    app.close()
    assert [tuple(row) for row in rows] == [("restore_backup", "human", "ended")] * 2


def test_restore_text_says_how_to_take_it_back(workspace: Path, capsys: Out) -> None:
    """The first line names the place, the last the way back."""
    name = read(capsys, "backup", "create")["name"]
    (workspace / "a.txt").write_text("changed")
    assert main(["backup", "restore", name]) == 0
    said = capsys.readouterr()
    assert f"is as in {name}; 1 paths changed." in said.out
    assert "`proctor undo` brings it back" in said.err


def test_restore_into_an_empty_directory(workspace: Path, home: Path, capsys: Out) -> None:
    """`--into` fills an empty directory and leaves the workspace alone."""
    name = read(capsys, "backup", "create")["name"]
    (workspace / "a.txt").write_text("changed")
    (home / "copy").mkdir()
    read(capsys, "backup", "restore", name, "--into", str(home / "copy"))
    assert (home / "copy" / "a.txt").read_text() == "a"
    assert (workspace / "a.txt").read_text() == "changed"


def test_agent_cannot_restore_as_the_user(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    """A command that Proctor itself started is not the person at the terminal."""
    name = read(capsys, "backup", "create")["name"]
    (workspace / "a.txt").write_text("changed")
    monkeypatch.setenv("PROCTOR_RUN", "run_1")
    assert main(["backup", "restore", name]) == 5
    assert (workspace / "a.txt").read_text() == "changed"


def _git(place: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgSign=false"]
    return subprocess.run(
        ["git", "-C", str(place), *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_undo_over_commits_says_the_two_ways_and_takes_either(workspace: Path, capsys: Out) -> None:
    """Refused with code 5 and both options; --dry-run lists the commits; --keep-commits leaves git as it is."""
    _git(workspace, "init", "-q", "-b", "main")
    _git(workspace, "add", "-A")
    _git(workspace, "commit", "-qm", "first")
    call = ["tools", "call", "write_file", "file_path=a.txt", "content=agent"]
    assert main(call) == 0
    _git(workspace, "commit", "-qam", "mine")
    capsys.readouterr()
    assert main(["undo"]) == 5
    said = capsys.readouterr().err
    assert "1 commit was made on main" in said
    assert "--keep-commits" in said
    assert "--with-git" in said
    assert main(["undo", "--dry-run", "--keep-commits"]) == 0
    shown = capsys.readouterr()
    assert "mine" in shown.err
    assert "a.txt" in shown.out
    assert ".git" not in shown.out
    assert main(["undo", "--keep-commits", "--with-git"]) == 2
    assert main(["undo", "--keep-commits"]) == 0
    shown = capsys.readouterr()
    assert "git diff" in shown.out
    assert "`proctor undo swarm_" in shown.err
    assert (workspace / "a.txt").read_text() == "a"
    assert _git(workspace, "log", "-1", "--format=%s") == "mine"
