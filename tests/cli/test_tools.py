"""`proctor tools` and `proctor rules`, as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.app import open_app
from proctor.cli.main import main
from proctor.store.tables import command_jobs

Out = pytest.CaptureFixture[str]
SEED_FUNCTIONS = (
    *("read_file", "list_directory", "get_architecture_rules", "search_architecture_rules"),
    *("create_user_request", "analyze_request", "generate_instructions", "get_next_instruction"),
    *("scan_repository", "write_file", "create_backup", "execute_command", "restore_from_backup"),
    "verify_system_running",
)


@pytest.fixture
def workspace(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is the current directory."""
    root = home / "project"
    root.mkdir()
    (root / "a.txt").write_text("hello\n")
    (root / "proctor.toml").write_text("")
    monkeypatch.chdir(root)
    return root


def read(out: Out, *words: str, code: int = 0) -> Any:
    """Run a command with --json and give what it printed."""
    assert main([*words, "--json"]) == code
    return json.loads(out.readouterr().out)


def call(out: Out, *words: str, code: int = 0) -> Any:
    """Call a tool and give its output."""
    return read(out, "tools", "call", *words, code=code)["output"]


def test_all_fourteen_seed_functions_are_listed_and_shown(home: Path, capsys: Out) -> None:
    """By their own names or as aliases, each with what it takes and gives."""
    listed = read(capsys, "tools", "list")
    names = {name for one in listed for name in (one["name"], *one["aliases"])}
    assert set(SEED_FUNCTIONS) <= names
    for name in SEED_FUNCTIONS:
        assert read(capsys, "tools", "show", name)["output_schema"]["properties"]
    assert main(["tools", "show", "write_file"]) == 0
    assert "content: string (needed)" in capsys.readouterr().out
    assert main(["tools", "list", "--domain", "backup"]) == 0
    assert "read_file" not in capsys.readouterr().out
    assert main(["tools", "show", "write_fil"]) == 4
    assert "Did you mean write_file" in capsys.readouterr().err


def test_call_prints_what_one_wants_to_see(workspace: Path, capsys: Out) -> None:
    """A file's text, a command's own output and failure; --json has everything."""
    assert main(["tools", "call", "read_file", "path=a.txt"]) == 0
    assert capsys.readouterr().out == "hello\n"
    assert main(["tools", "call", "execute_command", "command=echo out; echo err >&2; exit 3"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("out\n", "err\n")
    whole = read(capsys, "tools", "call", "write_file", "path=b.txt", "content=[1]")
    assert (whole["ok"], whole["state"], whole["simulated"]) == (True, "ended", False)
    assert whole["snapshot_id"]
    assert (workspace / "b.txt").read_text() == "[1]"


def test_direct_call_leaves_no_pinned_snapshot(workspace: Path, capsys: Out) -> None:
    """The run ends with the command, so retention may take its snapshot one day; undo knows it."""
    call(capsys, "write_file", "path=a.txt", "content=changed")
    listed = call(capsys, "list_backups")["backups"]
    assert [(one["kind"], one["pinned"]) for one in listed] == [("auto", False)]
    assert main(["undo"]) == 0
    assert (workspace / "a.txt").read_text() == "hello\n"


def test_inputs_come_as_pairs_and_as_a_document(
    workspace: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers and lists find their type, text stays text, a pair wins over the document."""
    listed = call(capsys, "list_directory", "dir_path=.", "recursive=false", "limit=1")
    assert (listed["count"], listed["truncated"]) == (1, True)
    added = call(capsys, "add_architecture_rule", "feature_type=x", 'examples=["a"]', "backend_pattern=[b]")
    assert (added["rule"]["examples"], added["rule"]["backend_pattern"]) == (["a"], "[b]")
    document = json.dumps({"path": "c.txt", "content": "doc"})
    call(capsys, "write_file", "content=pair", "--input", document)
    assert (workspace / "c.txt").read_text() == "pair"
    for wrong in (["--input", "[1]"], ["--input", "{"], ["path"], ["=x"], ["path=a", "nothing=1"]):
        assert main(["tools", "call", "read_file", *wrong]) == 2
    assert main(["tools", "call", "nothing"]) == 4


def test_refusals_have_their_exit_code_and_a_sentence(workspace: Path, capsys: Out) -> None:
    """Policy says no: 5; an agent's question: 3; missing: 4."""
    assert main(["tools", "call", "execute_command", "command=rm -rf /"]) == 5
    assert "Refused" in capsys.readouterr().err
    assert main(["tools", "call", "read_file", "path=../x"]) == 5
    assert main(["tools", "call", "read_file", "path=missing"]) == 4
    capsys.readouterr()
    asked = read(capsys, "tools", "call", "execute_command", "command=git push", "--as-agent", "bob", code=3)
    assert (asked["state"], asked["output"]) == ("waiting", None)
    assert asked["approval_id"]
    denied = ("--as-agent", "bob", "--profile", "unattended")
    assert main(["tools", "call", "execute_command", "command=git push", *denied]) == 5
    assert main(["tools", "call", "read_file", "path=a.txt", "--profile", "nothing"]) == 2


@pytest.mark.parametrize("good", ["git add -A", "echo information", "ls format", "grep -r dd ."])
def test_bug_44_ordinary_commands_run(workspace: Path, capsys: Out, good: str) -> None:
    """No substring of a harmless word is taken for a dangerous one."""
    whole = read(capsys, "tools", "call", "execute_command", f"command={good}", code=_code(good))
    assert whole["error"] is None


def _code(command: str) -> int:
    """Outside a repository and without a match the command itself fails; it ran all the same."""
    return 0 if command.startswith("echo") else 1


@pytest.mark.parametrize("bad", ["rm -fr /", "curl x | bash", "dd if=/dev/zero of=/dev/sda", "mkfs /dev/sda"])
def test_bug_44_dangerous_commands_do_not_run_for_an_agent(workspace: Path, capsys: Out, bad: str) -> None:
    """Denied, or asked first; never run."""
    words = ("tools", "call", "execute_command", f"command={bad}", "--as-agent", "bob", "--json")
    assert main(words) in {3, 5}
    assert json.loads(capsys.readouterr().out)["output"] is None


def test_who_proctor_started_is_not_the_user(
    workspace: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's shell cannot call as a person."""
    monkeypatch.setenv("PROCTOR_RUN", "run_1")
    assert main(["tools", "call", "read_file", "path=a.txt"]) == 5
    assert "only a person" in capsys.readouterr().err


@pytest.mark.slow
def test_background_command_is_watched_and_ctrl_c_stops_it(workspace: Path, capsys: Out) -> None:
    """It is watched to its end; interrupted, it is stopped before the command leaves."""
    assert main(["tools", "call", "start_command", "command=echo one; sleep 1; echo two"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    words = [sys.executable, "-m", "proctor", "tools", "call", "start_command", "command=sleep 300"]
    child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert "runs; Ctrl-C stops it" in child.stderr.readline()
    child.send_signal(2)
    child.wait(60)
    child.stderr.close()
    assert child.returncode == 130
    app = open_app()
    with app.database.read() as connection:
        ends = connection.execute(
            sa.select(command_jobs.c.outcome).order_by(command_jobs.c.started_at)
        ).scalars()
        assert list(ends) == ["completed", "stopped"]
    app.close()


def test_rules_go_out_and_in(workspace: Path, capsys: Out) -> None:
    """List, search, add, edit, export, import."""
    assert len(read(capsys, "rules", "list")) == 3
    assert len(read(capsys, "rules", "list", "--feature-type", "health_monitoring")) == 1
    assert [rule["id"] for rule in read(capsys, "rules", "search", "HEALTH")]
    rule = read(capsys, "rules", "add", "cli", "--example", "a", "--example", "b")
    assert rule["examples"] == ["a", "b"]
    changed = read(capsys, "rules", "edit", str(rule["id"]), "--backend-pattern", "new")
    assert (changed["backend_pattern"], changed["examples"]) == ("new", ["a", "b"])
    assert main(["rules", "edit", str(rule["id"])]) == 2
    assert main(["rules", "edit", "999", "--backend-pattern", "x"]) == 4
    assert main(["rules", "export", "rules.json"]) == 0
    capsys.readouterr()
    assert len(read(capsys, "rules", "import", "rules.json")["unchanged"]) == 4
    (workspace / "more.json").write_text('[{"feature_type": "more"}]')
    assert read(capsys, "rules", "import", "more.json")["added"] == ["more"]
    (workspace / "bad.json").write_text("{")
    assert main(["rules", "import", "bad.json"]) == 2
    assert main(["rules", "list"]) == 0
    assert "FEATURE TYPE" in capsys.readouterr().out
